package engine

import (
	"cmp"
	"context"
	"slices"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// One writer at a time (docs/adr/0049-partition-holds.md): a task holds its partitions from its first
// admission to its end. Every way of admission calls holdPartitions, under the admission duty. Every end of
// a task calls releaseHolds. internal/proof/model explores the two.

// blockedTasks are tasks of a round that cannot be admitted since other tasks hold their partitions.
type blockedTasks struct {
	held bool // some have left the order of admission
	left bool // some stay in it: another task of the round comes first, or the hold is being released
}

// holdPartitions removes the tasks from a round whose partitions another task holds, and notes the holds
// that the others get when they are admitted. Scheduled work comes before backfills, by priority. With
// ready, the tasks are rows of ready_q: those that wait for a hold leave the order of admission. It costs
// nothing if no task has partitions.
func (w *working) holdPartitions(ctx context.Context, tx *store.Tx, tasks map[store.ShareKey][]store.ReadyTask, ready bool) (blocked blockedTasks, err error) {
	wanted, priority := w.holdsWanted(tasks)
	if len(wanted) == 0 {
		return blocked, nil
	}
	found, err := tx.HoldsInTheWay(ctx, wanted)
	if err != nil {
		return blocked, err
	}
	slices.SortStableFunc(found, func(a, b store.HoldFound) int { return cmp.Compare(priority[b.Task], priority[a.Task]) })
	holds, out := map[id.Task]*store.Hold{}, map[id.Task]bool{}
	var waits []store.HoldFound
	var taken []store.Hold
	for _, f := range found {
		switch {
		case f.Holder == f.TaskKey: // since an earlier admission
		case f.Holder != store.TaskKey{}:
			waits, out[f.Task] = append(waits, f), true
		case slices.ContainsFunc(taken, f.Overlaps):
			blocked.left, out[f.Task] = true, true
		default:
			taken = append(taken, f.Hold)
			holds[f.Task] = &f.Hold
		}
	}
	if ready {
		gone, err := tx.WaitForHolds(ctx, waits)
		if err != nil {
			return blocked, err
		}
		blocked.held = len(gone) > 0
		blocked.left = blocked.left || len(gone) < len(waits)
	}
	for key, list := range tasks {
		list = slices.DeleteFunc(list, func(t store.ReadyTask) bool { return out[t.ID] })
		for i := range list {
			list[i].Hold = holds[list[i].ID]
		}
		tasks[key] = list
	}
	return blocked, nil
}

// holdsWanted lists the tasks of a round that have partitions, each once, and their priorities.
func (w *working) holdsWanted(tasks map[store.ShareKey][]store.ReadyTask) (wanted []store.HoldWanted, priority map[id.Task]int16) {
	var fresh map[id.Task]run.TaskSpec
	for key := range tasks {
		for _, t := range tasks[key] {
			if _, known := priority[t.ID]; known || !w.divided(t.Task) {
				continue
			}
			if priority == nil {
				priority, fresh = map[id.Task]int16{}, w.newSpecs()
			}
			priority[t.ID] = t.Priority
			want := store.HoldWanted{TaskKey: keyOf(t.Task), Asset: t.Asset}
			if spec, isNew := fresh[t.ID]; isNew {
				if spec.Range == nil {
					continue
				}
				want.New = &store.Hold{
					Workspace: w.runs[t.Run].run.Workspace, Series: spec.Range.Series, Range: partition.Range{First: spec.Range.First, Last: spec.Range.Last},
				}
			}
			wanted = append(wanted, want)
		}
	}
	// In the order of their ids: the rows of holds are locked in it.
	slices.SortFunc(wanted, func(a, b store.HoldWanted) int { return slices.Compare(a.Task.UUID[:], b.Task.UUID[:]) })
	return wanted, priority
}

// divided reports whether the run of a ready task has partitions.
func (w *working) divided(t run.Task) bool {
	if parent := w.runs[t.Run]; parent != nil {
		return parent.run.Divided
	}
	return t.Divided
}

// newSpecs are the tasks that the transaction has created: they have no rows yet.
func (w *working) newSpecs() map[id.Task]run.TaskSpec {
	specs := make(map[id.Task]run.TaskSpec, len(w.changes.NewTasks))
	for _, t := range w.changes.NewTasks {
		specs[t.Key.Task] = t.Spec
	}
	return specs
}

// hold notes that an admitted task holds its partitions.
func (w *working) hold(t store.ReadyTask) {
	if t.Hold != nil {
		w.changes.Holds = append(w.changes.Holds, *t.Hold)
	}
}

// endHold notes that a task has ended, so that it holds nothing. A task that was never ready had nothing.
func (w *working) endHold(of run.Run, ended run.Task, from run.TaskState) {
	if of.Divided && from != run.Pending && from != 0 {
		w.ended = append(w.ended, keyOf(ended))
	}
}

// releaseHolds releases the holds of the tasks that the transaction ends. Tasks that waited for them are in
// the order of admission again.
func (w *working) releaseHolds(ctx context.Context, tx *store.Tx) error {
	opened, err := tx.ReleaseHolds(ctx, w.ended)
	w.changes.Settlements = append(w.changes.Settlements, store.Arrivals(opened)...)
	for _, share := range opened {
		w.reopened = append(w.reopened, share.Pool)
	}
	return err
}
