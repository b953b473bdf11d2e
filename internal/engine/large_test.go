package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// manifestOf makes a manifest of numbered assets; upstream returns what each waits for, -1 for
// nothing.
func manifestOf(n int, upstream func(i int) int) string {
	var text strings.Builder
	text.WriteString("version: 1\nassets:\n")
	for i := range n {
		fmt.Fprintf(&text, "  - {key: n/%05d, go: {}", i)
		if up := upstream(i); up >= 0 {
			fmt.Fprintf(&text, ", upstream: [n/%05d]", up)
		}
		text.WriteString("}\n")
	}
	return text.String()
}

// star has one root that everything waits for; chain has each wait for the one before.
func star(i int) int {
	if i == 0 {
		return -1
	}
	return 0
}

func chain(i int) int { return i - 1 }

func alone(int) int { return -1 }

// all triggers everything that is deployed.
func (b *bundle) all(t testing.TB) store.RunKey {
	t.Helper()
	triggered, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant})
	require.NoError(t, err)
	return store.RunKey{Tenant: b.tenant, Run: triggered.Run}
}

// row is a run with its counters.
func (b *bundle) row(t testing.TB, key store.RunKey) run.Run {
	t.Helper()
	var rows []run.Run
	require.NoError(t, b.db.Engine(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		rows, err = tx.LockRuns(ctx, store.LockForMove, []store.RunKey{key})
		return err
	}))
	require.Len(t, rows, 1)
	return rows[0]
}

// skipAll does what the reaper does until nothing is left, and returns how many rounds it took.
func (b *bundle) skipAll(t testing.TB) int {
	t.Helper()
	for rounds := 0; ; rounds++ {
		more, err := b.SkipDoomed(t.Context(), 100)
		require.NoError(t, err)
		if !more {
			return rounds
		}
	}
}

var fatal = engine.Fail{Failure: run.Failure{Code: "DATA_CORRUPTION"}}

func TestLargeCone(t *testing.T) {
	t.Parallel()

	t.Run("2,500 tasks below a failed one are skipped in chunks", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, manifestOf(2501, star))
		key := b.all(t)
		lease := b.one(t)
		wake := b.FollowUp()
		require.Equal(t, run.Failed, b.report(t, lease, fatal).State)
		select {
		case <-wake:
		default:
			require.Fail(t, "no signal reported that there is more to do")
		}
		require.EqualValues(t, 1000, b.row(t, key).Skipped)
		require.Equal(t, run.RunRunning, b.row(t, key).State)
		verifytest.Clean(t, b.db)
		require.LessOrEqual(t, b.skipAll(t), 4)
		r := b.row(t, key)
		require.Equal(t, run.RunFailed, r.State)
		require.Equal(t, []int32{1, 2500, 0}, []int32{r.Failed, r.Skipped, r.Remaining})
		require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.cones`))
		verifytest.Clean(t, b.db)
	})

	t.Run("a cone whose follow-up was lost is found by another server", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, manifestOf(1500, star))
		key := b.all(t)
		b.report(t, b.one(t), fatal)
		b.Stop() // with it goes the signal
		other := engine.New(b.db.Store, engine.Config{}, nil)
		t.Cleanup(other.Stop)
		b.Engine = other
		b.skipAll(t)
		require.Equal(t, run.RunFailed, b.row(t, key).State)
		verifytest.Clean(t, b.db)
	})

	t.Run("a cancel between two chunks cancels the rest, and the cone is closed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, manifestOf(2501, star))
		key := b.all(t)
		b.report(t, b.one(t), fatal)
		require.Equal(t, engine.Cancelled{State: run.RunCancelled}, b.cancel(t, key))
		r := b.row(t, key)
		require.Equal(t, []int32{1, 1000, 1500}, []int32{r.Failed, r.Skipped, r.Cancelled})
		b.skipAll(t)
		require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.cones`))
		verifytest.Clean(t, b.db)
	})

	t.Run("a chain of 3,000 is skipped from its failed head to its end", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, manifestOf(3000, chain))
		key := b.all(t)
		b.report(t, b.one(t), fatal)
		b.skipAll(t)
		r := b.row(t, key)
		require.Equal(t, run.RunFailed, r.State)
		require.EqualValues(t, 2999, r.Skipped)
		verifytest.Clean(t, b.db)
	})

	t.Run("several large cones of one batch are all closed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, manifestOf(801, star))
		keys := []store.RunKey{b.all(t), b.all(t), b.all(t)}
		b.admit(t)
		leases := b.claim(t, 10, true)
		require.Len(t, leases, 3)
		_, errs := b.together(t, report(leases[0], fatal), report(leases[1], fatal), report(leases[2], fatal))
		requireNone(t, errs)
		b.skipAll(t)
		for _, key := range keys {
			require.Equal(t, run.RunFailed, b.row(t, key).State)
		}
		verifytest.Clean(t, b.db)
	})
}

func TestLargeRun(t *testing.T) {
	t.Parallel()

	t.Run("a plan of 10,000 tasks runs to its end", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, manifestOf(engine.MaxTasksPerRun, alone))
		key := b.all(t)
		require.EqualValues(t, engine.MaxTasksPerRun, b.row(t, key).Total)
		require.Equal(t, 10, b.db.Count(t, `SELECT count(*) FROM servo.run_events`), "no event carries more than 1,000 tasks")
		b.drain(t, succeed)
		r := b.row(t, key)
		require.Equal(t, run.RunSucceeded, r.State)
		require.EqualValues(t, engine.MaxTasksPerRun, r.Succeeded)
		verifytest.Clean(t, b.db)
	})

	t.Run("large triggers and cancels of one batch are split over transactions, and a lost commit of one repeats none", func(t *testing.T) {
		t.Parallel()
		db := servotest.DB(t)
		proxy := servotest.Proxy(t, db.URL)
		b := setupThrough(t, db, proxy)
		b.deploy(t, manifestOf(engine.MaxTasksPerRun, alone))
		triggers := make([]engine.Trigger, 4)
		for i := range triggers {
			triggers[i] = engine.Trigger{Tenant: b.tenant}
		}
		triggers[1].Pipeline = "nope"
		before := b.db.Stats().Transactions
		commits := 0
		proxy.OnCommit(func() servotest.Fate {
			if commits++; commits == 2 {
				return servotest.CutAfter
			}
			return servotest.Pass
		})
		triggered, errs := b.TriggerRuns(t.Context(), triggers)
		require.True(t, fault.Is(errs[1], fault.InvalidArgument))
		var cancels []engine.Cancel
		for i := range triggers {
			if i != 1 {
				require.NoError(t, errs[i])
				cancels = append(cancels, engine.Cancel{Tenant: b.tenant, Run: triggered[i].Run})
			}
		}
		require.Equal(t, 1, proxy.Cuts())
		require.EqualValues(t, 4, b.db.Stats().Transactions-before, "two runs and one, and then a look at both again")
		require.Equal(t, 3, db.Count(t, `SELECT count(*) FROM servo.runs`))
		require.Equal(t, 3*engine.MaxTasksPerRun, db.Count(t, `SELECT count(*) FROM servo.ready_q`))

		before = b.db.Stats().Transactions
		answers, errs := b.CancelRuns(t.Context(), append(cancels, cancels[0]))
		requireNone(t, errs)
		for i, answer := range answers {
			require.Equal(t, engine.Cancelled{State: run.RunCancelled, Repeat: i == 3}, answer)
		}
		require.EqualValues(t, 2, b.db.Stats().Transactions-before)
		require.Equal(t, 3*engine.MaxTasksPerRun, db.Count(t, `SELECT sum(cancelled) FROM servo.runs`))
	})
}

// pages are tasks to fan out.
func pages(from, n int) []engine.FanOutTask {
	tasks := make([]engine.FanOutTask, n)
	for i := range tasks {
		tasks[i] = engine.FanOutTask{Asset: "f/fetch", Partition: fmt.Sprint(from + i)}
	}
	return tasks
}

func TestLargeFanOut(t *testing.T) {
	t.Parallel()

	t.Run("the join of 10,000 pages waits for the last of them", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "fan")
		scan := b.one(t)
		require.Len(t, b.report(t, scan, engine.FanOut{Barrier: true, Tasks: pages(0, 10_000)}).Added, 10_000)
		b.report(t, scan, engine.Complete{})
		joined := false
		b.drain(t, func(l engine.Lease) engine.Action {
			if l.Asset == "f/join" {
				joined = true
				require.EqualValues(t, 10_001, b.row(t, key).Succeeded)
			}
			return engine.Complete{}
		})
		require.True(t, joined)
		require.Equal(t, run.RunSucceeded, b.row(t, key).State)
		verifytest.Clean(t, b.db)
	})

	t.Run("large fan-outs of one request are split over transactions", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "fan")
		scan := b.one(t)
		reports := make([]engine.Report, 3)
		for i := range reports {
			reports[i] = report(scan, engine.FanOut{Ordinal: int32(i), Tasks: pages(i*6000, 6000)}) //nolint:gosec // 0 to 2
		}
		before := b.db.Stats().Transactions
		_, errs := b.together(t, reports...)
		requireNone(t, errs)
		require.EqualValues(t, 2, b.db.Stats().Transactions-before)
		require.EqualValues(t, 18_002, b.row(t, key).Total)
		verifytest.Clean(t, b.db)
	})

	t.Run("a run grows to its limit and no further", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "fan")
		scan := b.one(t)
		// as if it had grown: 90,000 tasks that have succeeded
		b.db.Exec(t, `UPDATE servo.runs SET total = total + 89998, succeeded = 89998`)
		b.report(t, scan, engine.FanOut{Ordinal: 0, Tasks: pages(0, 9_999)})
		err := b.reportError(t, scan, engine.FanOut{Ordinal: 1, Tasks: pages(10_000, 2)})
		requireFault(t, err, fault.LimitExceeded)
		f, _ := fault.As(err)
		require.Equal(t, engine.MaxFanOut, f.Values["limit"])
		b.report(t, scan, engine.FanOut{Ordinal: 1, Tasks: pages(10_000, 1)})
		require.EqualValues(t, engine.MaxFanOut, b.row(t, key).Total)
	})
}
