package engine_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

func TestRaceCancelRetryDue(t *testing.T) {
	t.Parallel()
	tr, wins := newTrack(t), score{}
	tr.undecided = wins.lacks("cancel", "retry due")
	tr.rounds(t, raceRounds, func() {
		keys := tr.runs(t, "single", racesEach)
		leases := tr.lease(t, racesEach, true)
		tr.all(t, leases, networkError)
		tr.forward(t, time.Hour)
		errs := make([]error, racesEach+2)
		tr.race(racesEach+2, func(server *engine.Engine, i int) {
			if i < racesEach {
				_, errs[i] = server.CancelRun(t.Context(), engine.Cancel{Tenant: keys[i].Tenant, Run: keys[i].Run})
				return
			}
			errs[i] = untilIdle(t.Context(), server.RetryDue, 10)
		})
		requireNone(t, errs)
		for _, r := range tr.rows(t, keys) {
			require.Equal(t, run.RunCancelled, r.State)
			require.EqualValues(t, 1, r.Cancelled)
		}
		require.Zero(t, tr.admit(t), "nothing is ready any more")
		tr.countWinners(t, leases, wins, "retry due", func(body event.Body) bool {
			_, readied := body.(run.TaskReadied)
			_, started := body.(run.TaskStarted)
			return readied || started
		})
	})
	tr.requireRaces(t, wins, "cancel", "retry due")
}

func TestRaceCancelStart(t *testing.T) {
	t.Parallel()
	tr, wins := newTrack(t), score{}
	tr.undecided = wins.lacks("cancel", "start")
	tr.rounds(t, raceRounds, func() {
		keys := tr.runs(t, "single", racesEach)
		leases := tr.lease(t, racesEach, false)
		starts, cancels := make([]error, racesEach), make([]error, racesEach)
		tr.race(racesEach, func(server *engine.Engine, i int) {
			_, starts[i] = server.ReportOne(t.Context(), report(leases[i], engine.Start{}))
		}, func(server *engine.Engine, i int) {
			_, cancels[i] = server.CancelRun(t.Context(), engine.Cancel{Tenant: leases[i].Tenant, Run: leases[i].Run})
		})
		requireNone(t, cancels)
		for _, err := range starts {
			if err == nil {
				wins["start"]++
				continue
			}
			wins["cancel"]++
			require.True(t, fault.Is(err, fault.Conflict), "%v", err)
		}
		for _, r := range tr.rows(t, keys) {
			require.Equal(t, run.RunCancelling, r.State)
		}
		tr.all(t, leases, engine.Fail{Failure: run.Failure{Code: run.CodeCancelled}})
		for _, r := range tr.rows(t, keys) {
			require.Equal(t, run.RunCancelled, r.State)
		}
	})
	tr.requireRaces(t, wins, "cancel", "start")
}

// A worker wakes up in the moment in which it is force-cancelled: its late result is kept, or
// it is notified that its lease is over, and the task has ended once.
func TestRaceForceCancelComplete(t *testing.T) {
	t.Parallel()
	tr, wins := newTrack(t), score{}
	tr.undecided = wins.lacks("complete", "force")
	tr.rounds(t, raceRounds, func() {
		keys := tr.runs(t, "single", racesEach)
		tr.admit(t)
		leases := tr.leaseFor(t, racesEach, engine.ClaimRequest{Pools: []string{"default"}, Lease: time.Hour, Start: true})
		for _, key := range keys {
			tr.cancel(t, key)
		}
		tr.forward(t, 10*time.Minute)
		answers, completes, forces := make([]engine.Answer, racesEach), make([]error, racesEach), make([]error, racesEach)
		tr.race(racesEach, func(server *engine.Engine, i int) {
			answers[i], completes[i] = server.ReportOne(t.Context(), report(leases[i], engine.Complete{Result: []byte(`1`)}))
		}, func(server *engine.Engine, i int) {
			_, forces[i] = server.ForceCancelTask(t.Context(), engine.ForceCancel{TaskKey: leases[i].TaskKey})
		})
		requireNone(t, forces)
		for i := range leases {
			if completes[i] == nil {
				wins["complete"]++
				require.True(t, answers[i].Late)
				continue
			}
			wins["force"]++
			require.True(t, fault.Is(completes[i], fault.Stale), "%v", completes[i])
		}
		for _, r := range tr.rows(t, keys) {
			require.Equal(t, run.RunCancelled, r.State)
			require.EqualValues(t, 1, r.Cancelled)
		}
	})
	tr.requireRaces(t, wins, "complete", "force")
	require.Equal(t, wins["complete"], tr.db.Count(t, `SELECT count(*) FROM servo.tasks WHERE late_result AND result = '1'`))
}

// Runs with tasks in every state are cancelled, twice each, while two servers admit, claim,
// start, complete, fail, yield, expire and retry whatever they find. When the workers have
// reported and the leases have expired, no run is left.
func TestRaceCancelEverything(t *testing.T) {
	t.Parallel()
	tr := newTrack(t)
	seen := score{}
	tr.rounds(t, raceRounds, func() {
		keys := append(tr.runs(t, "join", racesEach/2), tr.runs(t, "pair", racesEach/2)...)
		some := tr.lease(t, racesEach/2, true)
		tr.all(t, some[:racesEach/4], networkError)
		tr.all(t, some[racesEach/4:], engine.Complete{})
		tr.lease(t, racesEach/4, true)
		tr.lease(t, racesEach/4, false)
		tr.forward(t, 6*time.Minute) // leases and some backoffs are over
		mob := &mob{track: tr}
		errs := make([]error, 2*racesEach)
		tr.race(racesEach, func(server *engine.Engine, i int) {
			_, errs[2*i] = server.CancelRun(t.Context(), engine.Cancel{Tenant: keys[i%len(keys)].Tenant, Run: keys[i%len(keys)].Run})
		}, func(server *engine.Engine, i int) {
			_, errs[2*i+1] = server.CancelRun(t.Context(), engine.Cancel{Tenant: keys[i%len(keys)].Tenant, Run: keys[i%len(keys)].Run})
		}, mob.act(t), mob.act(t))
		for _, err := range errs { // a run may have ended before
			require.True(t, err == nil || fault.Is(err, fault.Conflict), "%v", err)
		}
		require.Empty(t, mob.wrong)
		tr.forward(t, 2*time.Hour)
		require.NoError(t, untilIdle(t.Context(), tr.servers[0].Expire, 1000))
		for _, r := range tr.rows(t, keys) {
			require.True(t, r.State.Terminal(), "%s with %d tasks left", r.State, r.Remaining)
			seen[r.State.String()]++
		}
		require.Zero(t, tr.db.Count(t, `SELECT (SELECT count(*) FROM servo.waiting) + (SELECT count(*) FROM servo.ready_q)
			+ (SELECT count(*) FROM servo.pool_q) + (SELECT count(*) FROM servo.leases) + (SELECT count(*) FROM servo.retry_q)`))
	})
	require.NotZero(t, seen["CANCELLED"])
}

// mob does whatever comes to mind.
type mob struct {
	*track

	mu     sync.Mutex
	leases []engine.Lease
	wrong  []error
}

func (m *mob) act(t testing.TB) func(server *engine.Engine, i int) {
	t.Helper()
	return func(server *engine.Engine, i int) {
		ctx := t.Context()
		var err error
		switch i % 8 {
		case 0:
			_, _, err = server.Admit(ctx, m.duty, 20)
		case 1, 2:
			var claimed []engine.Lease
			claimed, err = server.Claim(ctx, engine.ClaimRequest{
				Worker: "w", Claim: newClaim(), Pools: []string{"default", "right"}, Max: 5, Start: i%2 == 0,
			})
			m.mu.Lock()
			m.leases = append(m.leases, claimed...)
			m.mu.Unlock()
		case 3:
			err = untilIdle(ctx, server.Expire, 7)
		case 4:
			err = untilIdle(ctx, server.RetryDue, 7)
		default:
			err = m.report(ctx, server)
		}
		if err != nil && store.Diagnose(err) != store.Collided {
			m.mu.Lock()
			m.wrong = append(m.wrong, err)
			m.mu.Unlock()
		}
	}
}

// report sends any report about a lease that a worker of the test holds or has held.
func (m *mob) report(ctx context.Context, server *engine.Engine) error {
	m.mu.Lock()
	var lease engine.Lease
	n := len(m.leases)
	if n > 0 {
		lease = m.leases[rand.IntN(n)]
	}
	m.mu.Unlock()
	if n == 0 {
		return nil
	}
	action := []engine.Action{engine.Start{}, engine.Complete{}, networkError, engine.Yield{}, fatal}[rand.IntN(5)]
	_, err := server.ReportOne(ctx, report(lease, action))
	if fault.Is(err, fault.Stale) || fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}
