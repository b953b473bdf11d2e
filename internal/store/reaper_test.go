package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

func TestDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	states := []run.TaskState{run.Dispatched, run.Running, run.Running, run.RetryWait, run.RetryWait}
	g := w.newRun(t, w.account(t, "acme"), states, make([][]int32, len(states))...)
	early := w.now.Add(-time.Second)

	t.Run("leases are due at the earlier of expiry and deadline", func(t *testing.T) {
		t.Parallel()
		at := func(tx *Tx, now time.Time, most int) []store.TaskKey {
			return must(tx.DueLeases(t.Context(), now, most))(t)
		}
		w.engine(t, func(tx *Tx) {
			require.Empty(t, at(tx, w.now.Add(time.Minute-time.Second), 10))
			require.ElementsMatch(t, g.keys(0, 1, 2), at(tx, w.now.Add(time.Minute), 10))
		})
		renewed, slow := g.tasks[0], g.tasks[1]
		renewed.ExpiresAt = w.now.Add(time.Hour)
		slow.Deadline = early
		w.apply(t, store.Changes{Reschedule: []run.Task{renewed, slow}})
		w.engine(t, func(tx *Tx) {
			require.Equal(t, g.keys(1), at(tx, w.now, 10), "past its deadline")
			require.Equal(t, g.keys(1, 2), at(tx, w.now.Add(time.Minute), 10), "the soonest first")
			require.Equal(t, g.keys(1), at(tx, w.now.Add(time.Minute), 1))
			require.Equal(t, g.keys(1, 2, 0), at(tx, w.now.Add(time.Hour), 10))
			require.Equal(t, renewed.ExpiresAt, must(tx.LockLeases(t.Context(), g.keys(0)))(t)[0].ExpiresAt)
		})
	})

	t.Run("retries are locked when they are due, and passed over when another works on them", func(t *testing.T) {
		t.Parallel()
		due := w.now.Add(time.Second)
		w.engine(t, func(tx *Tx) {
			require.Empty(t, must(tx.DueRetries(t.Context(), w.now, 10))(t))
			require.ElementsMatch(t, g.keys(3, 4), must(tx.DueRetries(t.Context(), due, 10))(t))
			require.Len(t, must(tx.DueRetries(t.Context(), due, 1))(t), 1)
			require.Empty(t, must(tx.LockRetries(t.Context(), g.keys(3, 4), w.now))(t), "looked at again under the lock")
		})
		first := w.hold(t, func(ctx context.Context, tx *Tx) error {
			require.Equal(t, g.tasks[3:4], must(tx.LockRetries(ctx, g.keys(3), due))(t))
			return nil
		})
		w.engine(t, func(tx *Tx) { require.Equal(t, g.tasks[4:], must(tx.LockRetries(t.Context(), g.keys(3, 4), due))(t)) })
		first.commit(t)
	})
}

func TestOverdue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newRun(t, w.account(t, "acme"), []run.TaskState{run.Running, run.RetryWait}, nil, nil)
	w.SetClock(t, w.now)
	require.Equal(t, store.Overdue{}, must(w.Overdue(t.Context()))(t))
	for _, c := range []struct {
		sql  string
		want store.Overdue
	}{
		{`UPDATE servo.leases SET due_at = servo.clock()`, store.Overdue{Leases: true}},
		{`UPDATE servo.retry_q SET due_at = servo.clock()`, store.Overdue{Leases: true, Retries: true}},
		{`UPDATE servo.live_runs SET due_at = servo.clock()`, store.Overdue{Leases: true, Retries: true, Runs: true}},
	} {
		w.Exec(t, c.sql)
		require.Equal(t, c.want, must(w.Overdue(t.Context()))(t), c.sql)
	}
	w.apply(t, store.Changes{OpenCones: []store.RunKey{g.key()}})
	require.True(t, must(w.Overdue(t.Context()))(t).Cones)
}
