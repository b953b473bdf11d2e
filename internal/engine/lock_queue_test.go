package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

func (w *clockwork) startRuns(t testing.TB) int {
	t.Helper()
	n, err := w.StartRuns(t.Context(), w.duty, 100)
	require.NoError(t, err)
	return n
}

// running is the slot of the one run that has started and not ended.
func (w *clockwork) running(t testing.TB) []string {
	t.Helper()
	return w.db.Texts(t, `SELECT to_char(slot_at AT TIME ZONE 'UTC', 'HH24:MI') FROM servo.runs WHERE state = 2 ORDER BY slot_at`)
}

func TestRunsWaitInTurn(t *testing.T) {
	t.Parallel()

	t.Run("a new slot does not take a lock that was released while another waits for it", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "line", config.Spec{Overlap: config.OverlapBufferAll})
		for range 2 {
			w.forward(t, time.Minute)
			w.fire(t)
		}
		w.report(t, w.one(t), engine.Complete{})
		w.forward(t, time.Minute)
		w.fire(t)
		require.Empty(t, w.running(t), "the lock is free, and the second slot is the next to get it")
		require.Equal(t, 1, w.startRuns(t))
		require.Equal(t, []string{"00:02"}, w.running(t))
		verifytest.Clean(t, w.db)
	})

	t.Run("a trigger does not either: it is answered with the run that comes next", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		saved := w.save(t, "line", config.Spec{Overlap: config.OverlapBufferOne})
		for range 2 {
			w.forward(t, time.Minute)
			w.fire(t)
		}
		next := *w.get(t, "line").LastRun
		w.report(t, w.one(t), engine.Complete{})
		triggered, err := w.TriggerConfig(t.Context(), w.tenant, saved.ID, engine.Trigger{})
		require.NoError(t, err)
		require.Equal(t, engine.Triggered{Run: next, AlreadyRunning: true}, triggered)
	})

	t.Run("the lock goes by turn and not by the ids of runs", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "line", config.Spec{Overlap: config.OverlapBufferAll})
		for range 9 {
			w.forward(t, time.Minute)
			w.db.Exec(t, fmt.Sprintf(`UPDATE servo.test_clock SET now = '%s'`, w.now.Format(time.RFC3339Nano)))
			w.fire(t)
			w.db.SetClock(t, w.now) // ids of one millisecond: their order means nothing
		}
		var order []string
		for w.db.Count(t, `SELECT count(*) FROM servo.live_runs`) > 0 {
			order = append(order, w.running(t)...)
			w.finish(t, engine.Complete{})
			w.startRuns(t)
		}
		require.True(t, slices.IsSorted(order), order)
		require.Len(t, order, 9)
	})

	t.Run("a quota that leaves no room gives the lock back, and the order stays", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "line", config.Spec{Overlap: config.OverlapBufferAll})
		for range 3 {
			w.forward(t, time.Minute)
			w.fire(t)
		}
		w.report(t, w.one(t), engine.Complete{})
		quotas := tenant.NoLimits()
		quotas.MaxConcurrentRuns = 0
		version, err := w.SetQuotas(t.Context(), w.tenant, quotas, 1, engineMeta)
		require.NoError(t, err)
		require.Zero(t, w.startRuns(t))
		verifytest.Clean(t, w.db)
		_, err = w.SetQuotas(t.Context(), w.tenant, tenant.NoLimits(), version, engineMeta)
		require.NoError(t, err)
		require.Equal(t, 1, w.startRuns(t))
		require.Equal(t, []string{"00:02"}, w.running(t))
	})
}

func TestCancelRunningKeepsTheNewestSlot(t *testing.T) {
	t.Parallel()

	t.Run("a slot that waits is replaced by a newer one", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "impatient", config.Spec{Overlap: config.OverlapCancelRunning})
		w.forward(t, time.Minute)
		w.fire(t)
		lease := w.one(t) // its worker is slow to stop
		for range 3 {
			w.forward(t, time.Minute)
			w.fire(t)
		}
		require.Equal(t, []string{"00:01 FIRED", "00:02 FIRED", "00:03 FIRED", "00:04 FIRED"}, w.slots(t, "impatient"))
		require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.live_runs WHERE wait_key <> ''`))
		w.report(t, lease, engine.Fail{Failure: run.Failure{Code: run.CodeCancelled, Message: "stopped"}})
		require.Equal(t, 1, w.startRuns(t))
		require.Equal(t, []string{"00:04"}, w.running(t))
		verifytest.Clean(t, w.db)
	})

	t.Run("of several missed slots the newest is kept", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "impatient", config.Spec{Overlap: config.OverlapCancelRunning, Catchup: config.Catchup{Policy: config.CatchupAll, MaxSlots: 10}})
		w.forward(t, time.Minute)
		w.fire(t)
		w.forward(t, 3*time.Minute)
		w.fire(t)
		w.startRuns(t)
		require.Equal(t, []string{"00:04"}, w.running(t))
		require.Equal(t, []string{"00:01 FIRED", "00:02-00:03 SKIPPED_OVERLAP 2", "00:04 FIRED"}, w.slots(t, "impatient"))
		verifytest.Clean(t, w.db)
	})
}

// A lock's runs start in the order in which they came, whatever else happens.
func TestTurnsProperty(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			l := newLine(t, seed)
			for range 25 {
				l.step(t)
			}
			l.drain(t)
			l.requireOrder(t)
		})
	}
}

// line is two configs and calls that share one lock.
type line struct {
	*clockwork

	dice  *rand.Rand
	of    id.Config
	began []string // runs in the order in which they started
}

func newLine(t *testing.T, seed uint64) *line {
	t.Helper()
	l := &line{clockwork: newClockwork(t), dice: rand.New(rand.NewPCG(seed, 3))} //nolint:gosec // a test
	l.deploy(t, lockManifest)
	every := func(seconds int) config.Spec {
		return config.Spec{Pipeline: "shared", Trigger: config.Trigger{Interval: asset.Duration(time.Duration(seconds) * time.Second)}, Overlap: config.OverlapBufferAll}
	}
	l.of = l.save(t, "line", every(1)).ID
	l.save(t, "other", every(3))
	return l
}

func (l *line) step(t *testing.T) {
	t.Helper()
	switch l.dice.IntN(7) {
	case 0, 1:
		l.forward(t, time.Second)
		l.fire(t)
	case 2, 3:
		l.startRuns(t)
	case 4:
		l.admit(t)
		for _, lease := range l.claim(t, 1, true) {
			l.report(t, lease, engine.Complete{})
		}
	case 5:
		_, err := l.TriggerConfig(t.Context(), l.tenant, l.of, engine.Trigger{Queue: true})
		require.NoError(t, err)
	case 6: // a server dies before it has done anything
		ctx, kill := context.WithCancel(t.Context())
		kill()
		_, err := l.StartRuns(ctx, l.duty, 100)
		require.Error(t, err)
	}
	l.look(t)
}

func (l *line) look(t *testing.T) {
	t.Helper()
	for _, of := range l.db.Texts(t, `SELECT id::text FROM servo.runs WHERE started_at IS NOT NULL AND state = 2`) {
		if !slices.Contains(l.began, of) {
			l.began = append(l.began, of)
		}
	}
}

func (l *line) drain(t *testing.T) {
	t.Helper()
	for l.db.Count(t, `SELECT count(*) FROM servo.live_runs`) > 0 {
		l.startRuns(t)
		l.look(t)
		l.bundle.drain(t, succeed)
	}
}

// requireOrder compares the order of starts with that in which runs have come to wait.
func (l *line) requireOrder(t *testing.T) {
	t.Helper()
	came := map[string]int{}
	for _, text := range l.db.Texts(t, `SELECT coalesce(data->>'turn', '0') || ' ' || run_id FROM servo.run_events WHERE type = 'run.created'`) {
		var turn int
		var of string
		_, err := fmt.Sscan(text, &turn, &of)
		require.NoError(t, err)
		came[of] = turn
	}
	last := 0
	for _, of := range l.began {
		if came[of] > 0 {
			require.Greater(t, came[of], last)
			last = came[of]
		}
	}
	for _, name := range []string{"line", "other"} {
		require.Zero(t, l.db.Count(t, `SELECT count(*) FROM (
			SELECT r.slot_at < lag(r.slot_at) OVER (ORDER BY s.place) AS inverted
			FROM   unnest($1::text[]) WITH ORDINALITY AS s(id, place) JOIN servo.runs r ON r.id = s.id::uuid
			WHERE  r.slot_at IS NOT NULL AND r.triggered_by = $2) AS x WHERE inverted`, l.began, "config/"+name))
	}
	verifytest.Clean(t, l.db)
}

// logicalClock makes the database's clock advance by a step each time it is read: time passes with
// work, and no test waits for it.
func logicalClock(t testing.TB, db *servotest.Database, from time.Time, step time.Duration) {
	t.Helper()
	db.Exec(t, fmt.Sprintf(`
		CREATE SEQUENCE servo.test_ticks;
		GRANT USAGE ON SEQUENCE servo.test_ticks TO servo_tenant, servo_engine;
		CREATE OR REPLACE FUNCTION servo.clock() RETURNS timestamptz LANGUAGE sql VOLATILE
			AS $$ SELECT timestamptz '%s' + nextval('servo.test_ticks') * interval '%d microseconds' $$`,
		from.UTC().Format(time.RFC3339Nano), step.Microseconds()))
}

// fleet is several servers on one database, each with its own connections.
type fleet struct {
	*bundle

	servers []*engine.Engine
	mu      sync.Mutex
	began   map[id.Config][]time.Time // slots in the order in which their tasks began
	done    int
}

func newFleet(t *testing.T, servers int) *fleet {
	t.Helper()
	db := servotest.DB(t)
	f := &fleet{bundle: setupOn(t, db, engine.Config{Server: "server-0"}), began: map[id.Config][]time.Time{}}
	for i := range servers {
		s, err := store.Open(t.Context(), store.Options{URL: db.URL, MaxConns: 6})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		e := engine.New(s, engine.Config{Server: fmt.Sprintf("server-%d", i+1), Quotas: tenant.NoLimits(), QueueWithoutWorkers: 5000}, nil)
		t.Cleanup(e.Stop)
		f.servers = append(f.servers, e)
	}
	return f
}

// work lets a server act until ctx ends: each act under a context that may be cancelled at any
// moment, as if the server had died.
func (f *fleet) work(ctx context.Context, e *engine.Engine, seed uint64, act func(context.Context) error) error {
	dice := rand.New(rand.NewPCG(seed, 14))
	for ctx.Err() == nil {
		one, kill := context.WithCancel(ctx)
		if dice.IntN(8) == 0 {
			timer := time.AfterFunc(time.Duration(dice.IntN(5000))*time.Microsecond, kill)
			defer timer.Stop()
		}
		err := act(one)
		killed := one.Err() != nil
		kill()
		if err != nil && !killed && !errors.Is(err, store.ErrDutyLost) && !fault.Is(err, fault.Unavailable) {
			return fmt.Errorf("%v: %w", e, err)
		}
	}
	return nil
}

func (f *fleet) claimAndComplete(ctx context.Context, e *engine.Engine) error {
	if _, _, err := f.Admit(ctx, f.duty, 1000); err != nil {
		return err
	}
	leases, err := e.Claim(context.WithoutCancel(ctx), engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 3, Start: true})
	if err != nil || len(leases) == 0 {
		return err
	}
	for _, l := range leases {
		r, err := f.db.GetRun(context.WithoutCancel(ctx), store.RunKey{Tenant: l.Tenant, Run: l.Run})
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.began[*r.Config] = append(f.began[*r.Config], r.Slot)
		f.done++
		f.mu.Unlock()
		if _, err := e.ReportOne(context.WithoutCancel(ctx), report(l, engine.Complete{})); err != nil {
			return err
		}
	}
	return nil
}

func TestBufferedSlotsStartInOrder(t *testing.T) {
	t.Parallel()
	const (
		configs = 8
		runs    = 280
	)
	f := newFleet(t, 3)
	logicalClock(t, f.db, midnight, 25*time.Millisecond)
	for i := range configs {
		_, err := f.SaveConfigs(t.Context(), engine.SaveConfigs{Tenant: f.tenant, Meta: engineMeta, Configs: []engine.SaveConfig{{
			Name: fmt.Sprintf("every-second-%d", i), Spec: config.Spec{
				Pipeline: "single", Trigger: config.Trigger{Interval: asset.Duration(time.Second)}, Overlap: config.OverlapBufferAll,
				Catchup: config.Catchup{Policy: config.CatchupAll, MaxSlots: 100},
			},
		}}})
		require.NoError(t, err)
	}
	deadlocks := func() int {
		return f.db.Count(t, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)
	}
	before := deadlocks()

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var failures []error
	var group sync.WaitGroup
	run := func(e *engine.Engine, seed uint64, act func(context.Context) error) {
		group.Go(func() {
			if err := f.work(ctx, e, seed, act); err != nil {
				f.mu.Lock()
				failures = append(failures, err)
				f.mu.Unlock()
				stop()
			}
		})
	}
	for i, e := range f.servers {
		n := uint64(i)
		run(e, n, func(ctx context.Context) error { _, err := e.FireDue(ctx, 1000); return err })
		run(e, n+10, func(ctx context.Context) error { _, err := e.StartRuns(ctx, f.duty, 100); return err })
		run(e, n+20, func(ctx context.Context) error {
			err := f.claimAndComplete(ctx, e)
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.done >= runs {
				stop()
			}
			return err
		})
	}
	group.Wait()
	require.Empty(t, failures)

	inversions := 0
	for _, slots := range f.began {
		for i := 1; i < len(slots); i++ {
			if slots[i].Before(slots[i-1]) {
				inversions++
			}
		}
	}
	require.Zero(t, inversions)
	require.Equal(t, before, deadlocks())
	require.GreaterOrEqual(t, f.done, runs)
	f.db.SetClock(t, midnight.Add(24*time.Hour)) // readers cannot draw from a sequence
	verifytest.Clean(t, f.db)
}
