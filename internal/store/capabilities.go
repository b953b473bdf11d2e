package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Everything is the digest of a worker that declares no capabilities: it can run every task.
const Everything = ""

// seeCapabilities writes the lists of capabilities that workers have declared, each once.
func (tx *Tx) seeCapabilities(ctx context.Context, workers []SeenWorker, now time.Time) error {
	params, seen := db.SeeCapabilitiesParams{Now: now}, map[string]bool{Everything: true}
	for _, w := range workers {
		if seen[w.Digest] {
			continue
		}
		seen[w.Digest] = true
		list, err := json.Marshal(w.Capabilities)
		if err != nil {
			return err
		}
		params.Digests, params.Capabilities = append(params.Digests, w.Digest), append(params.Capabilities, string(list))
	}
	if len(params.Digests) == 0 {
		return nil
	}
	return tx.q.SeeCapabilities(ctx, params)
}

// CapabilitySets reads lists of capabilities by their digests.
func (tx *Tx) CapabilitySets(ctx context.Context, digests []string) (map[string][]string, error) {
	return index(func(r db.CapabilitySetsRow) (string, []string) {
		return r.Digest, r.Capabilities
	})(tx.q.CapabilitySets(ctx, digests))
}

// LivePoolSets reads the capabilities of workers that were seen within alive: the digests by pool.
// It omits pools without live workers.
func (tx *Tx) LivePoolSets(ctx context.Context, pools []string, alive time.Duration) (map[string][]string, error) {
	rows, err := tx.q.LivePoolSets(ctx, db.LivePoolSetsParams{Pools: pools, Alive: alive.Seconds()})
	found := map[string][]string{}
	for _, r := range rows {
		found[r.Pool] = append(found[r.Pool], r.Digest)
	}
	return found, err
}

// Lacking is a capability that no live worker of a pool has, and a tenant with tasks that need it.
type Lacking struct {
	ShareKey

	Needs string
}

// mostHeld is how many of the first tasks of a tenant and pool are checked for a lacking worker.
const mostHeld = 1000

// HoldLacking holds ready tasks that no live worker can run: the given ones, and others of the same
// tenant, pool and capability.
func (tx *Tx) HoldLacking(ctx context.Context, lacking []Lacking, met []ReadyTask) error {
	if len(lacking) == 0 {
		return nil
	}
	return tx.q.HoldLacking(ctx, db.HoldLackingParams{
		TenantIds: column(lacking, func(l Lacking) uuid.UUID { return l.Tenant.UUID }),
		Pools:     column(lacking, func(l Lacking) string { return l.Pool }),
		Needs:     column(lacking, func(l Lacking) string { return l.Needs }),
		Most:      mostHeld,
		RunIds:    column(met, func(t ReadyTask) uuid.UUID { return t.Run.UUID }),
		TaskIds:   column(met, func(t ReadyTask) uuid.UUID { return t.ID.UUID }),
	})
}

// ReleaseCapable releases tasks that were held for lack of a worker, up to most of each pool and
// capability, if a worker that can run them was seen within alive. It waits for the current round
// of admission.
func (tx *Tx) ReleaseCapable(ctx context.Context, duty string, alive time.Duration, most int) (int, error) {
	if err := tx.q.WaitForDuty(ctx, duty); err != nil {
		return 0, err
	}
	rows, err := tx.q.CapableTasks(ctx, db.CapableTasksParams{Alive: alive.Seconds(), Most: int32(most)}) //nolint:gosec // a batch size
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	err = tx.q.ReleaseReady(ctx, db.ReleaseReadyParams{
		RunIds:  column(rows, func(r db.CapableTasksRow) uuid.UUID { return r.RunID }),
		TaskIds: column(rows, func(r db.CapableTasksRow) uuid.UUID { return r.TaskID }),
	})
	if err != nil {
		return 0, err
	}
	var notes []Settlement
	noted := map[ShareKey]bool{}
	for _, r := range rows {
		if key := (ShareKey{Tenant: id.Of[id.Tenant](r.TenantID), Pool: r.Pool}); !noted[key] {
			noted[key] = true
			notes = append(notes, Settlement{ShareKey: key, Arrived: true})
		}
	}
	return len(rows), tx.insertSettlements(ctx, Changes{Settlements: notes})
}

// QueuedWithoutWorker returns candidates: queued tasks that no worker of their pool can run that
// was seen within alive. It omits pools without workers.
func (tx *Tx) QueuedWithoutWorker(ctx context.Context, alive time.Duration, most int) ([]TaskKey, error) {
	return list(func(r db.QueuedWithoutWorkerRow) TaskKey { return taskKey(r.TenantID, r.RunID, r.TaskID) })(tx.q.QueuedWithoutWorker(ctx, db.QueuedWithoutWorkerParams{Alive: alive.Seconds(), Most: int32(most)})) //nolint:gosec // a batch size
}

// LockQueued locks queued tasks, and skips rows that are locked.
func (tx *Tx) LockQueued(ctx context.Context, keys []TaskKey) ([]run.Task, error) {
	return list(taskFromQueued)(tx.q.LockQueued(ctx, db.LockQueuedParams{RunIds: column(keys, TaskKey.runID), TaskIds: column(keys, TaskKey.taskID)}))
}

// UnservedNeed is a capability that tasks of a pool wait for.
type UnservedNeed struct {
	Pool  string
	Needs string
	Tasks int // counted up to MaxDepth
}

// UnservedNeeds returns the capabilities that waiting tasks need and no worker of their pool has
// that was seen within alive.
func (s *Store) UnservedNeeds(ctx context.Context, alive time.Duration) ([]UnservedNeed, error) {
	return read(ctx, s.Snapshot, func(ctx context.Context, tx *Tx) ([]UnservedNeed, error) {
		return list(func(r db.UnservedNeedsRow) UnservedNeed {
			return UnservedNeed{Pool: r.Pool, Needs: r.Needs, Tasks: int(r.Tasks)}
		})(tx.q.UnservedNeeds(ctx, db.UnservedNeedsParams{Most: MaxDepth, Looked: MaxDepth, Alive: alive.Seconds()}))
	})
}
