package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// promised is a config whose runs should begin within five minutes of their slot.
func promised(more config.Spec) config.Spec {
	more.SLAStartDelay, more.Labels = minutes(5), map[string]string{"provider": "aws"}
	return more
}

// look looks for runs that should have begun, and returns how many it looked at.
func (w *clockwork) look(t testing.TB) int {
	t.Helper()
	looked, err := w.RecordLateStarts(t.Context(), 100)
	require.NoError(t, err)
	return looked
}

// breaches are the breaches of all runs, the oldest first, as a person would write them.
func (w *clockwork) breaches(t testing.TB) []string {
	t.Helper()
	return w.db.Texts(t, `SELECT to_char(recorded_at AT TIME ZONE 'UTC', 'HH24:MI:SS') || ' ' || (data->>'sla') || ' ' || (data->>'limit') || ' by ' ||
		to_char((data->>'due')::timestamptz AT TIME ZONE 'UTC', 'HH24:MI:SS') FROM servo.run_events WHERE type = 'run.breached' ORDER BY position`)
}

// totals are the sums of the test's tenant, over all days and labels.
func (w *clockwork) totals(t testing.TB) (all store.Totals) {
	t.Helper()
	days, err := w.db.TenantTotals(t.Context(), w.tenant, midnight.AddDate(-1, 0, 0), midnight.AddDate(1, 0, 0))
	require.NoError(t, err)
	for _, d := range days {
		all.Add(d.Totals)
	}
	return all
}

// holdLeases makes a transaction that leases a task wait for a lock of the test.
const holdLeases = `
CREATE FUNCTION servo.hold_leases() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END';
CREATE TRIGGER hold_leases BEFORE INSERT ON servo.leases FOR EACH ROW EXECUTE FUNCTION servo.hold_leases()`

const bits = `SELECT coalesce(sum(breaches), 0) FROM servo.live_runs`

func TestLateRuns(t *testing.T) {
	t.Parallel()

	t.Run("a run that begins in time breaches nothing, however long it takes", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		c := w.save(t, "prompt", promised(config.Spec{Jitter: minutes(1)}))
		w.forward(t, 90*time.Second)
		w.fire(t)
		r, err := w.db.GetRun(t.Context(), store.RunKey{Tenant: w.tenant, Run: *w.get(t, "prompt").LastRun})
		require.NoError(t, err)
		require.Equal(t, r.Slot.Add(c.Delay()+5*time.Minute).Truncate(time.Microsecond), r.StartBy, "from the slot and its jitter")
		require.Equal(t, `{"provider":"aws"}`, r.Labels)
		w.now = r.StartBy
		w.forward(t, 0)
		lease := w.one(t) // in the last moment
		require.Zero(t, w.look(t))
		w.forward(t, time.Microsecond)
		require.Equal(t, 1, w.look(t))
		require.Zero(t, w.look(t), "once is enough")
		w.forward(t, time.Hour)
		w.report(t, lease, engine.Complete{})
		require.Empty(t, w.breaches(t))
		require.EqualValues(t, 0, w.totals(t).Breached)
		verifytest.Clean(t, w.db)
	})

	t.Run("a run that is made too late is late from the first", func(t *testing.T) {
		t.Parallel()
		for name, overlap := range map[string]config.Overlap{"with a lock": config.OverlapSkip, "without one": config.OverlapAllow} {
			w := newClockwork(t)
			w.save(t, "hourly", promised(config.Spec{Trigger: config.Trigger{Cron: "0 * * * *"}, Overlap: overlap}))
			w.forward(t, time.Hour+10*time.Minute) // no server ran
			w.fire(t)
			require.Equal(t, []string{"01:10:30 start_delay 300 by 01:05:00"}, w.breaches(t), name)
			require.Equal(t, 1, w.db.Count(t, bits), name)
			require.Zero(t, w.look(t), name)
			w.finish(t, engine.Complete{})
			require.Len(t, w.breaches(t), 1, name)
			all := w.totals(t)
			require.Equal(t, store.Totals{Ended: 1, Succeeded: 1, Started: 1, Breached: 1, Breaches: 1}, all, name)
			verifytest.Clean(t, w.db)
		}
	})

	t.Run("who looks finds what has not begun, and what began too late", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "waits", promised(config.Spec{Trigger: config.Trigger{Cron: "1 0 * * *"}}))
		w.save(t, "starts", promised(config.Spec{Trigger: config.Trigger{Cron: "1 0 * * *"}}))
		w.forward(t, time.Minute)
		require.Equal(t, 2, w.fire(t).Runs)
		w.admit(t)
		require.Len(t, w.claim(t, 2, false), 2, "claimed is not begun")
		w.forward(t, 5*time.Minute)
		_, err := w.ReportOne(t.Context(), engine.Report{
			TaskKey: w.leaseOf(t, "starts"), Action: engine.Start{},
			Token: int64(w.db.Count(t, `SELECT token FROM servo.leases WHERE run_id = $1`, w.get(t, "starts").LastRun.UUID)),
		})
		require.NoError(t, err)
		require.Equal(t, 2, w.look(t))
		require.Equal(t, []string{"00:06:30 start_delay 300 by 00:06:00", "00:06:30 start_delay 300 by 00:06:00"}, w.breaches(t))
		require.Equal(t, 2, w.db.Count(t, `SELECT count(*) FROM servo.live_runs WHERE breaches = 1 AND late_at IS NULL`))
		require.Equal(t, 2, w.db.Count(t, `SELECT count(*) FROM servo.runs WHERE late`))
		require.Zero(t, w.look(t))
		require.EqualValues(t, 2, w.totals(t).Breaches, "when they happen, not when the runs end")
		verifytest.Clean(t, w.db)
	})

	t.Run("a breach that was not checked before is found when the run ends", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "ends", promised(config.Spec{}))
		w.forward(t, time.Minute)
		w.fire(t)
		w.forward(t, 6*time.Minute)
		w.finish(t, engine.Complete{})
		require.Equal(t, []string{"00:07:30 start_delay 300 by 00:06:00"}, w.breaches(t))
		require.Equal(t, []string{"run.created", "run.breached", "run.ended"},
			w.db.Texts(t, `SELECT type FROM servo.run_events WHERE subject_id = run_id ORDER BY version`))
		require.EqualValues(t, 1, w.totals(t).Breached)
		verifytest.Clean(t, w.db)
	})

	t.Run("a run that waits for a quota is late, and so is one that is cancelled without having begun", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		quotas := tenant.NoLimits()
		quotas.MaxConcurrentRuns = 1
		_, version, err := w.db.GetQuotas(t.Context(), w.tenant)
		require.NoError(t, err)
		_, err = w.SetQuotas(t.Context(), w.tenant, quotas, version, engineMeta)
		require.NoError(t, err)
		w.trigger(t, "single") // takes the place, and was promised nothing
		w.save(t, "waits", promised(config.Spec{Overlap: config.OverlapAllow}))
		for range 2 {
			w.forward(t, time.Minute)
			require.Equal(t, 1, w.fire(t).Runs)
		}
		require.Equal(t, 2, w.db.Count(t, `SELECT count(*) FROM servo.live_runs WHERE pending AND late_at IS NOT NULL`))
		w.forward(t, 4*time.Minute) // 00:06:30
		require.Equal(t, 1, w.look(t))
		require.Equal(t, []string{"00:06:30 start_delay 300 by 00:06:00"}, w.breaches(t))
		w.forward(t, time.Minute)
		_, err = w.CancelRun(t.Context(), engine.Cancel{Tenant: w.tenant, Run: *w.get(t, "waits").LastRun, Meta: engineMeta})
		require.NoError(t, err)
		require.Equal(t, []string{"00:06:30 start_delay 300 by 00:06:00", "00:07:30 start_delay 300 by 00:07:00"}, w.breaches(t))
		all := w.totals(t)
		require.Equal(t, store.Totals{Ended: 1, Cancelled: 1, Breached: 1, Breaches: 2}, all)
		verifytest.Clean(t, w.db)
	})

	t.Run("a run by hand is promised a start from now on, a retry nothing", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		c := w.save(t, "by-hand", promised(config.Spec{Trigger: config.Trigger{Manual: true}}))
		first, err := w.TriggerConfig(t.Context(), w.tenant, c.ID, engine.Trigger{Meta: engineMeta})
		require.NoError(t, err)
		r, err := w.db.GetRun(t.Context(), store.RunKey{Tenant: w.tenant, Run: first.Run})
		require.NoError(t, err)
		require.Equal(t, w.now.Add(5*time.Minute), r.StartBy)
		w.finish(t, engine.Fail{Failure: run.Failure{Code: "DATA_CORRUPTION"}})
		again, err := w.RetryRun(t.Context(), engine.RetryRun{Tenant: w.tenant, Run: first.Run, Mode: engine.RetryFailed, Meta: engineMeta})
		require.NoError(t, err)
		r, err = w.db.GetRun(t.Context(), store.RunKey{Tenant: w.tenant, Run: again.Run})
		require.NoError(t, err)
		require.Zero(t, r.StartBy)
		require.Equal(t, `{"provider":"aws"}`, r.Labels, "it counts for its config")
		w.forward(t, time.Hour)
		require.Zero(t, w.look(t))
		verifytest.Clean(t, w.db)
	})
}

// leaseOf finds the task of the last run of a config.
func (w *clockwork) leaseOf(t testing.TB, name string) store.TaskKey {
	t.Helper()
	of := *w.get(t, name).LastRun
	task, err := id.Parse[id.Task]("task", w.db.Texts(t, `SELECT task_id::text FROM servo.leases WHERE run_id = $1`, of.UUID)[0])
	require.NoError(t, err)
	return store.TaskKey{Tenant: w.tenant, Run: of, Task: task}
}

func TestOverrun(t *testing.T) {
	t.Parallel()
	seen := &witness{}
	w := newClockworkOn(t, engine.Config{Observer: seen})
	w.save(t, "slow", promised(config.Spec{MaxExecution: minutes(10)}))
	w.forward(t, time.Minute)
	w.fire(t)
	lease := w.one(t)
	w.forward(t, 10*time.Minute)
	_, err := w.ExpireRuns(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, []string{"00:11:30 execution 600 by 00:11:30"}, w.breaches(t))
	require.Equal(t, 2, w.db.Count(t, bits))
	require.Contains(t, seen.notes, "breached execution")
	_, err = w.ExpireRuns(t.Context(), 100)
	require.NoError(t, err)
	w.report(t, lease, engine.Fail{Failure: run.Failure{Code: "CANCELLED"}})
	require.Len(t, w.breaches(t), 1, "once, and it began in time")
	require.Equal(t, store.Totals{Ended: 1, TimedOut: 1, Started: 1, Seconds: 600, Breached: 1, Breaches: 1}, w.totals(t))
	verifytest.Clean(t, w.db)
}

func TestConcurrentChecks(t *testing.T) {
	t.Parallel()

	t.Run("each run is breached once, with checks, starts and ends at the same time", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		for i := range 30 {
			w.save(t, fmt.Sprint("config-", i), promised(config.Spec{Trigger: config.Trigger{Cron: "1 0 * * *"}}))
		}
		w.forward(t, time.Minute)
		require.Equal(t, 30, w.fire(t).Runs)
		w.forward(t, 10*time.Minute)
		var all sync.WaitGroup
		failed := make(chan error, 100)
		for range 4 {
			all.Go(func() {
				for range 10 {
					if _, err := w.RecordLateStarts(t.Context(), 7); err != nil {
						failed <- err
					}
				}
			})
		}
		all.Go(func() {
			w.drain(t, func(engine.Lease) engine.Action { return engine.Complete{} })
		})
		all.Wait()
		close(failed)
		require.NoError(t, <-failed)
		w.drain(t, func(engine.Lease) engine.Action { return engine.Complete{} })
		require.Len(t, w.breaches(t), 30)
		require.EqualValues(t, 30, w.totals(t).Breached)
		verifytest.Clean(t, w.db)
	})

	t.Run("a claim that has read the clock in time is waited for", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "close", promised(config.Spec{}))
		w.forward(t, time.Minute)
		w.fire(t)
		w.admit(t)
		w.forward(t, 4*time.Minute+30*time.Second) // 00:06:00, the last moment
		w.db.Exec(t, holdLeases)
		held := w.db.Connect(t)
		_, err := held.Exec(t.Context(), `SELECT pg_advisory_lock(7)`)
		require.NoError(t, err)
		done := make(chan error, 2)
		go func() {
			_, err := w.Claim(context.WithoutCancel(t.Context()), engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Start: true})
			done <- err
		}()
		w.untilBlocked(t, 1)
		w.db.Exec(t, `UPDATE servo.test_clock SET now = now + interval '1 second'`)
		go func() {
			_, err := w.RecordLateStarts(context.WithoutCancel(t.Context()), 10)
			done <- err
		}()
		w.untilBlocked(t, 2)
		_, err = held.Exec(t.Context(), `SELECT pg_advisory_unlock(7)`)
		require.NoError(t, err)
		require.NoError(t, errors.Join(<-done, <-done))
		require.Empty(t, w.breaches(t))
		require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.live_runs WHERE late_at IS NOT NULL`))
		verifytest.Clean(t, w.db)
	})
}

// TestTotalsAddUp ends runs of several labels in every way, from several servers, while
// others merge and some merges are rolled back.
func TestTotalsAddUp(t *testing.T) {
	t.Parallel()
	w := newClockwork(t)
	const configs, rounds = 12, 3
	for i := range configs {
		spec := promised(config.Spec{Overlap: config.OverlapAllow})
		spec.Labels["provider"] = []string{"aws", "gcp", ""}[i%3]
		w.save(t, fmt.Sprint("config-", i), spec)
	}
	for range rounds {
		w.forward(t, time.Minute)
		require.Equal(t, configs, w.fire(t).Runs)
	}
	w.forward(t, 3*time.Minute) // the first are late, the last are not
	w.admit(t)
	var (
		busy, merging sync.WaitGroup
		done          = make(chan struct{})
	)
	for server := range 4 {
		e := engine.New(w.db.Store, engine.Config{}, nil)
		t.Cleanup(e.Stop)
		busy.Go(func() {
			for {
				leases, err := e.Claim(t.Context(), engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 2, Start: true})
				if err != nil || len(leases) == 0 {
					return
				}
				for i, l := range leases {
					var act engine.Action = engine.Complete{}
					if (server+i)%2 == 0 {
						act = engine.Fail{Failure: run.Failure{Code: "DATA_CORRUPTION"}}
					}
					if _, err := e.ReportOne(t.Context(), report(l, act)); err != nil {
						t.Errorf("report: %v", err)
					}
				}
			}
		})
		merging.Go(func() {
			killed := errors.New("killed")
			for round := 0; ; round++ {
				select {
				case <-done:
					return
				default:
				}
				err := w.db.Engine(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					if _, err := tx.MergeTotals(ctx, 3); err != nil || (server+round)%2 == 0 {
						return err
					}
					return killed
				})
				if err != nil && !errors.Is(err, killed) {
					t.Errorf("merge: %v", err)
				}
				days, err := w.db.TenantTotals(t.Context(), w.tenant, w.now, w.now)
				if err != nil {
					t.Errorf("read: %v", err)
				}
				var all store.Totals
				for _, d := range days {
					all.Add(d.Totals)
				}
				if all.Ended != all.Succeeded+all.Failed || all.Ended > configs*rounds {
					t.Errorf("read %+v", all)
				}
			}
		})
	}
	busy.Wait()
	close(done)
	merging.Wait()
	all := w.totals(t)
	require.EqualValues(t, configs*rounds, all.Ended)
	require.EqualValues(t, configs, all.Breached, "those of the first slot")
	verifytest.Clean(t, w.db)
	_, err := w.db.MergeTotals(t.Context(), 1000)
	require.NoError(t, err)
	require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.run_deltas`))
	require.Equal(t, all, w.totals(t))
	verifytest.Clean(t, w.db)
}
