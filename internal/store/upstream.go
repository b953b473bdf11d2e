package store

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/id"
	"go.arco.dev/servo/internal/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// UpstreamResult is what an upstream task has left for a task that waited for it.
type UpstreamResult struct {
	Run       id.Run // the task's own, or an earlier one that it retries
	Task      id.Task
	Asset     string // "" if there is no such task
	Partition string
	Result    json.RawMessage // nil if there is none, or if it is
	Omitted   bool            // too large to come along: it is in the task's row
}

// UpstreamsOf are the upstreams of one claimed task, known by their ids so far.
type UpstreamsOf struct {
	Tenant  id.Tenant
	Results []UpstreamResult
}

// UpstreamResults fills in what the upstreams of claimed tasks have left, results of at most
// most bytes for each task. The smallest go first.
func (tx *Tx) UpstreamResults(ctx context.Context, tasks []UpstreamsOf, most int) error {
	type wanted struct {
		task   int32
		tenant id.Tenant
		result *UpstreamResult
	}
	var all []wanted
	for i, t := range tasks {
		for j := range t.Results {
			all = append(all, wanted{int32(i), t.Tenant, &t.Results[j]})
		}
	}
	if len(all) == 0 {
		return nil
	}
	nths := make([]int32, len(all))
	for i := range nths {
		nths[i] = int32(i)
	}
	rows, err := tx.q.UpstreamResults(ctx, db.UpstreamResultsParams{
		Most: int64(most), Nths: nths,
		Leases:    column(all, func(w wanted) int32 { return w.task }),
		TenantIds: column(all, func(w wanted) uuid.UUID { return w.tenant.UUID }),
		RunIds:    column(all, func(w wanted) uuid.UUID { return w.result.Run.UUID }),
		TaskIds:   column(all, func(w wanted) uuid.UUID { return w.result.Task.UUID }),
	})
	for _, r := range rows {
		found := all[r.Nth].result
		found.Asset, found.Partition, found.Result, found.Omitted = r.Asset, r.Partition, r.Result, r.Omitted
	}
	return err
}

// InheritedIDs is what a task inherits as its row keeps it: run, task, run, task and so on.
func InheritedIDs(inherited []run.Inherited) []uuid.UUID {
	var ids []uuid.UUID
	for _, from := range inherited {
		ids = append(ids, from.Run.UUID, from.Task.UUID)
	}
	return ids
}

// inheritedFrom reads such a column. Half a pair is left out, and found by verify.
func inheritedFrom(tenant uuid.UUID, ids []uuid.UUID) []TaskKey {
	var keys []TaskKey
	for ; len(ids) > 1; ids = ids[2:] {
		keys = append(keys, taskKey(tenant, ids[0], ids[1]))
	}
	return keys
}
