package simulate_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/simulate"
)

func TestChart(t *testing.T) {
	t.Parallel()

	t.Run("the busiest day is drawn hour by hour", func(t *testing.T) {
		t.Parallel()
		in := day(
			simulate.Config{Schedule: cron(t, "0 3 * * *", "UTC"), Duration: 90 * time.Minute},
			simulate.Config{Schedule: cron(t, "0 3 2 * *", "UTC")},
			simulate.Config{Schedule: cron(t, "0/15 23 2 * *", "UTC")},
		)
		in.Days = 4
		var text strings.Builder
		require.NoError(t, simulate.Chart(&text, run(t, in), 45))
		lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
		require.Len(t, lines, 26)
		require.Equal(t, "2026-06-02 (UTC): 6 runs", lines[0])
		require.Equal(t, "       runs created        concurrent runs", lines[1])
		require.Equal(t, "02:00", lines[4])
		require.Equal(t, "03:00  █████ 2             ██████████ 2", lines[5])
		require.Equal(t, "04:00                      █████ 1", lines[6])
		require.Equal(t, "23:00  ██████████ 4        █████ 1", lines[25])
	})

	t.Run("a little is still seen", func(t *testing.T) {
		t.Parallel()
		in := day(
			simulate.Config{Schedule: cron(t, "0 3 * * *", "UTC")},
			simulate.Config{Schedule: cron(t, "* 4 * * *", "UTC"), Duration: time.Second},
		)
		var text strings.Builder
		require.NoError(t, simulate.Chart(&text, run(t, in), 45))
		require.Contains(t, text.String(), "03:00  █ 1 ")
	})

	t.Run("no line is wider than it may be", func(t *testing.T) {
		t.Parallel()
		r := run(t, month(t, 300))
		for _, width := range []int{0, 40, 41, 80, 200} {
			var text strings.Builder
			require.NoError(t, simulate.Chart(&text, r, width))
			for line := range strings.Lines(text.String()) {
				require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), max(40, width), line)
			}
		}
	})

	t.Run("an empty list has a text", func(t *testing.T) {
		t.Parallel()
		var text strings.Builder
		require.NoError(t, simulate.Chart(&text, run(t, day()), 80))
		require.Equal(t, "No slots in this window.\n", text.String())
	})
}
