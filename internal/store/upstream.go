package store

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// UpstreamResult is the result of an upstream task.
type UpstreamResult struct {
	Run       id.Run // the task's run, or an earlier one that executed the upstream
	Task      id.Task
	Asset     string // "" if there is no such task
	Partition string
	Result    json.RawMessage // nil if there is none, or if it is
	Omitted   bool            // too large to be included: it is in the task's row
}

// UpstreamsOf are the upstreams of one claimed task, at first with ids only.
type UpstreamsOf struct {
	Tenant  id.Tenant
	Results []UpstreamResult
}

// UpstreamResults fills in the results of the upstreams of claimed tasks, up to most bytes for each
// task, the smallest first.
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
	rows, err := tx.q.UpstreamResults(ctx, db.UpstreamResultsParams{
		Most: int64(most), Nths: ordinals(len(all)),
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

// AssetOf is an asset of a workspace.
type AssetOf struct {
	Tenant    id.Tenant
	Workspace id.Workspace
	Asset     string
}

// LatestResults finds the last successful task of each asset, by the index of the asset. It omits
// assets without one.
func (tx *Tx) LatestResults(ctx context.Context, assets []AssetOf) (map[int]TaskKey, error) {
	if len(assets) == 0 {
		return nil, nil
	}
	return index(func(r db.LatestResultsRow) (int, TaskKey) {
		return int(r.Nth), taskKey(assets[r.Nth].Tenant.UUID, r.RunID, r.ID)
	})(tx.q.LatestResults(ctx, db.LatestResultsParams{
		Nths:         ordinals(len(assets)),
		TenantIds:    column(assets, func(a AssetOf) uuid.UUID { return a.Tenant.UUID }),
		WorkspaceIds: column(assets, func(a AssetOf) uuid.UUID { return a.Workspace.UUID }),
		Assets:       column(assets, func(a AssetOf) string { return a.Asset }),
	}))
}

// TaskInputs returns the tasks whose results a task gets as inputs, by asset, without the results.
func (s *Store) TaskInputs(ctx context.Context, key TaskKey) ([]UpstreamResult, error) {
	var inputs []UpstreamResult
	err := s.Tenant(ctx, key.Tenant.String(), func(ctx context.Context, tx *Tx) error {
		rows, err := tx.q.TaskInputs(ctx, db.TaskInputsParams{TenantID: key.Tenant.UUID, RunID: key.Run.UUID, TaskID: key.Task.UUID})
		inputs = make([]UpstreamResult, len(rows))
		for i, r := range rows {
			inputs[i] = UpstreamResult{Run: id.Of[id.Run](r.RunID), Task: id.Of[id.Task](r.TaskID), Asset: r.Asset, Partition: r.Partition}
		}
		return err
	})
	return inputs, err
}

// InheritedIDs is the column of inherited tasks: run, task, run, task and so on.
func InheritedIDs(inherited []run.Inherited) []uuid.UUID {
	var ids []uuid.UUID
	for _, from := range inherited {
		ids = append(ids, from.Run.UUID, from.Task.UUID)
	}
	return ids
}

// inheritedFrom parses the column of inherited tasks. It omits an incomplete pair, which verify reports.
func inheritedFrom(tenant uuid.UUID, ids []uuid.UUID) []TaskKey {
	var keys []TaskKey
	for ; len(ids) > 1; ids = ids[2:] {
		keys = append(keys, taskKey(tenant, ids[0], ids[1]))
	}
	return keys
}
