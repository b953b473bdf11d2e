package view

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAnsi(t *testing.T) {
	t.Parallel()

	t.Run("colours and weights are applied, other sequences are dropped", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []Styled{{"", "a "}, {"ansi-red ansi-bold", "bad"}, {"", " z"}}, Ansi("a \x1b[1;31mbad\x1b[0m z"))
		require.Equal(t, []Styled{{"ansi-cyan", "x"}}, Ansi("\x1b[96mx\x1b[2K"))
		require.Equal(t, "link ok", PlainText("\x1b]8;;http://x\x1b\\link\x1b]8;;\x07 \x1b[38;5;12mok\x1b[48;2;1;2;3m\r"))
		require.Empty(t, Ansi("\x1b["))
		require.Empty(t, Ansi("\x1b"))
	})

	t.Run("no control sequence and no text is lost", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			words := rapid.SliceOf(rapid.StringMatching(`[a-z <>&"]{1,8}`)).Draw(t, "words")
			codes := rapid.SliceOfN(rapid.IntRange(0, 110), len(words), len(words)).Draw(t, "codes")
			text := ""
			for i, w := range words {
				text += "\x1b[" + strings.Repeat("1;", codes[i]%2) + "3" + string(rune('0'+codes[i]%8)) + "m" + w
			}
			require.Equal(t, strings.Join(words, ""), PlainText(text))
			require.NotContains(t, PlainText(rapid.String().Draw(t, "any")), "\x1b")
		})
	})

	t.Run("the last lines", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "b\nc", lastLines("a\nb\nc\n\n", 2))
		require.Equal(t, "a", lastLines("a", 5))
	})
}
