package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

const dividedManifest = `
version: 1
assets:
  - {key: a/raw, go: {}, partitions: [{dimension: date, kind: daily, start: "2026-01-01"}]}
  - {key: b/week, go: {}, upstream: [a/raw], partitions: [{dimension: date, kind: daily, start: "2026-01-01"}], partitions_per_task: 7}
pipelines:
  - {name: single, overlap: allow, select: [a/raw, b/week]}
`

func TestPartitionsOverTheAPI(t *testing.T) {
	t.Parallel()
	b := setupConfigs(t)
	_, err := servov1.NewDeploymentServiceClient(b.conn).Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: manifestOf(t, dividedManifest)})
	require.NoError(t, err)

	t.Run("a plan and a run have the partitions that are named", func(t *testing.T) {
		t.Parallel()
		named := []string{"date=2026-01-01..2026-01-08"}
		planned, err := b.runs.PlanRun(t.Context(), &servov1.PlanRunRequest{Tenant: "acme", Pipeline: "single", Partitions: named})
		require.NoError(t, err)
		require.Len(t, planned.GetTasks(), 10)
		require.Equal(t, `{"date":"2026-01-01..2026-01-07"}`, planned.GetTasks()[8].GetPartition())
		require.Len(t, planned.GetTasks()[8].GetUpstream(), 7)
		answer, err := b.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "single", Partitions: named})
		require.NoError(t, err)
		require.Equal(t, int32(10), answer.GetRun().GetTasks().GetTotal())
		require.Equal(t, planned.GetFingerprint(), answer.GetRun().GetPlanFingerprint())
	})

	t.Run("refusals name the field", func(t *testing.T) {
		t.Parallel()
		for partition, message := range map[string]string{
			"date=2026-02-01..2026-01-01": "is reversed", "day=2026-01-01": `unknown dimension "day"`, "date=2025-01-01": "begins before the first partition",
		} {
			_, err := b.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "single", Partitions: []string{partition}})
			requireRefused(t, err, codes.InvalidArgument, "partitions[0]")
			require.ErrorContains(t, err, message)
		}
	})

	t.Run("a config keeps its partitions, and its preview shows them", func(t *testing.T) {
		t.Parallel()
		spec := &servov1.ConfigSpec{
			Pipeline: "single", Trigger: &servov1.ConfigTrigger{Cron: "0 */12 * * *"},
			Partitions: &servov1.ConfigPartitions{MaxPartitions: proto.Int32(3)},
		}
		created := b.create(t, "divided", spec)
		require.True(t, proto.Equal(spec.GetPartitions(), created.GetSpec().GetPartitions()))
		answer, err := b.configs.PreviewConfig(t.Context(), &servov1.PreviewConfigRequest{Tenant: "acme", Config: "divided", After: timestamppb.New(noon), Count: 3})
		require.NoError(t, err)
		require.Equal(t, []string{"date=2027-01-31"}, answer.GetSlots()[0].GetPartitions())
		require.True(t, answer.GetSlots()[1].GetNoPartition())
		require.Equal(t, []string{"date=2027-02-01"}, answer.GetSlots()[2].GetPartitions())
		_, err = b.configs.CreateConfig(t.Context(), &servov1.CreateConfigRequest{Tenant: "acme", Name: "wrong", Spec: &servov1.ConfigSpec{
			Pipeline: "single", Trigger: &servov1.ConfigTrigger{Manual: true}, Partitions: &servov1.ConfigPartitions{Values: map[string]string{"date": "slot-2x"}},
		}})
		require.ErrorContains(t, err, `"slot-2x" is not an offset of the slot`)
	})
}
