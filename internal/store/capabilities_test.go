package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

func TestCapabilitySets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := []string{"exec", `go:a "b"`, "go:c,d"}
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	w.SetClock(t, noon)
	must(w.RenewPresence(t.Context(), store.Presence{Name: "a", StartedAt: noon, Workers: []store.SeenWorker{
		{Name: "w1", Pool: "default", Slots: 4, Digest: "one", Capabilities: list},
		{Name: "w2", Pool: "default", Slots: 4, Digest: "one", Capabilities: list},
		{Name: "w3", Pool: "big", Slots: 4},
	}}))(t)
	w.engine(t, func(tx *Tx) {
		require.Equal(t, map[string][]string{"one": list}, must(tx.CapabilitySets(t.Context(), []string{"one", "two"}))(t))
		require.Equal(t, map[string][]string{"default": {"one"}, "big": {store.Everything}},
			must(tx.LivePoolSets(t.Context(), []string{"default", "big", "empty"}, time.Minute))(t))
	})
	w.SetClock(t, noon.Add(11*time.Minute))
	_, _, err := w.ForgetPresence(t.Context())
	require.NoError(t, err)
	require.Equal(t, 0, w.Count(t, "SELECT count(*) FROM servo.capability_sets"), "no worker has it any more")
}

func TestHoldLacking(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	w.newRun(t, a, []run.TaskState{run.Ready, run.Ready, run.Ready, run.Queued, run.Queued}, nil, nil, nil, nil, nil)
	w.Exec(t, `UPDATE servo.ready_q SET needs = 'go:x' WHERE task_id <> (SELECT min(task_id::text)::uuid FROM servo.ready_q)`)
	w.Exec(t, `UPDATE servo.pool_q SET needs = 'go:x' WHERE task_id = (SELECT min(task_id::text)::uuid FROM servo.pool_q)`)
	w.Exec(t, `INSERT INTO servo.capability_sets VALUES ('plain', '{exec}', servo.clock()), ('x', '{go:x}', servo.clock())`)
	w.Exec(t, `INSERT INTO servo.workers (name, pool, slots, capabilities, first_seen, seen_at) VALUES ('plain', 'default', 1, 'plain', servo.clock(), servo.clock())`)
	held := func() int { return w.Count(t, `SELECT count(*) FROM servo.ready_q WHERE held AND lacks_worker`) }
	release := func() (n int) {
		w.engine(t, func(tx *Tx) { n = must(tx.ReleaseCapable(t.Context(), "admission", time.Minute, 10))(t) })
		return n
	}
	without := func() (keys []store.TaskKey) {
		w.engine(t, func(tx *Tx) { keys = must(tx.QueuedWithoutWorker(t.Context(), time.Minute, 10))(t) })
		return keys
	}

	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.HoldLacking(t.Context(), []store.Lacking{{ShareKey: store.ShareKey{Tenant: a.tenant, Pool: "default"}, Needs: "go:x"}}, nil))
	})
	require.Equal(t, 2, held(), "all of the tenant that need it")
	require.Zero(t, release(), "no worker has it")
	require.Equal(t, []store.UnservedNeed{{Pool: "default", Needs: "go:x", Tasks: 2}}, must(w.UnservedNeeds(t.Context(), time.Minute))(t))
	require.Len(t, without(), 1)
	w.engine(t, func(tx *Tx) {
		queued := must(tx.LockQueued(t.Context(), without()))(t)
		require.Len(t, queued, 1)
		require.Equal(t, "go:x", queued[0].Needs)
	})

	w.Exec(t, `INSERT INTO servo.workers (name, pool, slots, capabilities, first_seen, seen_at) VALUES ('x', 'default', 1, 'x', servo.clock(), servo.clock())`)
	notes := w.Count(t, `SELECT count(*) FROM servo.settlements WHERE arrived AND pool = 'default'`)
	require.Equal(t, 2, release())
	require.Zero(t, held())
	require.Empty(t, without())
	require.Equal(t, notes+1, w.Count(t, `SELECT count(*) FROM servo.settlements WHERE arrived AND pool = 'default'`), "admission is notified")
}
