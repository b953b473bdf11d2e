// Package suggest finds the known name that is most similar to an unknown one. The result is shown
// to users and never used in place of their input.
package suggest

import (
	"slices"
	"unicode/utf8"
)

// The limits of the work: comparing is quadratic in the length of the names, and is done
// with each candidate.
const (
	maxLength     = 256
	maxCandidates = 20_000
)

// Closest returns the candidate that is most similar to word, if one is similar enough: at most a
// third of the word may differ, and never more than three letters. Of equally similar ones it returns
// the first in alphabetical order. It does not search among very many candidates.
func Closest(word string, candidates []string) (string, bool) {
	length := utf8.RuneCountInString(word)
	if length > maxLength || len(candidates) > maxCandidates {
		return "", false
	}
	var c comparer
	best, nearest := "", min(3, max(1, length/3))+1
	for _, candidate := range candidates {
		if candidate == word || len(candidate) > 4*maxLength {
			continue
		}
		d := c.distance(word, candidate, nearest)
		if d < nearest || (d == nearest && best != "" && candidate < best) {
			best, nearest = candidate, d
		}
	}
	return best, best != ""
}

// DidYouMean returns "; did you mean x?" for the end of a message, or "".
func DidYouMean(word string, candidates []string) string {
	if near, ok := Closest(word, candidates); ok {
		return "; did you mean " + near + "?"
	}
	return ""
}

// comparer reuses its buffers between comparisons.
type comparer struct {
	a, b                  []rune
	beforeLast, last, row []int
}

// distance returns the optimal string alignment distance: how many letters to insert, delete, replace
// or swap with their neighbour to change one word into the other. It stops counting above limit.
func (c *comparer) distance(from, to string, limit int) int {
	// Letters have at most four bytes, so a great difference in bytes is one in letters.
	if len(from)-4*len(to) > limit || len(to)-4*len(from) > limit {
		return limit + 1
	}
	c.a, c.b = appendRunes(c.a[:0], from), appendRunes(c.b[:0], to)
	a, b := trim(c.a, c.b)
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit + 1
	}
	beforeLast, last, row := resize(&c.beforeLast, len(b)+1), resize(&c.last, len(b)+1), resize(&c.row, len(b)+1)
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
		// A swap refers to the row before last, so both rows must exceed the limit.
		if slices.Min(row) > limit && slices.Min(last) > limit {
			return limit + 1
		}
		beforeLast, last, row = last, row, beforeLast
	}
	return last[len(b)]
}

// trim removes the common prefix and suffix of two words, which do not change the distance: similar
// names differ in few letters.
func trim(a, b []rune) (restOfA, restOfB []rune) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

func appendRunes(runes []rune, text string) []rune {
	for _, r := range text {
		runes = append(runes, r)
	}
	return runes
}

func resize(buffer *[]int, n int) []int {
	*buffer = slices.Grow((*buffer)[:0], n)[:n]
	return *buffer
}
