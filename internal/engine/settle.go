package engine

import (
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// inFlight reports whether a task counts against the quota of its tenant and the limit of its pool.
func inFlight(s run.TaskState) bool { return s == run.Queued || s.Leased() }

// workerDied reports whether the attempt ended because its worker died. Its duration is then neither charged
// to the tenant nor used to estimate others.
func (t *liveTask) workerDied() bool {
	return t.task.Deaths > t.deaths || t.task.State == run.Failed && t.task.Failure.IsWorkerDeath()
}

// settle collects for admission the tasks that are in flight no longer, what their tenants were charged for
// them, and how long their attempts took: one settlement for each tenant, pool and asset.
func (w *working) settle() {
	type key struct {
		store.ShareKey

		asset string
	}
	notes := map[key]int{}
	for _, t := range w.changed {
		if !inFlight(t.from) || inFlight(t.task.State) {
			continue
		}
		k := key{store.ShareKey{Tenant: t.task.Tenant, Pool: t.task.Pool}, t.task.Asset}
		i, known := notes[k]
		if !known {
			i = len(w.changes.Settlements)
			notes[k] = i
			w.changes.Settlements = append(w.changes.Settlements, store.Settlement{ShareKey: k.ShareKey, Asset: k.asset})
		}
		note := &w.changes.Settlements[i]
		note.Left++
		note.Charged += float64(t.task.Cost)
		if !t.startedAt.IsZero() && !t.workerDied() {
			note.Ended++
			note.Seconds += max(0, w.now.Sub(t.startedAt).Seconds())
		}
	}
}
