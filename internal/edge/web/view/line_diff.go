package view

import "strings"

// Line is a line of a comparison: unchanged (' '), removed ('-') or added ('+').
type Line struct {
	Sign byte
	Text string
}

// maxDiff bounds the lines on each side that are compared; longer texts are shown as removed and added.
const maxDiff = 1000

// diffLines compares two texts by lines: a longest common subsequence stays, the rest is removed or added.
func diffLines(before, after string) []Line {
	a, b := linesOf(before), linesOf(after)
	if len(a) > maxDiff || len(b) > maxDiff {
		return append(signed('-', a), signed('+', b)...)
	}
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	common := make([][]int16, len(a)+1)
	for i := range common {
		common[i] = make([]int16, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []Line
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			out = append(out, Line{' ', a[i]})
			i, j = i+1, j+1
		case common[i+1][j] >= common[i][j+1]:
			out = append(out, Line{'-', a[i]})
			i++
		default:
			out = append(out, Line{'+', b[j]})
			j++
		}
	}
	return append(append(out, signed('-', a[i:])...), signed('+', b[j:])...)
}

func linesOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func signed(sign byte, lines []string) []Line {
	out := make([]Line, len(lines))
	for i, text := range lines {
		out[i] = Line{sign, text}
	}
	return out
}
