package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// admitSome admits no more than most tasks.
func (b *bundle) admitSome(t testing.TB, most int) int {
	t.Helper()
	n, _, err := b.Admit(t.Context(), b.duty, most)
	require.NoError(t, err)
	return n
}

func TestRunChanged(t *testing.T) {
	t.Parallel()
	closed := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}

	t.Run("each step of a run is signalled once it can be read, to those who wait for that run", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key, other := b.trigger(t, "single"), b.trigger(t, "single")
		idle, stop := b.RunChanged(other.Run)
		defer stop()
		// the first run is the first in each queue
		var lease engine.Lease
		for _, step := range []func(){
			func() { require.Equal(t, 1, b.admitSome(t, 1)) },
			func() { lease = b.claim(t, 1, false)[0] },
			func() { b.report(t, lease, engine.Start{}) },
			func() { b.report(t, lease, engine.Complete{}) },
		} {
			changed, stop := b.RunChanged(key.Run)
			require.False(t, closed(changed))
			step()
			require.True(t, closed(changed))
			stop()
		}
		require.Equal(t, key.Run, lease.Run)
		b.requireStates(t, key, run.RunSucceeded)
		require.False(t, closed(idle))
	})

	t.Run("a cancel is signalled, and heartbeats are not", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "single")
		lease := b.one(t)
		changed, stop := b.RunChanged(key.Run)
		defer stop()
		_, err := b.Heartbeats(t.Context(), []engine.Heartbeat{{Key: lease.TaskKey, Token: lease.Token}})
		require.NoError(t, err)
		require.NoError(t, b.Logs(t.Context(), []engine.LogChunk{{TaskKey: lease.TaskKey, Token: lease.Token, Seq: 1, Text: "x"}})[0])
		require.False(t, closed(changed))
		_, err = b.CancelRun(t.Context(), engine.Cancel{Tenant: key.Tenant, Run: key.Run})
		require.NoError(t, err)
		require.True(t, closed(changed))
	})

	t.Run("every lane has its counts", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		lease := b.one(t)
		_, err := b.Heartbeats(t.Context(), []engine.Heartbeat{{Key: lease.TaskKey, Token: lease.Token}})
		require.NoError(t, err)
		_, err = b.Progress(t.Context(), []engine.Progress{{Key: lease.TaskKey, Token: lease.Token}})
		require.NoError(t, err)
		require.NoError(t, b.Logs(t.Context(), []engine.LogChunk{{TaskKey: lease.TaskKey, Token: lease.Token, Seq: 1, Text: "x"}})[0])
		require.NoError(t, b.Audit(t.Context(), store.Audit{Tenant: b.tenant, Actor: "jo", Method: "RunService/CancelRun", Request: []byte(`{}`)}))
		var names []string
		for _, lane := range b.Engine.Stats() {
			names = append(names, lane.Name)
			require.EqualValues(t, 1, lane.Commands, lane.Name)
		}
		require.Equal(t, []string{"control", "work", "heartbeats", "progress", "logs", "audits"}, names)
	})
}
