package engine_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// many are leases of that many runs of a pipeline with one task, started or not.
func (b *bundle) many(t testing.TB, n int, start bool) []engine.Lease {
	t.Helper()
	triggers := make([]engine.Trigger, n)
	for i := range triggers {
		triggers[i] = engine.Trigger{Tenant: b.tenant, Pipeline: "single"}
	}
	_, errs := b.TriggerRuns(t.Context(), triggers)
	for _, err := range errs {
		require.NoError(t, err)
	}
	var leases []engine.Lease
	for len(leases) < n {
		b.admit(t)
		claimed := b.claim(t, min(n-len(leases), engine.MaxClaim), start)
		require.NotEmpty(t, claimed)
		leases = append(leases, claimed...)
	}
	return leases
}

// together reports in one batch.
func (b *bundle) together(t testing.TB, reports ...engine.Report) ([]engine.Answer, []error) {
	t.Helper()
	answers, errs := b.Report(t.Context(), reports)
	require.Len(t, answers, len(reports))
	require.Len(t, errs, len(reports))
	return answers, errs
}

func requireNone(t testing.TB, errs []error) {
	t.Helper()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// otherTenant creates another tenant.
func (b *bundle) otherTenant(t testing.TB) id.Tenant {
	t.Helper()
	tenant, err := b.CreateTenant(t.Context(), "other", engineMeta)
	require.NoError(t, err)
	return tenant
}

func TestBatch(t *testing.T) {
	t.Parallel()

	t.Run("start, cursor and complete of one task in one batch happen in their order, in one transaction", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		lease := b.many(t, 1, false)[0]
		before := b.db.Stats()
		answers, errs := b.together(t, report(lease, engine.Start{}), report(lease, engine.Start{}),
			report(lease, engine.Advance{Next: "1"}), report(lease, engine.Complete{}), report(lease, engine.Complete{}))
		requireNone(t, errs)
		require.Equal(t, run.Running, answers[0].State)
		require.Equal(t, answers[0], answers[1], "a repeat")
		require.Equal(t, run.Succeeded, answers[3].State)
		require.True(t, answers[4].Repeat)
		require.EqualValues(t, 1, b.db.Stats().Transactions-before.Transactions)
		verifytest.Clean(t, b.db)
	})

	t.Run("a fan-out, its repeat and the end of its task can be in one batch", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "fan")
		scan := b.one(t)
		fan := engine.FanOut{Barrier: true, Tasks: []engine.FanOutTask{{"f/fetch", "0"}, {"f/fetch", "1"}}}
		second := fan
		second.Ordinal, second.Tasks = 1, []engine.FanOutTask{{"f/fetch", "2"}}
		answers, errs := b.together(t, report(scan, fan), report(scan, fan), report(scan, second), report(scan, engine.Complete{}))
		requireNone(t, errs)
		require.Len(t, answers[0].Added, 2)
		require.Equal(t, answers[0].Added, answers[1].Added)
		require.True(t, answers[1].Repeat)
		b.requireStates(t, key, run.RunRunning, "f/scan=SUCCEEDED", "f/join=PENDING", "f/fetch@0=READY", "f/fetch@2=READY")
		b.drain(t, succeed)
		b.requireStates(t, key, run.RunSucceeded)
		verifytest.Clean(t, b.db)
	})

	t.Run("a fan-out and the failure of its task in one batch leave the pages to run and skip the join", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "fan")
		scan := b.one(t)
		_, errs := b.together(t,
			report(scan, engine.FanOut{Barrier: true, Tasks: []engine.FanOutTask{{"f/fetch", "0"}}}),
			report(scan, engine.Fail{Failure: run.Failure{Code: "DATA_CORRUPTION"}}))
		requireNone(t, errs)
		b.requireStates(t, key, run.RunRunning, "f/scan=FAILED", "f/join=SKIPPED", "f/fetch@0=READY")
		b.drain(t, succeed)
		b.requireStates(t, key, run.RunFailed)
		verifytest.Clean(t, b.db)
	})

	t.Run("a report and its repeat in one batch get one answer", func(t *testing.T) {
		t.Parallel()
		for name, action := range map[string]engine.Action{
			"complete":            engine.Complete{Result: []byte(`1`)},
			"partial":             engine.Complete{Status: run.PartialSuccess},
			"fail for good":       engine.Fail{Failure: run.Failure{Code: "USER_CODE_EXCEPTION"}},
			"fail and be retried": engine.Fail{Failure: run.Failure{Code: "NETWORK_ERROR"}},
			"interrupted":         engine.Fail{Failure: run.Failure{Code: run.CodeInterrupted}},
			"yield":               engine.Yield{},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				lease := b.many(t, 1, true)[0]
				answers, errs := b.together(t, report(lease, action), report(lease, action))
				requireNone(t, errs)
				require.False(t, answers[0].Repeat)
				want := answers[0]
				want.Repeat = true
				require.Equal(t, want, answers[1])
				again, err := b.ReportOne(t.Context(), report(lease, action))
				require.NoError(t, err)
				require.Equal(t, want, again, "a later repeat too")
				verifytest.Clean(t, b.db)
			})
		}
	})

	t.Run("both upstreams of a join finish in one batch", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "diamond")
		b.report(t, b.one(t), engine.Complete{})
		b.admit(t)
		both := b.claim(t, 2, true)
		_, errs := b.together(t, report(both[0], engine.Complete{}), report(both[1], engine.Complete{}))
		requireNone(t, errs)
		b.requireStates(t, key, run.RunRunning, "d/d=READY")
		verifytest.Clean(t, b.db)
	})

	t.Run("one upstream of a join fails and the other succeeds in one batch", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "diamond")
		b.report(t, b.one(t), engine.Complete{})
		b.admit(t)
		both := b.claim(t, 2, true)
		_, errs := b.together(t, report(both[0], engine.Complete{}), report(both[1], engine.Fail{Failure: run.Failure{Code: "X"}}))
		requireNone(t, errs)
		b.requireStates(t, key, run.RunFailed, "d/d=SKIPPED")
		verifytest.Clean(t, b.db)
	})

	t.Run("a value that cannot be stored fails its command alone", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		leases := b.many(t, 500, true)
		reports := make([]engine.Report, len(leases))
		for i, l := range leases {
			reports[i] = report(l, engine.Complete{Result: []byte(fmt.Sprintf(`{"rows": %d}`, i))})
		}
		reports[123].Action = engine.Complete{Result: []byte(`{"text": "\u0000"}`)}
		answers, errs := b.together(t, reports...)
		for i, err := range errs {
			if i == 123 {
				requireFault(t, err, fault.InvalidArgument)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, run.Succeeded, answers[i].State)
		}
		require.Equal(t, 499, b.db.Count(t, `SELECT count(*) FROM servo.runs WHERE state = 10`))
		require.Equal(t, run.Succeeded, b.report(t, leases[123], engine.Complete{}).State, "its lease is as it was")
		verifytest.Clean(t, b.db)
	})

	t.Run("as many statements for 500 reports as for 50", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		cost := func(n int, action engine.Action) int64 {
			leases := b.many(t, n, true)
			reports := make([]engine.Report, n)
			for i, l := range leases {
				reports[i] = report(l, action)
			}
			before := b.db.Stats()
			_, errs := b.together(t, reports...)
			requireNone(t, errs)
			after := b.db.Stats()
			require.EqualValues(t, 1, after.Transactions-before.Transactions)
			return after.Statements - before.Statements
		}
		for _, action := range []engine.Action{
			engine.Complete{Result: []byte(`1`)}, engine.Fail{Failure: run.Failure{Code: "NETWORK_ERROR"}}, engine.Yield{}, engine.Advance{Next: "1"},
		} {
			require.Equal(t, cost(50, action), cost(500, action), "%T", action)
		}
	})
}

// requireFault checks that an error is written for the person who reads it.
func requireFault(t testing.TB, err error, code fault.Code) {
	t.Helper()
	f, ok := fault.As(err)
	require.True(t, ok, "no fault: %v", err)
	require.Equal(t, code, f.Code, f.Error())
	require.NotEmpty(t, f.Message)
	require.NotEmpty(t, f.Violation.Field, f.Error())
	require.NotEmpty(t, f.Violation.Remedy, f.Error())
}

func TestOtherTenantsInBatch(t *testing.T) {
	t.Parallel()

	t.Run("another tenant's report is stale, also beside the right one in one batch", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		other := b.otherTenant(t)
		lease := b.many(t, 1, true)[0]
		foreign := report(lease, engine.Complete{Result: []byte(`"theirs"`)})
		foreign.Tenant = other
		_, err := b.ReportOne(t.Context(), foreign)
		requireFault(t, err, fault.Stale)
		unknown := foreign
		unknown.Task = id.Of[id.Task](newClaim().UUID)
		_, unheard := b.ReportOne(t.Context(), unknown)
		require.Equal(t, fault.CodeOf(unheard), fault.CodeOf(err))
		b.requireStates(t, store.RunKey{Tenant: lease.Tenant, Run: lease.Run}, run.RunRunning, "s/one=RUNNING")

		answers, errs := b.together(t, foreign, report(lease, engine.Complete{}), foreign)
		requireFault(t, errs[0], fault.Stale)
		require.NoError(t, errs[1])
		requireFault(t, errs[2], fault.Stale)
		require.Zero(t, answers[2])
		answers, errs = b.together(t, report(lease, engine.Complete{}), foreign)
		require.True(t, answers[0].Repeat)
		requireFault(t, errs[1], fault.Stale)
		verifytest.Clean(t, b.db)
	})

	t.Run("a report that names another run is stale and does not affect its batch", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		leases := b.many(t, 2, true)
		astray := report(leases[0], engine.Complete{})
		astray.Run = leases[1].Run
		_, errs := b.together(t, report(leases[0], engine.Advance{Next: "1"}), astray, report(leases[1], engine.Complete{}))
		require.NoError(t, errs[0])
		requireFault(t, errs[1], fault.Stale)
		require.NoError(t, errs[2])
		b.report(t, leases[0], engine.Complete{})
		verifytest.Clean(t, b.db)
	})

	t.Run("another tenant's heartbeat, or one with another token, keeps nothing alive and holds no right one back", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		other := b.otherTenant(t)
		lease := b.many(t, 1, true)[0]
		beat := engine.Heartbeat{Key: lease.TaskKey, Token: lease.Token}
		foreign, forged := beat, beat
		foreign.Key.Tenant = other
		forged.Token = math.MaxInt64
		answers, err := b.Heartbeats(t.Context(), []engine.Heartbeat{foreign, beat, forged})
		require.NoError(t, err)
		require.Equal(t, []engine.Pulse{{}, {Alive: true}, {}}, answers)
		foreign.Token = math.MaxInt64
		answers, err = b.Heartbeats(t.Context(), []engine.Heartbeat{beat, foreign, beat})
		require.NoError(t, err)
		require.Equal(t, []engine.Pulse{{Alive: true}, {}, {Alive: true}}, answers)
	})

	t.Run("another tenant cannot cancel a run, not even beside its owner", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		other := b.otherTenant(t)
		key := b.trigger(t, "single")
		_, errs := b.CancelRuns(t.Context(), []engine.Cancel{
			{Tenant: other, Run: key.Run, Reason: "theirs"}, {Tenant: key.Tenant, Run: key.Run, Reason: "ours"},
		})
		requireFault(t, errs[0], fault.NotFound)
		require.NoError(t, errs[1])
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.runs WHERE cancel_reason = 'ours'`))
	})
}

func TestUnreadableDeployment(t *testing.T) {
	t.Parallel()

	t.Run("a deployment that cannot be read fails its own triggers and fan-outs, and holds up nothing else", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		owner := b.tenant
		key := b.trigger(t, "fan")
		scan := b.one(t)
		b.trigger(t, "single")
		b.tenant = b.otherTenant(t)
		b.deploy(t, manifestText+"  - {name: other, overlap: allow, select: [s/one]}\n")
		b.trigger(t, "single")
		b.db.Exec(t, fmt.Sprintf(`UPDATE servo.manifests SET chunk = '{"version": 99}', size = 15 WHERE digest = (SELECT digest FROM servo.deployments WHERE tenant_id = '%s')`, owner))
		fresh := engine.New(b.db.Store, engine.Config{}, nil) // has not read it before
		t.Cleanup(fresh.Stop)
		b.Engine = fresh

		_, errs := b.TriggerRuns(t.Context(), []engine.Trigger{{Tenant: owner, Pipeline: "single"}, {Tenant: b.tenant, Pipeline: "single"}})
		require.Equal(t, fault.Internal, fault.CodeOf(errs[0]))
		require.NoError(t, errs[1])
		b.admit(t)
		require.Len(t, b.claim(t, 10, true), 3)
		err := b.reportError(t, scan, engine.FanOut{Tasks: []engine.FanOutTask{{"f/fetch", "0"}}})
		require.Equal(t, fault.Internal, fault.CodeOf(err))
		require.Equal(t, run.RetryWait, b.report(t, scan, networkError).State, "by the default policy")
		b.requireStates(t, key, run.RunRunning, "f/scan=RETRY_WAIT")
	})
}

func TestTriggerRetried(t *testing.T) {
	t.Parallel()

	t.Run("a trigger that was tried twice is the same request as its repeat", func(t *testing.T) {
		t.Parallel()
		db := servotest.DB(t)
		proxy := servotest.Proxy(t, db.URL)
		b := setupThrough(t, db, proxy)
		for _, fate := range []servotest.Fate{servotest.CutBefore, servotest.CutAfter} {
			trigger := engine.Trigger{Tenant: b.tenant, Pipeline: "single", IdempotencyKey: fmt.Sprint("k", fate)}
			proxy.Next(1, fate)
			first, err := b.TriggerRun(t.Context(), trigger)
			require.NoError(t, err)
			require.False(t, first.Repeat)
			again, err := b.TriggerRun(t.Context(), trigger)
			require.NoError(t, err)
			require.True(t, again.Repeat)
			require.Equal(t, first.Run, again.Run)
		}
		require.Equal(t, 2, proxy.Cuts())
		require.Equal(t, 2, db.Count(t, `SELECT count(*) FROM servo.runs`))
	})
}

// setupThrough is setup with an engine that reaches the database through a proxy.
func setupThrough(t testing.TB, db *servotest.Database, proxy *servotest.FaultProxy) *bundle {
	t.Helper()
	return setupOn(t, behind(t, db, proxy), engine.Config{})
}

// behind is a database that is reached through a proxy.
func behind(t testing.TB, db *servotest.Database, proxy *servotest.FaultProxy) *servotest.Database {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{URL: proxy.URL, MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return &servotest.Database{Store: s, URL: db.URL}
}

// holdLeases locks leases in a transaction of their own, until the call of what it returns.
func (b *bundle) holdLeases(t testing.TB, leases ...engine.Lease) (release func()) {
	t.Helper()
	keys := make([]store.TaskKey, len(leases))
	for i, l := range leases {
		keys[i] = l.TaskKey
	}
	held, let, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- b.db.Engine(context.Background(), func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.LockLeases(ctx, keys)
			close(held)
			<-let
			return err
		})
	}()
	<-held
	return sync.OnceFunc(func() {
		close(let)
		require.NoError(t, <-done)
	})
}

func TestStuck(t *testing.T) {
	t.Parallel()

	t.Run("heartbeats are answered and runs triggered while reports wait for a lock", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		leases := b.many(t, 2, true)
		release := b.holdLeases(t, leases...)
		defer release()
		answers := make(chan error, 2)
		for _, l := range leases { // as many as the work lane is wide
			go func() {
				_, err := b.ReportOne(t.Context(), report(l, engine.Complete{}))
				answers <- err
			}()
		}
		b.untilBlocked(t, 1)
		pulses, err := b.Heartbeats(t.Context(), []engine.Heartbeat{
			{Key: leases[0].TaskKey, Token: leases[0].Token}, {Key: leases[1].TaskKey, Token: leases[1].Token},
		})
		require.NoError(t, err)
		require.Equal(t, []engine.Pulse{{Alive: true}, {Alive: true}}, pulses)
		b.trigger(t, "single")
		select {
		case err := <-answers:
			require.Fail(t, "a report did not wait", "%v", err)
		default:
		}
		release()
		require.NoError(t, <-answers)
		require.NoError(t, <-answers)
		verifytest.Clean(t, b.db)
	})

	t.Run("a caller that gives up while it waits changes nothing, one whose turn has come may have", func(t *testing.T) {
		t.Parallel()
		b := setupOn(t, servotest.DB(t), engine.Config{InFlight: 1})
		leases := b.many(t, 3, true)
		release := b.holdLeases(t, leases[0])
		defer release()
		begun, giveUp := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := b.ReportOne(begun, report(leases[0], engine.Complete{}))
			first <- err
		}()
		b.untilBlocked(t, 1)
		waiting, leave := context.WithCancel(t.Context())
		second := make(chan error, 1)
		go func() {
			_, err := b.ReportOne(waiting, report(leases[1], engine.Complete{}))
			second <- err
		}()
		leave()
		requireGone(t, <-second)
		giveUp()
		requireGone(t, <-first)
		release()
		require.Equal(t, run.Succeeded, b.report(t, leases[2], engine.Complete{}).State, "the lane continues")
		require.False(t, b.report(t, leases[1], engine.Complete{}).Repeat, "nothing had come of it")
		require.True(t, b.report(t, leases[0], engine.Complete{}).Repeat, "it was being applied: a repeat finds that out")
		verifytest.Clean(t, b.db)
	})
}

func requireGone(t testing.TB, err error) {
	t.Helper()
	f, ok := fault.As(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, fault.Unavailable, f.Code)
	require.Positive(t, f.RetryAfter)
	require.NotEmpty(t, f.Violation.Remedy)
}

// untilBlocked returns when that many statements of this database wait for a lock.
func (b *bundle) untilBlocked(t testing.TB, n int) {
	t.Helper()
	for b.db.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) < n {
		require.NoError(t, t.Context().Err())
	}
}
