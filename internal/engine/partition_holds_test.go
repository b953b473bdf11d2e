package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

const heldText = `
version: 1
assets:
  - {key: h/day, go: {}, retry: {max_attempts: 2, initial_delay: 1m}, partitions: [{dimension: date, kind: daily, start: "2020-01-01"}]}
  - {key: h/month, go: {}, partitions: [{dimension: date, kind: daily, start: "2020-01-01"}], partitions_per_task: 31}
pipelines:
  - {name: day, overlap: allow, select: [h/day]}
  - {name: month, overlap: allow, select: [h/month]}
`

// triggerAt triggers a run of one day with a priority.
func (b *bundle) triggerAt(t testing.TB, pipeline string, priority int16, partitions ...string) store.RunKey {
	t.Helper()
	triggered, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: pipeline, Partitions: partitions, Priority: priority, Meta: engineMeta})
	require.NoError(t, err)
	return store.RunKey{Tenant: b.tenant, Run: triggered.Run}
}

// admitTwice makes a second round: in the first one, tasks of the round come before others with the same
// partitions; in the second one, these wait for their holds.
func (b *bundle) admitTwice(t testing.TB) {
	t.Helper()
	b.admit(t)
	b.admit(t)
}

func (b *bundle) holds(t testing.TB) [2]int {
	t.Helper()
	return [2]int{b.db.Count(t, `SELECT count(*) FROM servo.partition_holds`), b.db.Count(t, `SELECT count(*) FROM servo.partition_waits`)}
}

func TestPartitionHolds(t *testing.T) {
	t.Parallel()
	for name, handoff := range map[string]bool{"by the loop": false, "by claims": true} {
		t.Run("two runs of one day are executed one after the other, admitted "+name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, servotest.DB(t), engine.Config{Handoff: handoff})
			b.deploy(t, heldText)
			first := b.triggerPartitions(t, "day", "date=2020-01-01..2020-01-03")
			second := b.triggerPartitions(t, "day", "date=2020-01-02")
			third := b.triggerPartitions(t, "day", "date=2020-01-04")
			b.admitTwice(t)
			leases := b.claim(t, 10, true)
			require.Len(t, leases, 4, "all but the second run's")
			require.Equal(t, [2]int{4, 1}, b.holds(t))
			why, err := b.WhyTask(t.Context(), store.TaskKey{Tenant: b.tenant, Run: second.Run, Task: b.tasks(t, second)[0].ID})
			require.NoError(t, err)
			require.Len(t, why.Blockers, 1)
			require.Equal(t, engine.BlockedByPartition, why.Blockers[0].Code)
			require.Contains(t, why.Blockers[0].Message, `partition {"date":"2020-01-02"} of asset h/day is held by run `+first.Run.String())
			verifytest.Clean(t, b.db)
			for _, l := range leases {
				if l.Partition != `{"date":"2020-01-02"}` {
					b.report(t, l, engine.Complete{})
				}
			}
			b.admit(t)
			require.Empty(t, b.claim(t, 10, true))
			for _, l := range leases {
				if l.Partition == `{"date":"2020-01-02"}` {
					b.report(t, l, engine.Complete{})
				}
			}
			require.Zero(t, b.holds(t)[1])
			b.drain(t, succeed)
			for _, key := range []store.RunKey{first, second, third} {
				b.requireStates(t, key, run.RunSucceeded)
			}
			require.Zero(t, b.holds(t))
			verifytest.Clean(t, b.db)
		})
	}

	t.Run("a range holds all its partitions, of one asset", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, heldText)
		b.triggerPartitions(t, "month", "date=2020-01-10..2020-01-20")
		b.triggerPartitions(t, "month", "date=2020-01-20..2020-01-25")
		b.triggerPartitions(t, "month", "date=2020-01-21..2020-01-22")
		b.triggerPartitions(t, "day", "date=2020-01-15")
		b.admitTwice(t)
		leases := b.claim(t, 10, true)
		require.Len(t, leases, 3)
		require.Equal(t, [2]int{3, 1}, b.holds(t), "the second range waits for the first")
		for _, l := range leases[:1] {
			b.report(t, l, engine.Complete{})
		}
		b.admit(t)
		require.Empty(t, b.claim(t, 10, true))
		require.Equal(t, [2]int{2, 1}, b.holds(t), "and then for the third")
		b.report(t, leases[1], engine.Complete{})
		b.report(t, leases[2], engine.Complete{})
		b.drain(t, succeed)
		require.Zero(t, b.holds(t))
		verifytest.Clean(t, b.db)
	})

	t.Run("a task keeps its partitions while it waits for its retry, and after a yield", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		noon := time.Now().UTC().Truncate(time.Second)
		b.db.SetClock(t, noon)
		b.deploy(t, heldText)
		b.triggerPartitions(t, "day", "date=2020-01-01")
		b.triggerPartitions(t, "day", "date=2020-01-01")
		b.admitTwice(t)
		leases := b.claim(t, 10, true)
		require.Len(t, leases, 1)
		b.report(t, leases[0], engine.Yield{Cursor: new(string)})
		require.Equal(t, [2]int{1, 1}, b.holds(t))
		verifytest.Clean(t, b.db)
		again := b.one(t)
		require.Equal(t, leases[0].Task, again.Task)
		b.report(t, again, engine.Fail{Failure: run.Failure{Code: "NETWORK_ERROR"}})
		b.admit(t)
		require.Empty(t, b.claim(t, 10, true))
		verifytest.Clean(t, b.db)
		b.db.SetClock(t, noon.Add(time.Hour))
		_, err := b.RetryDue(t.Context(), 10)
		require.NoError(t, err)
		last := b.one(t)
		require.Equal(t, leases[0].Task, last.Task)
		b.report(t, last, fatal)
		require.NotEqual(t, leases[0].Task, b.one(t).Task)
		verifytest.Clean(t, b.db)
	})

	t.Run("a cancel releases what its tasks hold, and ends their waits", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, heldText)
		first := b.triggerPartitions(t, "day", "date=2020-01-01")
		second := b.triggerPartitions(t, "day", "date=2020-01-01")
		third := b.triggerPartitions(t, "day", "date=2020-01-01")
		b.admitTwice(t)
		require.Equal(t, [2]int{1, 2}, b.holds(t))
		b.cancel(t, second)
		require.Equal(t, [2]int{1, 1}, b.holds(t))
		b.cancel(t, first)
		require.Equal(t, [2]int{0, 0}, b.holds(t))
		b.drain(t, succeed)
		b.requireStates(t, third, run.RunSucceeded)
		verifytest.Clean(t, b.db)
	})

	t.Run("scheduled work gets a partition before a backfill, whatever came first", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, heldText)
		b.triggerAt(t, "day", 1, "date=2020-01-01")
		scheduled := b.triggerAt(t, "day", 5, "date=2020-01-01")
		require.Equal(t, scheduled.Run, b.one(t).Run)
		verifytest.Clean(t, b.db)
	})

	t.Run("verify finds wrong holds, and a repair writes them again", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, heldText)
		key := b.triggerPartitions(t, "day", "date=2020-01-01..2020-01-02")
		waiting := b.triggerPartitions(t, "day", "date=2020-01-02")
		b.admitTwice(t)
		for _, broken := range []string{
			`DELETE FROM servo.partition_holds`,
			`UPDATE servo.partition_holds SET last = last + 1`,
			`UPDATE servo.partition_holds SET task_id = gen_random_uuid()`,
		} {
			b.db.Exec(t, broken)
			verifytest.Repair(t, b.db, key, waiting)
			verifytest.Clean(t, b.db)
		}
		b.drain(t, succeed)
		b.requireStates(t, waiting, run.RunSucceeded)
		verifytest.Clean(t, b.db)
	})
}

// TestPartitionsHaveOneWriter has runs of overlapping days and ranges executed by the workers of two servers,
// with yields, failures, retries and cancels: no two tasks of one asset write a partition at the same time.
func TestPartitionsHaveOneWriter(t *testing.T) {
	t.Parallel()
	const runs, workers = 60, 6
	b := setupInline(t)
	b.deploy(t, heldText)
	second := engine.New(b.db.Store, engine.Config{Handoff: true}, nil)
	t.Cleanup(second.Stop)
	var (
		keys    []store.RunKey
		mu      sync.Mutex
		writers = map[string]store.TaskKey{} // by asset and day: from the first lease to the end
		broken  atomic.Pointer[string]
		done    atomic.Bool
	)
	for i := range runs {
		at := rand.IntN(8) + 1
		if i%3 == 0 {
			keys = append(keys, b.triggerPartitions(t, "month", fmt.Sprintf("date=2020-01-%02d..2020-01-%02d", at, at+rand.IntN(4))))
			continue
		}
		keys = append(keys, b.triggerAt(t, "day", int16(1+i%2), fmt.Sprintf("date=2020-01-%02d", at)))
	}
	begin := func(l engine.Lease) {
		mu.Lock()
		defer mu.Unlock()
		for _, p := range l.Partitions {
			if other, held := writers[l.Asset+p]; held && other != l.TaskKey {
				text := fmt.Sprintf("%s %s is written by %s and %s", l.Asset, p, other.Task, l.Task)
				broken.Store(&text)
			}
			writers[l.Asset+p] = l.TaskKey
		}
	}
	end := func(key store.TaskKey) {
		mu.Lock()
		defer mu.Unlock()
		for name, writer := range writers {
			if writer == key {
				delete(writers, name)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a lost wake-up ends the test
	defer cancel()
	var group sync.WaitGroup
	for i := range workers {
		server := []*engine.Engine{b.Engine, second}[i%2]
		group.Go(func() {
			for !done.Load() && broken.Load() == nil && ctx.Err() == nil {
				leases, err := server.Claim(ctx, engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 2, Start: true, Wait: 20 * time.Millisecond})
				if err != nil {
					continue
				}
				for _, l := range leases {
					begin(l)
					var act engine.Action = engine.Complete{}
					switch rand.IntN(4) {
					case 0:
						cursor := fmt.Sprint(l.Attempt)
						act = engine.Yield{Cursor: &cursor}
					case 1:
						act = fatal
					}
					if _, yields := act.(engine.Yield); !yields {
						end(l.TaskKey) // before the report: the next writer may start with its commit
					}
					_, _ = server.ReportOne(ctx, report(l, act))
				}
			}
		})
	}
	group.Go(func() {
		for i := 0; ctx.Err() == nil && broken.Load() == nil; i++ {
			_, _, _ = b.Admit(ctx, b.duty, 1000)
			if i == 5 {
				_, _ = second.CancelRun(ctx, engine.Cancel{Tenant: b.tenant, Run: keys[len(keys)-1].Run, Reason: "enough"})
			}
			if b.db.Count(t, `SELECT count(*) FROM servo.live_runs`) == 0 {
				done.Store(true)
				return
			}
		}
	})
	group.Wait()
	require.Nil(t, broken.Load())
	require.True(t, done.Load())
	require.Zero(t, b.holds(t))
	verifytest.Clean(t, b.db)
}
