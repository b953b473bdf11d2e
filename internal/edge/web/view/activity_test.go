package view_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/web/view"
)

func TestActivityBars(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC)
	bars := view.ActivityBars(&servov1.Activity{Hours: []*servov1.HourActivity{
		{
			Hour: timestamppb.New(first), SucceededRuns: 1200, FailedRuns: 2, TimedOutRuns: 1, Breaches: 1,
			AverageDuration: durationpb.New(90 * time.Second), LongestStartDelay: durationpb.New(4 * time.Second),
		},
		{Hour: timestamppb.New(first.Add(time.Hour))},
		{Hour: timestamppb.New(first.Add(2 * time.Hour)), CancelledRuns: 1, LongestStartDelay: durationpb.New(0)},
	}})
	require.Len(t, bars.Columns, 3)
	var classes []string
	for _, p := range bars.Columns[0].Pieces {
		classes = append(classes, p.Class)
		require.Positive(t, p.Height, "a few among many are seen")
	}
	require.Equal(t, "f-ok f-late f-bad", strings.Join(classes, " "))
	require.Equal(t, "Sun 23:00 UTC: 1\u202f203 runs, 1\u202f200 succeeded, 2 failed, 1 timed out, 1 min 30 s on average, start delay up to 4.0 s, 1 SLA breach", bars.Columns[0].Title)
	require.Equal(t, "Mon 00:00 UTC: no run ended", bars.Columns[1].Title)
	require.Equal(t, "Mon 01:00 UTC: 1 run, 1 cancelled", bars.Columns[2].Title)
	require.Equal(t, []string{"f-late", "", ""}, []string{bars.Columns[0].Mark, bars.Columns[1].Mark, bars.Columns[2].Mark}, "breaches are marked")
	require.Equal(t, []string{"23:00", "00:00", "01:00"}, []string{bars.Labels[0].Label, bars.Labels[1].Label, bars.Labels[2].Label})
}
