// Package suggest finds the name that was probably meant when one is not known. It never
// decides: what it finds is shown to a person, not used.
package suggest

import (
	"slices"
	"unicode/utf8"
)

// maxLength bounds the names that are compared: the comparison is quadratic in it.
const maxLength = 256

// Closest is the candidate nearest to word, if one is near enough: at most a third of the
// word may differ, and never more than three letters. Of equally near ones the first in
// alphabetical order is taken, whatever the order of the candidates.
func Closest(word string, candidates []string) (string, bool) {
	length := utf8.RuneCountInString(word)
	if length > maxLength {
		return "", false
	}
	best, nearest := "", min(3, max(1, length/3))+1
	for _, candidate := range candidates {
		if candidate == word || len(candidate) > 4*maxLength {
			continue
		}
		d := distance(word, candidate, nearest)
		if d < nearest || (d == nearest && best != "" && candidate < best) {
			best, nearest = candidate, d
		}
	}
	return best, best != ""
}

// DidYouMean is "; did you mean x?" for the end of a message, or nothing.
func DidYouMean(word string, candidates []string) string {
	if near, ok := Closest(word, candidates); ok {
		return "; did you mean " + near + "?"
	}
	return ""
}

// distance is the optimal string alignment distance: how many letters to insert, delete,
// replace or swap with their neighbour to come from one word to the other. It stops
// counting above limit.
func distance(from, to string, limit int) int {
	a, b := []rune(from), []rune(to)
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit + 1
	}
	beforeLast := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], beforeLast[j-2]+1)
			}
		}
		// A swap reaches back two rows, so both must be out of reach before giving up.
		if slices.Min(row) > limit && slices.Min(last) > limit {
			return limit + 1
		}
		beforeLast, last, row = last, row, beforeLast
	}
	return last[len(b)]
}
