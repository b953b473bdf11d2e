package api_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// TestUnheldLeases: leases whose claim was answered to no worker return to the queue with the next heartbeat
// of their worker, and no other lease does.
func TestUnheldLeases(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 5 {
		b.trigger(t, "single")
	}
	b.admit(t)
	claim := func(id uuid.UUID, worker string, start bool, most int32) []*servov1.Lease {
		t.Helper()
		request := claimRequest(most)
		request.ClaimId, request.WorkerId, request.Start = id.String(), worker, start
		answer, err := b.workers.Claim(t.Context(), request)
		require.NoError(t, err)
		require.Len(t, answer.GetLeases(), int(most))
		return answer.GetLeases()
	}
	process := uuid.New()
	id := func(n byte) uuid.UUID { made := process; made[15] = n; return made }
	held := claim(id(1), "w1", true, 1)[0]
	unheard := append(claim(id(2), "w1", true, 1), claim(id(3), "w1", false, 1)...)
	pending := claim(id(4), "w1", true, 1)[0] // its answer may be under way
	foreign := claim(id(5), "w2", true, 1)[0] // a worker of another name
	beat := func(settled *servov1.ClaimRange) error {
		answer, err := b.workers.Heartbeat(t.Context(), &servov1.HeartbeatRequest{
			WorkerId: "w1", Leases: []*servov1.HeartbeatItem{{Lease: held.GetLease()}}, Settled: settled,
		})
		require.True(t, err != nil || answer.GetLeases()[0].GetHeld())
		return err
	}
	require.NoError(t, beat(nil), "a worker that names no claims gives nothing back")
	require.NoError(t, beat(&servov1.ClaimRange{First: id(1).String(), Last: id(3).String()}))
	for _, l := range []*servov1.Lease{held, pending, foreign} {
		require.Nil(t, b.report(t, complete(l, nil))[0].GetError(), "it is held")
	}
	for _, l := range unheard {
		require.Equal(t, "STALE", b.report(t, complete(l, nil))[0].GetError().GetCode())
	}
	b.admit(t)
	require.Len(t, claim(uuid.New(), "w3", true, 2), 2, "another worker gets them at once")

	other := uuid.New()
	for _, settled := range []*servov1.ClaimRange{
		{First: id(1).String(), Last: other.String()}, {First: id(3).String(), Last: id(1).String()}, {First: "x", Last: id(1).String()}, {},
	} {
		require.Equal(t, codes.InvalidArgument, status.Code(beat(settled)), "%v", settled)
	}
}
