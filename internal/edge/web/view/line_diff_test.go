package view

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDiffLines(t *testing.T) {
	t.Parallel()

	t.Run("removed and added lines restore both texts, and common lines stay", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			text := rapid.Custom(func(t *rapid.T) string {
				return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "{"}), 1, 12).Draw(t, "lines"), "\n")
			})
			before, after := text.Draw(t, "before"), text.Draw(t, "after")
			var left, right []string
			kept := 0
			for _, l := range diffLines(before, after) {
				if l.Sign != '+' {
					left = append(left, l.Text)
				}
				if l.Sign != '-' {
					right = append(right, l.Text)
				}
				if l.Sign == ' ' {
					kept++
				}
			}
			require.Equal(t, before, strings.Join(left, "\n"))
			require.Equal(t, after, strings.Join(right, "\n"))
			if before == after {
				require.Len(t, left, kept)
			}
		})
	})

	t.Run("one changed line is one removed and one added line", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []Line{{' ', "a"}, {'-', "b"}, {'+', "x"}, {' ', "c"}}, diffLines("a\nb\nc", "a\nx\nc"))
		require.Equal(t, []Line{{'+', "a"}}, diffLines("", "a"))
	})

	t.Run("long texts are replaced as a whole", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("a\n", maxDiff+1)
		require.Len(t, diffLines(long, "a"), maxDiff+3)
	})
}
