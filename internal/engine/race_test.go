package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// Each race runs in rounds of many at once: 400 races a test, and more while one side has never
// won. In make soak there are 5,000.
const (
	raceRounds = 4
	mostRounds = 20
)

var racesEach = servotest.Size(100, 250)

// The runs that race: one task, one task and what waits for it, two tasks and their join.
const raceManifest = `
version: 1
assets:
  - {key: s/one, exec: {command: [run]}}
  - {key: p/first, exec: {command: [run]}}
  - {key: p/last, exec: {command: [run]}, upstream: [p/first]}
  - {key: j/left, exec: {command: [run]}}
  - {key: j/right, exec: {command: [run]}, pool: right}
  - {key: j/join, exec: {command: [run]}, upstream: [j/left, j/right]}
pipelines:
  - {name: single, overlap: allow, select: [s/one]}
  - {name: pair, overlap: allow, select: ["p/*"]}
  - {name: join, overlap: allow, select: ["j/*"]}
`

// track is one database with two servers on it, each with connections of its own.
type track struct {
	*bundle

	servers [2]*engine.Engine
	stores  [2]*store.Store
	clock   int // seconds since the epoch at which the database's clock is stopped

	undecided func() bool // nil, or whether more rounds are needed
	raced     int         // rounds so far
}

// newTrack makes a database with two servers. Its clock is stopped unless forward moves it.
func newTrack(t testing.TB) *track {
	t.Helper()
	tr := &track{bundle: setup(t)}
	tr.deploy(t, raceManifest)
	for i := range tr.stores {
		s, err := store.Open(t.Context(), store.Options{URL: tr.db.URL, MaxConns: 5})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		tr.stores[i] = s
	}
	tr.clock = tr.db.Count(t, `SELECT extract(epoch FROM clock_timestamp())::int`)
	tr.db.SetClock(t, time.Unix(int64(tr.clock), 0))
	return tr
}

// rounds prepares and runs the races. The servers of each round differ in how much they put
// into one transaction: few large ones meet in other ways than many small ones.
func (tr *track) rounds(t testing.TB, n int, round func()) {
	t.Helper()
	if os.Getenv("SERVO_SOAK") != "" {
		n *= mostRounds / raceRounds
	}
	for i := 0; i < n || i < mostRounds && tr.undecided != nil && tr.undecided(); i++ {
		tr.raced++
		config := engine.Config{MaxBatch: []int{3, 10, 40, 500}[i%4]}
		for s := range tr.servers {
			tr.servers[s] = engine.New(tr.stores[s], config, nil)
		}
		round()
		for _, server := range tr.servers {
			server.Stop()
		}
	}
	verifytest.Clean(t, tr.db)
}

// forward moves the database's clock.
func (tr *track) forward(t testing.TB, d time.Duration) {
	t.Helper()
	tr.clock += int(d / time.Second)
	tr.db.Exec(t, fmt.Sprintf(`UPDATE servo.test_clock SET now = to_timestamp(%d)`, tr.clock))
}

// runs makes n runs of a pipeline.
func (tr *track) runs(t testing.TB, pipeline string, n int) []store.RunKey {
	t.Helper()
	return tr.runsWith(t, engine.Trigger{Pipeline: pipeline}, n)
}

func (tr *track) runsWith(t testing.TB, trigger engine.Trigger, n int) []store.RunKey {
	t.Helper()
	trigger.Tenant = tr.tenant
	triggers := make([]engine.Trigger, n)
	for i := range triggers {
		triggers[i] = trigger
	}
	triggered, errs := tr.TriggerRuns(t.Context(), triggers)
	requireNone(t, errs)
	keys := make([]store.RunKey, n)
	for i, r := range triggered {
		keys[i] = store.RunKey{Tenant: tr.tenant, Run: r.Run}
	}
	return keys
}

// lease admits and claims n tasks of any pool, for a second each.
func (tr *track) lease(t testing.TB, n int, start bool) []engine.Lease {
	t.Helper()
	return tr.leaseFor(t, n, engine.ClaimRequest{Pools: []string{"default", "right"}, Lease: time.Second, Start: start})
}

func (tr *track) leaseFor(t testing.TB, n int, r engine.ClaimRequest) []engine.Lease {
	t.Helper()
	r.Worker = "w"
	var leases []engine.Lease
	for len(leases) < n {
		tr.admit(t)
		r.Claim, r.Max = newClaim(), n-len(leases)
		claimed, err := tr.Claim(t.Context(), r)
		require.NoError(t, err)
		require.NotEmpty(t, claimed)
		leases = append(leases, claimed...)
	}
	return leases
}

func runOf(l engine.Lease) store.RunKey { return store.RunKey{Tenant: l.Tenant, Run: l.Run} }

// all reports the same about all leases.
func (tr *track) all(t testing.TB, leases []engine.Lease, action engine.Action) {
	t.Helper()
	reports := make([]engine.Report, len(leases))
	for i, l := range leases {
		reports[i] = report(l, action)
	}
	_, errs := tr.Report(t.Context(), reports)
	requireNone(t, errs)
}

// race lets each side act on each of n contestants, all at once, the two sides through
// different servers, in an order that chance decides.
func (tr *track) race(n int, sides ...func(server *engine.Engine, i int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for _, i := range rand.Perm(n) {
		for s, side := range sides {
			ready.Add(1)
			done.Go(func() {
				ready.Done()
				<-start
				side(tr.servers[(i+s)%2], i)
			})
		}
	}
	ready.Wait()
	close(start)
	done.Wait()
}

// rows reads runs with their counters.
func (tr *track) rows(t testing.TB, keys []store.RunKey) map[store.RunKey]run.Run {
	t.Helper()
	found := map[store.RunKey]run.Run{}
	require.NoError(t, tr.db.Engine(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		runs, err := tx.LockRuns(ctx, store.LockForMove, keys)
		for _, r := range runs {
			found[store.RunKey{Tenant: r.Tenant, Run: r.ID}] = r
		}
		return err
	}))
	require.Len(t, found, len(keys))
	return found
}

// score counts who won.
type score map[string]int

// lacks reports whether a side has never won.
func (s score) lacks(sides ...string) func() bool {
	return func() bool { return slices.ContainsFunc(sides, func(side string) bool { return s[side] == 0 }) }
}

// requireRaces makes sure that all were counted, and that they were races: each side has won
// some.
func (tr *track) requireRaces(t testing.TB, s score, sides ...string) {
	t.Helper()
	t.Logf("%v in %d rounds", s, tr.raced)
	total := 0
	for _, side := range sides {
		total += s[side]
		require.NotZero(t, s[side], "%v", s)
	}
	require.GreaterOrEqual(t, tr.raced, raceRounds)
	require.Equal(t, tr.raced*racesEach, total, "%v", s)
}

func TestRaceCancelComplete(t *testing.T) {
	t.Parallel()
	tr, wins := newTrack(t), score{}
	tr.undecided = wins.lacks("cancel", "complete")
	tr.rounds(t, raceRounds, func() {
		// half of the runs end with the task, the others have more to do
		keys := append(tr.runs(t, "single", racesEach/2), tr.runs(t, "pair", racesEach/2)...)
		leases := tr.lease(t, len(keys), true)
		answers, completes, cancels := make([]engine.Answer, len(keys)), make([]error, len(keys)), make([]error, len(keys))
		tr.race(len(leases), func(server *engine.Engine, i int) {
			answers[i], completes[i] = server.ReportOne(t.Context(), report(leases[i], engine.Complete{Result: []byte(`1`)}))
		}, func(server *engine.Engine, i int) {
			_, cancels[i] = server.CancelRun(t.Context(), engine.Cancel{Tenant: leases[i].Tenant, Run: leases[i].Run})
		})
		rows := tr.rows(t, keys)
		for i, l := range leases {
			require.NoError(t, completes[i], "the lease was not revoked")
			r := rows[runOf(l)]
			switch {
			case answers[i].State == run.Cancelled:
				wins["cancel"]++
				require.NoError(t, cancels[i])
				require.True(t, answers[i].Late)
				require.Equal(t, run.RunCancelled, r.State)
				require.Equal(t, r.Total, r.Cancelled)
			case r.Total == 1:
				wins["complete"]++
				require.True(t, fault.Is(cancels[i], fault.Conflict), "%v", cancels[i])
				require.Equal(t, run.RunSucceeded, r.State)
			default:
				wins["complete"]++
				require.Equal(t, run.Succeeded, answers[i].State)
				require.NoError(t, cancels[i])
				require.Equal(t, run.RunCancelled, r.State)
				require.Equal(t, []int32{1, r.Total - 1}, []int32{r.Succeeded, r.Cancelled})
			}
		}
	})
	tr.requireRaces(t, wins, "cancel", "complete")
}

func TestRaceCancelClaim(t *testing.T) {
	t.Parallel()
	tr, wins := newTrack(t), score{}
	tr.undecided = wins.lacks("cancel", "claim")
	tr.rounds(t, raceRounds, func() {
		keys := tr.runs(t, "single", racesEach)
		require.Equal(t, racesEach, tr.admit(t))
		var (
			mu     sync.Mutex
			leases []engine.Lease
		)
		errs := make([]error, 2*racesEach)
		tr.race(racesEach, func(server *engine.Engine, i int) {
			claimed, err := server.Claim(t.Context(), engine.ClaimRequest{
				Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 1 + i%3, Start: i%2 == 0,
			})
			mu.Lock()
			defer mu.Unlock()
			leases, errs[2*i] = append(leases, claimed...), err
		}, func(server *engine.Engine, i int) {
			_, errs[2*i+1] = server.CancelRun(t.Context(), engine.Cancel{Tenant: keys[i].Tenant, Run: keys[i].Run})
		})
		requireNone(t, errs)
		claimed := map[store.RunKey]bool{}
		beats := make([]engine.Heartbeat, len(leases))
		for i, l := range leases {
			require.False(t, claimed[runOf(l)], "claimed twice")
			claimed[runOf(l)] = true
			beats[i] = engine.Heartbeat{Key: l.TaskKey, Token: l.Token}
		}
		for key, r := range tr.rows(t, keys) {
			if !claimed[key] {
				wins["cancel"]++
				require.Equal(t, run.RunCancelled, r.State)
				continue
			}
			wins["claim"]++
			require.Equal(t, run.RunCancelling, r.State)
		}
		pulses, err := tr.Heartbeats(t.Context(), beats)
		require.NoError(t, err)
		for _, pulse := range pulses {
			require.Equal(t, engine.Pulse{Alive: true, ShouldCancel: true}, pulse, "its worker is notified of the cancel")
		}
		tr.all(t, leases, engine.Fail{Failure: run.Failure{Code: run.CodeCancelled}})
		for _, r := range tr.rows(t, keys) {
			require.Equal(t, run.RunCancelled, r.State)
			require.EqualValues(t, 1, r.Cancelled)
		}
	})
	tr.requireRaces(t, wins, "cancel", "claim")
}

// untilIdle repeats a step of the reaper until nothing is due. Two reapers may collide.
func untilIdle(ctx context.Context, step func(ctx context.Context, most int) (int, error), most int) error {
	for {
		looked, err := step(ctx, most)
		if err != nil && store.Diagnose(err) == store.Collided {
			continue
		}
		if err != nil || looked == 0 {
			return err
		}
	}
}

func TestRaceCancelExpire(t *testing.T) {
	t.Parallel()
	tr, wins := newTrack(t), score{}
	tr.undecided = wins.lacks("cancel", "expire")
	tr.rounds(t, raceRounds, func() {
		keys := append(tr.runs(t, "single", racesEach/2), tr.runs(t, "pair", racesEach/2)...)
		leases := append(tr.lease(t, racesEach/2, true), tr.lease(t, racesEach/2, false)...)
		tr.forward(t, 2*time.Second)
		errs := make([]error, racesEach+2)
		tr.race(racesEach+2, func(server *engine.Engine, i int) {
			if i < racesEach {
				_, errs[i] = server.CancelRun(t.Context(), engine.Cancel{Tenant: keys[i].Tenant, Run: keys[i].Run})
				return
			}
			errs[i] = untilIdle(t.Context(), server.Expire, 10)
		})
		requireNone(t, errs)
		require.NoError(t, untilIdle(t.Context(), tr.servers[0].Expire, 1000), "what was not yet due for a cancelled run")
		for _, r := range tr.rows(t, keys) {
			require.Equal(t, run.RunCancelled, r.State)
			require.Equal(t, r.Total, r.Cancelled)
		}
		tr.countWinners(t, leases, wins, "expire", func(body event.Body) bool {
			_, returned := body.(run.TaskReturned)
			_, retrying := body.(run.TaskRetrying)
			return returned || retrying
		})
	})
	tr.requireRaces(t, wins, "cancel", "expire")
}

// countWinners counts for each task which command came first: the other one if the task has an event of it,
// or else the cancel.
func (tr *track) countWinners(t testing.TB, leases []engine.Lease, wins score, other string, isOf func(event.Body) bool) {
	t.Helper()
	keys := make([]store.TaskKey, len(leases))
	for i, l := range leases {
		keys[i] = l.TaskKey
	}
	require.NoError(t, tr.db.Engine(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		streams, err := tx.TaskEvents(ctx, keys)
		for _, key := range keys {
			winner := "cancel"
			if slices.ContainsFunc(streams[key], func(e event.Event) bool { return isOf(e.Body) }) {
				winner = other
			}
			wins[winner]++
		}
		return err
	}))
}

func TestRaceExpireComplete(t *testing.T) {
	t.Parallel()
	tr, wins := newTrack(t), score{}
	tr.undecided = wins.lacks("complete", "expire")
	tr.rounds(t, raceRounds, func() {
		keys := tr.runs(t, "single", racesEach)
		leases := tr.lease(t, racesEach, true)
		tr.forward(t, 2*time.Second)
		answers, errs := make([]engine.Answer, racesEach), make([]error, racesEach+2)
		tr.race(racesEach+2, func(server *engine.Engine, i int) {
			if i < racesEach {
				answers[i], errs[i] = server.ReportOne(t.Context(), report(leases[i], engine.Complete{}))
				return
			}
			errs[i] = untilIdle(t.Context(), server.Expire, 10)
		})
		requireNone(t, errs[racesEach:])
		rows := tr.rows(t, keys)
		for i, l := range leases {
			if errs[i] == nil {
				wins["complete"]++
				require.Equal(t, run.Succeeded, answers[i].State)
				require.Equal(t, run.RunSucceeded, rows[runOf(l)].State)
				continue
			}
			wins["expire"]++
			require.True(t, fault.Is(errs[i], fault.Stale), "%v", errs[i])
			require.Equal(t, run.RunRunning, rows[runOf(l)].State)
		}
		// what expired is ready again and ends well
		tr.drain(t, succeed)
		for _, r := range tr.rows(t, keys) {
			require.Equal(t, run.RunSucceeded, r.State)
		}
	})
	tr.requireRaces(t, wins, "complete", "expire")
	require.Equal(t, wins["expire"], tr.db.Count(t, `SELECT count(*) FROM servo.tasks WHERE failures = 0 AND attempt = 2`))
	require.Equal(t, wins["complete"], tr.db.Count(t, `SELECT count(*) FROM servo.tasks WHERE failures = 0 AND attempt = 1`))
}

func TestRaceJoin(t *testing.T) {
	t.Parallel()
	tr, wins := newTrack(t), score{}
	tr.undecided = wins.lacks("joined", "skipped")
	tr.rounds(t, raceRounds, func() {
		keys := tr.runs(t, "join", racesEach)
		pairs := map[store.RunKey][]engine.Lease{}
		for _, l := range tr.lease(t, 2*racesEach, true) {
			pairs[runOf(l)] = append(pairs[runOf(l)], l)
		}
		action := func(i int) engine.Action { // every fifth join is to be skipped
			if i%5 == 0 {
				return engine.Fail{Failure: run.Failure{Code: "DATA_CORRUPTION"}}
			}
			return engine.Complete{}
		}
		errs := make([]error, 2*racesEach)
		tr.race(racesEach, func(server *engine.Engine, i int) {
			_, errs[2*i] = server.ReportOne(t.Context(), report(pairs[keys[i]][0], engine.Complete{}))
		}, func(server *engine.Engine, i int) {
			_, errs[2*i+1] = server.ReportOne(t.Context(), report(pairs[keys[i]][1], action(i)))
		})
		requireNone(t, errs)
		tr.drain(t, succeed)
		for i, r := range inOrder(tr.rows(t, keys), keys) {
			if i%5 == 0 {
				wins["skipped"]++
				require.Equal(t, run.RunFailed, r.State)
				require.Equal(t, []int32{1, 1, 1}, []int32{r.Succeeded, r.Failed, r.Skipped})
				continue
			}
			wins["joined"]++
			require.Equal(t, run.RunSucceeded, r.State)
			require.EqualValues(t, 3, r.Succeeded)
		}
	})
	tr.requireRaces(t, wins, "joined", "skipped")
}

// One task of a run ends by its expiry while another succeeds: both count.
func TestRaceExpireOther(t *testing.T) {
	t.Parallel()
	tr := newTrack(t)
	tr.rounds(t, 1, func() {
		keys := tr.runsWith(t, engine.Trigger{Pipeline: "join", Retry: &run.RetryPolicy{MaxDeaths: 1}}, racesEach)
		tr.admit(t)
		tr.leaseFor(t, racesEach, engine.ClaimRequest{Pools: []string{"default"}, Lease: time.Second, Start: true})
		right := tr.leaseFor(t, racesEach, engine.ClaimRequest{Pools: []string{"right"}, Lease: time.Hour, Start: true})
		tr.forward(t, 2*time.Second)
		errs := make([]error, racesEach+2)
		tr.race(racesEach+2, func(server *engine.Engine, i int) {
			if i < racesEach {
				_, errs[i] = server.ReportOne(t.Context(), report(right[i], engine.Complete{}))
				return
			}
			errs[i] = untilIdle(t.Context(), server.Expire, 10)
		})
		requireNone(t, errs)
		for _, r := range tr.rows(t, keys) {
			require.Equal(t, run.RunFailed, r.State)
			require.Equal(t, []int32{1, 1, 1}, []int32{r.Succeeded, r.Failed, r.Skipped})
		}
	})
}

func inOrder(rows map[store.RunKey]run.Run, keys []store.RunKey) []run.Run {
	out := make([]run.Run, len(keys))
	for i, key := range keys {
		out[i] = rows[key]
	}
	return out
}
