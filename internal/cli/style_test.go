package cli

import (
	"os"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"
)

func TestDurations(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0ms", 0: "0ms", 640 * time.Millisecond: "640ms", 1449 * time.Millisecond: "1.4s", 59999 * time.Millisecond: "59.9s",
		125 * time.Second: "2m05s", 3*time.Hour + 2*time.Minute + 59*time.Second: "3h02m", 51 * time.Hour: "2d3h",
	} {
		require.Equal(t, want, short(d))
	}
	now := time.Unix(1_000_000, 0)
	for d, want := range map[time.Duration]string{
		-time.Second: "0s ago", -time.Minute: "in 1m", -50 * time.Hour: "in 2d", 12 * time.Second: "12s ago", 5*time.Minute + 59*time.Second: "5m ago", 30 * time.Hour: "30h ago", 72 * time.Hour: "3d ago",
	} {
		require.Equal(t, want, age(now, timestamppb.New(now.Add(-d))))
	}
	require.Equal(t, "-", age(now, nil))
	require.Equal(t, "-", elapsed(now, nil, nil))
	require.Equal(t, "5.0s", elapsed(now, timestamppb.New(now.Add(-5*time.Second)), nil))
	require.Equal(t, "2.0s", elapsed(now, timestamppb.New(now.Add(-5*time.Second)), timestamppb.New(now.Add(-3*time.Second))))
}

func TestTable(t *testing.T) {
	t.Parallel()

	t.Run("columns are aligned, whatever the cells contain", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			cell := rapid.Map(rapid.StringOf(rapid.SampledFrom([]rune("aß漢é👍 "))), strings.TrimSpace)
			var grid table
			for range rapid.IntRange(1, 6).Draw(t, "rows") {
				grid.add(palette{terminal: true, colour: true}.colourful(cell.Draw(t, "first"), "2"), "|")
			}
			var text strings.Builder
			grid.print(&text)
			at := -1
			for line := range strings.Lines(text.String()) {
				before, _, found := strings.Cut(line, "|")
				require.True(t, found)
				if at < 0 {
					at = lipgloss.Width(before)
				}
				require.Equal(t, at, lipgloss.Width(before))
			}
		})
	})

	t.Run("no line ends in spaces", func(t *testing.T) {
		t.Parallel()
		var grid table
		grid.add("A", "B")
		grid.add("long", "")
		var text strings.Builder
		grid.print(&text)
		require.Equal(t, "A     B\nlong\n", text.String())
	})
}

func TestPalette(t *testing.T) {
	t.Parallel()

	t.Run("what is no terminal gets neither colour nor symbol", func(t *testing.T) {
		t.Parallel()
		file, err := os.CreateTemp(t.TempDir(), "")
		require.NoError(t, err)
		defer file.Close()
		for _, p := range []palette{paletteOf(file, os.Getenv), paletteOf(&strings.Builder{}, os.Getenv)} {
			require.Equal(t, "FAILED", p.state("FAILED"))
			require.Equal(t, "+ x", p.mark("+ x", "+"))
		}
	})

	t.Run("a terminal gets both, one without colours the symbol", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "\x1b[31m✗ FAILED\x1b[m", palette{terminal: true, colour: true}.state("FAILED"))
		require.Equal(t, "✗ FAILED", palette{terminal: true}.state("FAILED"))
	})

	t.Run("text of others moves no cursor", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "a[2Jb c", clean("a\x1b[2Jb\nc\x07"))
		require.Equal(t, "[31ma\n\tb", harmless("\x1b[31ma\n\tb\r\u009b"))
		require.Equal(t, "abc…", clip("abcdef", 4))
		require.Equal(t, "-", orDash(""))
	})
}
