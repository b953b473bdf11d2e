package api_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestTriggerRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)

	t.Run("each item has its own answer, in their order", func(t *testing.T) {
		t.Parallel()
		answer, err := b.runs.TriggerRuns(t.Context(), &servov1.TriggerRunsRequest{Tenant: "acme", Runs: []*servov1.RunTrigger{
			{Pipeline: "single", Parameters: object(t, map[string]any{"n": 1}), Priority: 9, Note: "first"},
			{Pipeline: "singel"},
			{},
			{Select: []string{"d/a"}},
			{Pipeline: "single", Priority: 11},
			{Pipeline: "single", IdempotencyKey: "\n"},
			{Pipeline: "single", Parameters: object(t, map[string]any{"unknown": 1})},
		}})
		require.NoError(t, err)
		fields := map[int]string{}
		for i, r := range answer.GetRuns() {
			require.NotEqual(t, r.GetRun() == "", r.GetError() == nil, "a run or an error")
			if r.GetError() != nil {
				fields[i] = r.GetError().GetField()
				require.NotEmpty(t, r.GetError().GetRemedy())
			}
		}
		require.Equal(t, map[int]string{
			1: "runs[1].pipeline", 2: "runs[2].pipeline", 4: "runs[4].priority", 5: "runs[5].idempotency_key", 6: "runs[6].parameters.unknown",
		}, fields)
		first, err := b.runs.GetRun(t.Context(), &servov1.GetRunRequest{Tenant: "acme", Run: answer.GetRuns()[0].GetRun()})
		require.NoError(t, err)
		require.Equal(t, map[string]any{"n": 1., "day": "today"}, first.GetParameters().AsMap())
		require.EqualValues(t, 9, first.GetPriority())
		require.Equal(t, "open", first.GetTriggeredBy())
	})

	t.Run("keys of items and of the call return the first runs", func(t *testing.T) {
		t.Parallel()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "import")
		req := &servov1.TriggerRunsRequest{Tenant: "acme", Runs: []*servov1.RunTrigger{
			{Select: []string{"d/a"}, IdempotencyKey: "item"}, {Select: []string{"d/a"}},
		}}
		first, err := b.runs.TriggerRuns(ctx, req)
		require.NoError(t, err)
		again, err := b.runs.TriggerRuns(ctx, req)
		require.NoError(t, err)
		for i, r := range first.GetRuns() {
			require.Nil(t, r.GetError())
			require.False(t, r.GetRepeatedRequest())
			require.Equal(t, r.GetRun(), again.GetRuns()[i].GetRun())
			require.True(t, again.GetRuns()[i].GetRepeatedRequest())
		}
		require.NotEqual(t, first.GetRuns()[0].GetRun(), first.GetRuns()[1].GetRun())
		req.Runs[0].Select = []string{"s/one"}
		other, err := b.runs.TriggerRuns(ctx, req)
		require.NoError(t, err)
		require.Equal(t, "runs[0].idempotency_key", other.GetRuns()[0].GetError().GetField())
		require.Equal(t, first.GetRuns()[1].GetRun(), other.GetRuns()[1].GetRun())
	})

	t.Run("a thousand runs are one call, and one more is refused", func(t *testing.T) {
		t.Parallel()
		req := &servov1.TriggerRunsRequest{Tenant: "acme"}
		for i := range 1000 {
			req.Runs = append(req.Runs, &servov1.RunTrigger{Select: []string{"s/one"}, IdempotencyKey: fmt.Sprint("many-", i)})
		}
		answer, err := b.runs.TriggerRuns(t.Context(), req)
		require.NoError(t, err)
		made := map[string]bool{}
		for _, r := range answer.GetRuns() {
			require.Nil(t, r.GetError())
			made[r.GetRun()] = true
		}
		require.Len(t, made, 1000)
		req.Runs = append(req.Runs, req.GetRuns()[0])
		_, err = b.runs.TriggerRuns(t.Context(), req)
		requireRefused(t, err, codes.InvalidArgument, "runs")
		_, err = b.runs.TriggerRuns(t.Context(), &servov1.TriggerRunsRequest{Tenant: "acme"})
		requireRefused(t, err, codes.InvalidArgument, "runs")
		_, err = b.runs.TriggerRuns(t.Context(), &servov1.TriggerRunsRequest{Tenant: "missing", Runs: req.GetRuns()[:1]})
		requireRefused(t, err, codes.NotFound, "tenant")
	})
}
