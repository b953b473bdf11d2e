package engine_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// TestWhyMatchesTheLoops: in every state of the world, "nothing blocks it" and "the
// loop takes it next" are the same, for tasks before admission, tasks before a claim and runs
// before their start; and no caller reads anything of another tenant.
func TestWhyMatchesTheLoops(t *testing.T) {
	t.Parallel()
	seen := map[engine.BlockerCode]int{}
	free := map[string]int{}
	for seed := range uint64(4) {
		w := newWhyWorld(t, seed)
		for range 5 {
			w.disturb(t)
			w.checkStarts(t, seen, free)
			w.checkAdmission(t, seen, free)
			w.checkClaims(t, seen, free)
		}
	}
	t.Log("blockers:", seen, "taken:", free)
	for _, code := range []engine.BlockerCode{
		engine.BlockedByTasks, engine.BlockedByPool, engine.BlockedByQueue, engine.BlockedByOthers, engine.BlockedByOwnTasks, engine.BlockedByPause,
		engine.BlockedByDispatch, engine.BlockedByNoWorker, engine.BlockedByBusyWorkers, engine.BlockedByRuns, engine.BlockedByBacklog, engine.BlockedByOlder,
	} {
		require.Positive(t, seen[code], "no world was blocked by %s: the property did not check it", code)
	}
	require.Positive(t, free["READY"])
	require.Positive(t, free["QUEUED"])
	require.Positive(t, free["PENDING"])
}

const whyManifest = `
version: 1
assets:
  - {key: p/a, exec: {command: [run]}}
  - {key: p/b, exec: {command: [run]}, upstream: [p/a]}
  - {key: p/c, exec: {command: [run]}, pool: fetch}
  - {key: p/d, exec: {command: [run]}, pool: lonely}
pipelines:
  - {name: mixed, overlap: allow, select: ["p/*"]}
  - {name: one, overlap: allow, select: [p/a]}
`

// whyWorld is a few tenants that share pools, with limits of every kind.
type whyWorld struct {
	*bundle

	rand    *rand.Rand
	round   int
	tenants []id.Tenant
	runs    []store.RunKey // that have not ended
	pending []store.RunKey // of these, that wait for their start
	workers []store.SeenWorker
	leases  []engine.Lease
}

func newWhyWorld(t *testing.T, seed uint64) *whyWorld {
	t.Helper()
	w := &whyWorld{rand: rand.New(rand.NewPCG(seed, 7))} //nolint:gosec // a test
	w.round = 2 + w.rand.IntN(12)
	w.bundle = setupOn(t, servotest.DB(t), engine.Config{
		Round: w.round, QueueTarget: 3 + w.rand.IntN(10), QueueWithoutWorkers: 1 + w.rand.IntN(4),
	})
	manifest, err := asset.Parse([]byte(whyManifest), "servo.yaml")
	require.NoError(t, err)
	for i := range 2 + w.rand.IntN(3) {
		owner, err := w.CreateTenant(t.Context(), fmt.Sprintf("tenant-%d", i), engineMeta)
		require.NoError(t, err)
		_, err = w.Deploy(t.Context(), owner, "default", manifest, engineMeta)
		require.NoError(t, err)
		w.tenants = append(w.tenants, owner)
		w.changeQuotas(t, owner)
	}
	settings := platform.PoolSettings{Kind: platform.Pull, MaxConcurrency: int32(1 + w.rand.IntN(5)), TimeoutSeconds: 30} //nolint:gosec // small
	_, err = w.CreatePool(t.Context(), "fetch", settings, engineMeta)
	require.NoError(t, err)
	w.workers = []store.SeenWorker{
		{Name: "both", Pool: "default", Slots: 3},
		{Name: "both", Pool: "fetch", Slots: 3},
		{Name: "more", Pool: "default", Slots: 1 + w.rand.Int32N(3)},
	}
	_, err = w.db.RenewPresence(t.Context(), store.Presence{Name: "server", StartedAt: time.Now(), Workers: w.workers})
	require.NoError(t, err)
	return w
}

func (w *whyWorld) changeQuotas(t *testing.T, owner id.Tenant) {
	t.Helper()
	quotas, version, err := w.db.GetQuotas(t.Context(), owner)
	require.NoError(t, err)
	some := func(most int32) int32 {
		if w.rand.IntN(3) == 0 {
			return platform.NoLimit
		}
		return w.rand.Int32N(most + 1)
	}
	quotas.MaxConcurrentTasks, quotas.MaxQueuedTasks, quotas.MaxConcurrentRuns = some(8), some(12), 1+some(4)
	if quotas.MaxConcurrentRuns == 0 {
		quotas.MaxConcurrentRuns = platform.NoLimit
	}
	quotas.FairnessWeight = 0.5 + 3*w.rand.Float64()
	_, err = w.SetQuotas(t.Context(), owner, quotas, version, engineMeta)
	require.NoError(t, err)
}

// disturb changes the world in some of the ways in which worlds change.
func (w *whyWorld) disturb(t *testing.T) {
	t.Helper()
	w.finishSome(t)
	for range 3 + w.rand.IntN(4) {
		owner := w.tenants[w.rand.IntN(len(w.tenants))]
		triggered, err := w.TriggerRun(t.Context(), engine.Trigger{
			Tenant: owner, Pipeline: []string{"mixed", "one"}[w.rand.IntN(2)], Priority: 1 + int16(w.rand.IntN(10)), WaitForQuota: true, //nolint:gosec // small
		})
		require.NoError(t, err)
		w.runs = append(w.runs, store.RunKey{Tenant: owner, Run: triggered.Run})
	}
	owner := w.tenants[w.rand.IntN(len(w.tenants))]
	pause := engine.AssetPause{Tenant: owner, Asset: []string{"p/a", "p/c"}[w.rand.IntN(2)], Meta: engineMeta}
	var err error
	switch w.rand.IntN(6) {
	case 0:
		_, err = w.PauseAsset(t.Context(), pause)
	case 1:
		_, err = w.ResumeAsset(t.Context(), pause)
	case 2:
		_, err = w.PauseDispatch(t.Context(), engine.Turn{Meta: engineMeta})
	case 3:
		w.changeQuotas(t, owner)
	default:
		_, err = w.ResumeDispatch(t.Context(), engine.Turn{Meta: engineMeta})
	}
	require.NoError(t, err)
	// What was queued leaves notes for admission, which has not read them.
	for _, key := range w.runs[:w.rand.IntN(len(w.runs)/2+1)] {
		_, _ = w.CancelRun(t.Context(), engine.Cancel{Tenant: key.Tenant, Run: key.Run, Meta: engineMeta}) // or it has ended
	}
	w.look(t)
}

// finishSome ends a part of what runs. What attempts have taken changes what the next ones are
// expected to take, so admission is let to take note of it without admitting anything.
func (w *whyWorld) finishSome(t *testing.T) {
	t.Helper()
	n := w.rand.IntN(len(w.leases) + 1)
	for _, l := range w.leases[:n] {
		_, _ = w.ReportOne(t.Context(), report(l, engine.Complete{})) // or its run was cancelled
	}
	w.leases = w.leases[n:]
	if n > 0 {
		_, _, err := w.Admit(t.Context(), w.duty, 0)
		require.NoError(t, err)
	}
}

// look forgets the runs that have ended, and returns which wait for their start.
func (w *whyWorld) look(t *testing.T) {
	t.Helper()
	w.pending = nil
	w.runs = slices.DeleteFunc(w.runs, func(key store.RunKey) bool {
		r, err := w.db.GetRun(t.Context(), key)
		require.NoError(t, err)
		if r.State == run.RunPending {
			w.pending = append(w.pending, key)
		}
		return r.State.Terminal()
	})
}

// in are the tasks of all tenants that are in a state, by pool.
func (w *whyWorld) in(t *testing.T, state run.TaskState) map[string][]store.TaskKey {
	t.Helper()
	found := map[string][]store.TaskKey{}
	for _, key := range w.runs {
		tasks, err := w.db.ListTasks(t.Context(), key, store.TaskFilter{States: []run.TaskState{state}}, store.BeforeFirst, 100)
		require.NoError(t, err)
		for _, task := range tasks {
			found[task.Pool] = append(found[task.Pool], store.TaskKey{Tenant: key.Tenant, Run: key.Run, Task: task.ID})
		}
	}
	return found
}

// mostAsked is of how many things the world is asked about at once.
const mostAsked = 8

// ask explains some of the tasks.
func (w *whyWorld) ask(t *testing.T, tasks []store.TaskKey, seen map[engine.BlockerCode]int) map[store.TaskKey]engine.Why {
	t.Helper()
	answers := map[store.TaskKey]engine.Why{}
	w.rand.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
	for _, key := range tasks[:min(len(tasks), mostAsked)] {
		why, err := w.WhyTask(t.Context(), key)
		require.NoError(t, err)
		w.requireComplete(t, key.Tenant, why, seen)
		answers[key] = why
	}
	return answers
}

// requireComplete requires every blocker to be complete, and nothing of other tenants in it.
func (w *whyWorld) requireComplete(t *testing.T, owner id.Tenant, why engine.Why, seen map[engine.BlockerCode]int) {
	t.Helper()
	require.NotEmpty(t, why.Next)
	for _, b := range why.Blockers {
		seen[b.Code]++
		require.NotEmpty(t, b.Message)
		require.NotEmpty(t, b.Remedy)
		require.NotNil(t, b.Values)
	}
	text, err := json.Marshal(why)
	require.NoError(t, err)
	for _, key := range w.runs {
		if key.Tenant != owner {
			require.NotContains(t, string(text), key.Run.String())
			require.NotContains(t, string(text), key.Tenant.String())
		}
	}
}

// checkAdmission holds the answers to what the next round does.
func (w *whyWorld) checkAdmission(t *testing.T, seen map[engine.BlockerCode]int, free map[string]int) {
	t.Helper()
	for range 2 { // the round after it, too: what was held is held then
		ready := slices.Concat(slices.Collect(maps.Values(w.in(t, run.Ready)))...)
		answers := w.ask(t, ready, seen)
		_, _, err := w.Admit(t.Context(), w.duty, w.round)
		require.NoError(t, err)
		for key, why := range answers {
			now, err := w.db.GetTask(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, len(why.Blockers) == 0, now.State == run.Queued, "task %s of %d ready is %s: %+v", key.Task, len(ready), now.State, why)
			if now.State == run.Queued {
				free["READY"]++
			}
		}
	}
}

// checkClaims holds the answers to what the workers of each pool get when each fills its slots.
func (w *whyWorld) checkClaims(t *testing.T, seen map[engine.BlockerCode]int, free map[string]int) {
	t.Helper()
	queued := w.in(t, run.Queued)
	for _, pool := range []string{"default", "fetch", "lonely"} {
		answers := w.ask(t, queued[pool], seen)
		got := map[id.Task]bool{}
		for _, worker := range w.workers {
			if worker.Pool != pool {
				continue
			}
			held := w.db.Count(t, `SELECT count(*) FROM servo.leases WHERE worker = '`+worker.Name+`'`)
			room := int(worker.Slots) - held
			if room <= 0 {
				continue
			}
			leases, err := w.Claim(t.Context(), engine.ClaimRequest{
				Worker: worker.Name, Claim: newClaim(), Pools: []string{pool}, Max: room, Slots: int(worker.Slots), Start: true,
			})
			require.NoError(t, err)
			for _, l := range leases {
				got[l.Task] = true
			}
			w.leases = append(w.leases, leases...)
		}
		for key, why := range answers {
			require.Equal(t, len(why.Blockers) == 0, got[key.Task], "task %s in pool %s: %+v", key.Task, pool, why)
			if got[key.Task] {
				free["QUEUED"]++
			}
		}
	}
}

// checkStarts holds the answers to which runs start next.
func (w *whyWorld) checkStarts(t *testing.T, seen map[engine.BlockerCode]int, free map[string]int) {
	t.Helper()
	answers := map[store.RunKey]engine.Why{}
	for _, key := range w.pending {
		why, err := w.WhyRun(t.Context(), key)
		require.NoError(t, err)
		w.requireComplete(t, key.Tenant, why, seen)
		answers[key] = why
	}
	_, err := w.StartRuns(t.Context(), w.duty, w.round)
	require.NoError(t, err)
	for key, why := range answers {
		now, err := w.db.GetRun(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, len(why.Blockers) == 0, now.State == run.RunRunning, "run %s is %s: %+v", key.Run, now.State, why)
		if now.State == run.RunRunning {
			free["PENDING"]++
		}
	}
}
