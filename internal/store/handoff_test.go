package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

func tasksOf(ready []store.ReadyTask) []run.Task {
	tasks := make([]run.Task, len(ready))
	for i, t := range ready {
		tasks[i] = t.Task
	}
	return tasks
}

func TestHandoff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	g := w.newRun(t, a, []run.TaskState{run.Pending, run.Queued, run.Running}, nil, nil, nil)
	w.settle(t, a, store.Settlement{ShareKey: store.ShareKey{Pool: "default"}, Asset: "asset", Left: 1, Ended: 1, Seconds: 3})
	must(w.TakeDuty(t.Context(), "admission", "one", time.Minute))(t)
	waits, holds := id.New[id.Claim](id.NewMinter(w.now)), g.tasks[2].Claim
	made := g.tasks[0]
	made.ID, made.Asset = id.New[id.Task](id.NewMinter(w.now)), "new"
	ask := func(ctx context.Context, tx *Tx) store.Handoff {
		return must(tx.BeginHandoff(ctx, store.HandoffQuestion{
			Duty: "admission", Tasks: []run.Task{g.tasks[0], made}, Claims: []id.Claim{waits, holds}, Alive: time.Minute, MostQueued: 100,
		}))(t)
	}

	w.engine(t, func(tx *Tx) {
		found := ask(t.Context(), tx)
		require.True(t, found.Held)
		require.True(t, found.Dispatches)
		require.Equal(t, []bool{true, false}, found.Claims, "a claim that holds leases is a repeat")
		require.Len(t, found.Shares, 1)
		require.Equal(t, 1, found.Shares[0].PoolQueued)
		require.False(t, found.Shares[0].Backlog)
		require.InDelta(t, 3, found.Tasks[0].Seconds, 0)
		require.Negative(t, found.Tasks[1].Seconds)
		require.Greater(t, found.Tasks[1].Token, found.Tasks[0].Token)

		w.engine(t, func(other *Tx) {
			require.Equal(t, store.Handoff{}, ask(t.Context(), other), "another server admits, and no call waits for that")
		})
	})
	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.LockClaims(t.Context(), []id.Claim{waits}))
		w.engine(t, func(other *Tx) {
			require.Equal(t, []bool{false, false}, ask(t.Context(), other).Claims, "the claim is looking for itself")
		})
	})
	w.Exec(t, `INSERT INTO servo.switches (name, off, version, changed_at) VALUES ('dispatch', true, 1, servo.clock())`)
	w.newRun(t, a, []run.TaskState{run.Ready}, nil)
	w.engine(t, func(tx *Tx) {
		found := ask(t.Context(), tx)
		require.False(t, found.Dispatches)
		require.True(t, found.Shares[0].Backlog)
	})
}
