package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestBars(t *testing.T) {
	t.Parallel()

	t.Run("whatever is over zero is seen, and all of it is in the drawing", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			values := rapid.SliceOfN(rapid.Float64Range(0, 1e7), 1, 400).Draw(t, "values")
			columns := make([]Column, len(values))
			for i, v := range values {
				columns[i] = Column{Label: "day", Parts: []Part{{v, "f-ok"}, {v / 1000, "f-bad"}}}
			}
			b := BarsOf("chart", columns, wholeNumber)
			require.Len(t, b.Columns, len(values))
			for i, c := range b.Columns {
				if values[i] > 0 {
					require.Len(t, c.Pieces, 2)
				}
				require.GreaterOrEqual(t, c.X, 0.0)
				require.LessOrEqual(t, c.X+c.Width, 100.0)
				for _, p := range c.Pieces {
					require.Positive(t, p.Height)
					require.GreaterOrEqual(t, p.Y, 0)
					require.LessOrEqual(t, p.Y+p.Height, b.Base)
				}
			}
		})
	})

	t.Run("a day on which nothing ended has its place", func(t *testing.T) {
		t.Parallel()
		runs, took, breaches := dayBars(&servov1.TenantMetrics{From: "2026-02-27", To: "2026-03-02", ByDay: []*servov1.DayMetrics{
			{Day: "2026-03-01", TotalRuns: 3, SuccessfulRuns: 2, FailedRuns: 1, AverageDuration: durationpb.New(90 * time.Second), SlaCompliance: 0.9999},
		}})
		require.Len(t, runs.Columns, 4)
		require.Equal(t, "Fri 27 Feb 2026: no run ended", runs.Columns[0].Title)
		require.Equal(t, "Sun 1 Mar 2026: 3 runs, 2 succeeded, 1 failed, 1 min 30 s on average, SLA 99.9 %", runs.Columns[2].Title)
		require.Len(t, took.Columns[2].Pieces, 1)
		require.True(t, breaches.Empty)
	})

	t.Run("durations are written as they are typed", func(t *testing.T) {
		t.Parallel()
		for text, d := range map[string]time.Duration{"6h": 6 * time.Hour, "1h30m": 90 * time.Minute, "45s": 45 * time.Second, "10m": 10 * time.Minute, "1h0m5s": time.Hour + 5*time.Second} {
			require.Equal(t, text, typed(durationpb.New(d)))
		}
		require.Empty(t, typed(nil))
	})
}
