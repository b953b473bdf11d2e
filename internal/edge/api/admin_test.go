package api_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.trigger(t, "diamond")
	b.trigger(t, "single")
	lease := b.one(t)
	require.NotNil(t, lease)
	answer, err := b.status.GetStatus(t.Context(), &servov1.GetStatusRequest{})
	require.NoError(t, err)
	require.Equal(t, "v1.2.3 s1", answer.GetVersion()+" "+answer.GetServer())
	require.Equal(t, int64(1e9), answer.GetStartedAt().GetSeconds())
	require.NotNil(t, answer.GetNow())
	counts := map[string]int64{}
	for _, c := range answer.GetTasks() {
		require.False(t, c.GetAtLeast())
		counts[c.GetState()] = c.GetCount()
	}
	require.Equal(t, map[string]int64{"PENDING": 3, "READY": 0, "QUEUED": 1, "DISPATCHED": 0, "RUNNING": 1, "RETRY_WAIT": 0}, counts)
	require.Len(t, answer.GetPools(), 1)
	require.Equal(t, int64(1), answer.GetPools()[0].GetQueued())
	require.Equal(t, int64(1), answer.GetPools()[0].GetLeased())
	holders := map[string]string{}
	for _, d := range answer.GetDuties() {
		holders[d.GetName()] = d.GetHolder()
	}
	require.Equal(t, "test", holders["admission"])
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run := b.trigger(t, "diamond").GetId()

	clean, err := b.admin.VerifyProjections(t.Context(), &servov1.VerifyProjectionsRequest{})
	require.NoError(t, err)
	require.Zero(t, clean.GetFound())
	require.Equal(t, int64(1), clean.GetRuns())
	require.Equal(t, int64(4), clean.GetTasks())

	b.db.Exec(t, `UPDATE servo.runs SET priority = 1`)
	found, err := b.admin.VerifyProjections(t.Context(), &servov1.VerifyProjectionsRequest{Tenant: "acme", Sample: 10})
	require.NoError(t, err)
	require.Equal(t, int64(1), found.GetFound())
	require.Equal(t, "acme "+run+" runs", found.GetDivergences()[0].GetTenant()+" "+found.GetDivergences()[0].GetRun()+" "+found.GetDivergences()[0].GetTable())
	require.Contains(t, found.GetDivergences()[0].GetMessage(), "priority")
	elsewhere, err := b.admin.VerifyProjections(t.Context(), &servov1.VerifyProjectionsRequest{Tenant: "brick"})
	require.NoError(t, err)
	require.Zero(t, elsewhere.GetFound())

	repaired, err := b.admin.RepairRun(t.Context(), &servov1.RepairRunRequest{Tenant: "acme", Run: run})
	require.NoError(t, err)
	require.Equal(t, int64(1), repaired.GetFound())
	clean, err = b.admin.VerifyProjections(t.Context(), &servov1.VerifyProjectionsRequest{})
	require.NoError(t, err)
	require.Zero(t, clean.GetFound())

	_, err = b.admin.RepairRun(t.Context(), &servov1.RepairRunRequest{Tenant: "acme", Run: uuid.NewString()})
	requireRefused(t, err, codes.NotFound, "run")
	_, err = b.admin.VerifyProjections(t.Context(), &servov1.VerifyProjectionsRequest{Sample: 10_001})
	requireRefused(t, err, codes.InvalidArgument, "sample")
}
