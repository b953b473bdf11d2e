package verify_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/proof/verify"
	"go.arco.dev/servo/internal/store"
)

func (w *world) repair(t testing.TB, key store.RunKey) verify.Report {
	t.Helper()
	return value(verify.Repair(t.Context(), w.db.Store, key.Tenant, key.Run))(t)
}

func (w *world) state(t testing.TB, key store.RunKey) run.State {
	t.Helper()
	r, err := w.db.GetRun(t.Context(), key)
	require.NoError(t, err)
	return r.State
}

func TestRepair(t *testing.T) {
	t.Parallel()

	t.Run("correct rows stay unchanged, including volatile columns", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		key := w.trigger(t, "diamond")
		w.one(t, "diamond")
		// every row remembers the transaction that wrote it
		const written = `SELECT sum(x::text::bigint) FROM (SELECT xmin AS x FROM servo.runs UNION ALL SELECT xmin FROM servo.tasks
			UNION ALL SELECT xmin FROM servo.edges UNION ALL SELECT xmin FROM servo.waiting UNION ALL SELECT xmin FROM servo.leases) AS r`
		before := w.db.Count(t, written)
		report := w.repair(t, key)
		require.True(t, report.Clean(), text(report))
		require.Equal(t, before, w.db.Count(t, written))
	})

	t.Run("the report lists the repaired rows, and the second repair finds nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		key := w.trigger(t, "diamond")
		w.db.Exec(t, `DELETE FROM servo.waiting; UPDATE servo.ready_q SET cursor = 'x'`)
		events := w.db.Count(t, `SELECT count(*) FROM servo.run_events`)
		report := w.repair(t, key)
		requireFound(t, report, verify.Missing, "waiting", "")
		requireFound(t, report, verify.Differs, "ready_q", "cursor")
		require.True(t, func() bool { again := w.repair(t, key); return again.Clean() }())
		require.Equal(t, events, w.db.Count(t, `SELECT count(*) FROM servo.run_events`), "no event is added")
		requireClean(t, w.db)
	})

	t.Run("a rebuilt run continues to its end", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		key := w.trigger(t, "fan")
		scan := w.one(t, "scan")
		w.report(t, scan, engine.FanOut{Barrier: true, Tasks: []engine.FanOutTask{{Asset: "f/fetch", Partition: "1"}, {Asset: "f/fetch", Partition: "2"}}})
		fetch := w.one(t, "fetch")
		for _, table := range []string{"runs", "tasks", "edges", "waiting", "ready_q", "pool_q", "leases"} {
			w.db.Exec(t, `DELETE FROM servo.`+table)
		}
		w.repair(t, key)
		requireClean(t, w.db)

		w.report(t, scan, engine.Complete{}) // its token still holds
		w.report(t, fetch, engine.Complete{})
		w.report(t, w.one(t, "fetch"), engine.Complete{})
		w.report(t, w.one(t, "join"), engine.Complete{})
		require.Equal(t, run.RunSucceeded, w.state(t, key))
		requireClean(t, w.db)
	})

	t.Run("a lease that was rebuilt is taken over by the reaper", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		key := w.trigger(t, "single")
		require.Len(t, w.claim(t, "single", 1, false), 1)
		w.db.Exec(t, `DELETE FROM servo.leases`)
		w.repair(t, key)
		require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.leases WHERE expires_at = servo.clock() + interval '5 minutes' AND due_at = expires_at`))
		w.later(t, 6*time.Minute)
		require.Equal(t, 1, value(w.Expire(t.Context(), 10))(t))
		require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.pool_q`))
		requireClean(t, w.db)
	})

	t.Run("a missing run, and one of another tenant, is refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		other := w.account(t, "other")
		key := w.trigger(t, "diamond")
		_, err := verify.Repair(t.Context(), w.db.Store, w.tenant, id.New[id.Run](id.NewMinter(w.now)))
		require.True(t, fault.Is(err, fault.NotFound), err)
		_, err = verify.Repair(t.Context(), w.db.Store, other, key.Run)
		require.True(t, fault.Is(err, fault.Conflict), err)
		requireClean(t, w.db)
	})

	t.Run("runs are repaired while the engine works on them, and nothing is lost", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		var keys []store.RunKey
		for range 20 {
			keys = append(keys, w.trigger(t, "diamond"))
		}
		var repairs sync.WaitGroup
		worked := make(chan struct{})
		for i := range 2 {
			repairs.Go(func() {
				for n := i; ; n++ {
					select {
					case <-worked:
						return
					default:
					}
					key := keys[n%len(keys)]
					report, err := verify.Repair(t.Context(), w.db.Store, key.Tenant, key.Run)
					if err != nil || !report.Clean() {
						t.Errorf("repair under load: %v\n%s", err, text(report))
						return
					}
				}
			})
		}
		for {
			leases := w.claim(t, "diamond", 7, true)
			if len(leases) == 0 && w.db.Count(t, `SELECT count(*) FROM servo.runs WHERE state < 10`) == 0 {
				break // a repair may hold what a claim skips
			}
			for _, l := range leases {
				w.report(t, l, engine.Complete{})
			}
		}
		close(worked)
		repairs.Wait()
		require.Equal(t, len(keys), w.db.Count(t, `SELECT count(*) FROM servo.runs WHERE state = 10`))
		requireClean(t, w.db)
	})
}
