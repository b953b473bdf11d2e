package engine_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// witness remembers what it was notified of.
type witness struct {
	mu    sync.Mutex
	moves []engine.TaskMove
	runs  []string
	at    []time.Time
	notes []string
}

func (w *witness) Committed(done *engine.Committed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = append(w.at, done.At)
	w.moves = append(w.moves, done.Tasks...)
	for _, r := range done.Runs {
		from := "new"
		if r.From != 0 {
			from = r.From.String()
		}
		w.runs = append(w.runs, fmt.Sprintf("%s → %s, %d left", from, r.Run.State, r.Run.Remaining))
	}
	for _, sla := range done.Breaches {
		w.notes = append(w.notes, fmt.Sprintf("breached %s", sla))
	}
}

func (w *witness) Refused(quota string)                { w.note("refused by %s", quota) }
func (w *witness) Decided(slots []engine.SlotsDecided) { w.note("decided %v", slots) }

func (w *witness) Contended(got bool, _ time.Duration) { w.note("contended, got it: %t", got) }
func (w *witness) Admitted(r engine.AdmissionRound) {
	w.note("admitted %d, failed: %t", r.Admitted, r.Failed)
}

func (w *witness) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

// taskMoves returns the moves since the last call.
func (w *witness) taskMoves() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var texts []string
	for _, m := range w.moves {
		texts = append(texts, fmt.Sprintf("%s: %s → %s", m.Asset, m.From, m.To))
	}
	w.moves = nil
	return texts
}

func TestObserver(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	watched := func(t *testing.T) (*bundle, *witness) {
		t.Helper()
		w := &witness{}
		return setupOn(t, servotest.DB(t), engine.Config{Observer: w}), w
	}

	t.Run("every move of a task and every change of its run is observed, with its start", func(t *testing.T) {
		t.Parallel()
		b, w := watched(t)
		b.db.SetClock(t, noon)
		b.trigger(t, "single")
		require.Equal(t, []string{"new → RUNNING, 1 left"}, w.runs)
		require.Equal(t, noon, w.at[0].UTC())
		b.db.SetClock(t, noon.Add(time.Second))
		b.admit(t)
		b.db.SetClock(t, noon.Add(3*time.Second))
		lease := b.claim(t, 1, true)[0]
		b.db.SetClock(t, noon.Add(10*time.Second))
		b.report(t, lease, engine.Complete{})

		queued, claimed, ended := w.moves[0], w.moves[1], w.moves[2]
		require.Equal(t, []string{"s/one: READY → QUEUED", "s/one: QUEUED → RUNNING", "s/one: RUNNING → SUCCEEDED"}, w.taskMoves())
		require.Equal(t, []string{"new → RUNNING, 1 left", "RUNNING → SUCCEEDED, 0 left"}, w.runs)
		require.Equal(t, noon, queued.Since.UTC())
		require.Equal(t, noon.Add(time.Second), claimed.Since.UTC())
		require.Equal(t, noon.Add(3*time.Second), ended.StartedAt.UTC())
		require.Equal(t, run.Success, ended.Outcome)
		require.Equal(t, b.tenant, ended.Tenant)
		require.Equal(t, lease.Workspace, ended.Workspace)
		require.Equal(t, "default", ended.Pool)
		require.EqualValues(t, 1, ended.Attempt)
		require.Equal(t, noon, claimed.ReadyAt.UTC(), "it was ready when its run was made")
		require.Equal(t, lease.Workspace, claimed.Workspace)
	})

	t.Run("a run's trace is observed with all its changes, and recorded with its workers' reports", func(t *testing.T) {
		t.Parallel()
		b, w := watched(t)
		const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		triggered, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "single", Meta: event.Meta{Actor: "jo", Trace: trace}})
		require.NoError(t, err)
		lease := b.one(t)
		require.Equal(t, trace, lease.Trace)
		require.Equal(t, trace, w.moves[1].Trace, "of the claim")
		b.report(t, lease, engine.Complete{})
		require.Equal(t, trace, w.moves[2].Trace)
		require.Equal(t, 0, b.db.Count(t, `SELECT count(*) FROM servo.run_events WHERE run_id = $1 AND trace <> $2 AND type IN ('run.created', 'task.succeeded', 'run.ended')`,
			triggered.Run.UUID, trace))
	})

	t.Run("moves of one transaction are observed one by one", func(t *testing.T) {
		t.Parallel()
		b, w := watched(t)
		b.trigger(t, "single")
		b.admit(t)
		lease := b.claim(t, 1, false)[0]
		w.taskMoves()
		_, errs := b.Report(t.Context(), []engine.Report{report(lease, engine.Start{}), report(lease, engine.Complete{})})
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		require.Equal(t, []string{"s/one: DISPATCHED → RUNNING", "s/one: RUNNING → SUCCEEDED"}, w.taskMoves())
	})

	t.Run("a failure is observed with its code, and with its effect downstream", func(t *testing.T) {
		t.Parallel()
		b, w := watched(t)
		b.trigger(t, "diamond")
		lease := b.one(t)
		w.taskMoves()
		b.report(t, lease, engine.Fail{Failure: run.Failure{Code: "SCHEMA_VIOLATION", Message: "no"}})
		require.Equal(t, "SCHEMA_VIOLATION", w.moves[0].Failure)
		require.Empty(t, w.moves[1].Failure, "nothing of its own has failed")
		require.Len(t, w.moves, 4)
		require.Equal(t, run.Skipped, w.moves[3].To)
		require.Equal(t, run.UpstreamFailed, w.moves[3].Outcome)
	})

	t.Run("refused commands and those without effect are not observed", func(t *testing.T) {
		t.Parallel()
		b, w := watched(t)
		b.trigger(t, "single")
		lease := b.one(t)
		b.report(t, lease, engine.Complete{})
		moved := len(w.at)
		require.True(t, b.report(t, lease, engine.Complete{}).Repeat)
		require.ErrorContains(t, b.reportError(t, lease, engine.Fail{Failure: run.Failure{Code: "TIMEOUT", Message: "no"}}), "")
		require.Empty(t, b.claim(t, 1, true))
		require.Len(t, w.at, moved)
	})

	t.Run("rounds of admission, refusals and held locks are observed", func(t *testing.T) {
		t.Parallel()
		w := &witness{}
		quotas := tenant.NoLimits()
		quotas.MaxConcurrentRuns = 1
		b := setupOn(t, servotest.DB(t), engine.Config{Observer: w, Quotas: quotas})
		b.deploy(t, `{version: 1, assets: [{key: s/one, go: {}}], pipelines: [{name: locked, select: [s/one]}, {name: free, overlap: allow, select: [s/one]}]}`)
		b.trigger(t, "locked")
		b.admit(t)
		_, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "free"})
		require.Error(t, err)
		again, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "locked"})
		require.NoError(t, err)
		require.True(t, again.AlreadyRunning)
		require.Equal(t, []string{"admitted 1, failed: false", "refused by max_concurrent_runs", "contended, got it: false"}, w.notes)
	})

	t.Run("a rolled back change is not observed", func(t *testing.T) {
		t.Parallel()
		b, w := watched(t)
		b.trigger(t, "single")
		_, _, err := b.Admit(t.Context(), store.Duty{Name: "admission", Holder: "missing", Epoch: 7}, 10)
		require.ErrorIs(t, err, store.ErrDutyLost)
		require.Empty(t, w.taskMoves())
		require.Empty(t, w.notes, "that another server admits is no round")
	})
}
