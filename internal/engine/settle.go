package engine

import (
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// inFlight says that a task counts against its tenant's quota and its pool's.
func inFlight(s run.TaskState) bool { return s == run.Queued || s.Leased() }

// workerDied says that the attempt that ends here ended with its worker. How long that took says
// nothing about the task: it is neither charged to its tenant nor learnt from.
func (t *liveTask) workerDied() bool {
	return t.task.Deaths > t.deaths || t.task.State == run.Failed && t.task.Failure.IsWorkerDeath()
}

// settle says to admission which tasks are in flight no longer, what their tenants had been
// charged for them, and what their attempts have taken: a note for each tenant, pool and
// asset, however many tasks there are.
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
