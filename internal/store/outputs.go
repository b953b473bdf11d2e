package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/output"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// OutputTask is what a version is checked against before its completion.
type OutputTask struct {
	Tenant           string // its name
	WorkspaceID      id.Workspace
	Deployment       id.Deployment
	Asset, Partition string
	Range            *run.PartitionRange
}

// OutputTasks reads what the versions of tasks are checked against, by the index of the task. It omits tasks
// that do not exist.
func (s *Store) OutputTasks(ctx context.Context, keys []TaskKey) (map[int]OutputTask, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (map[int]OutputTask, error) {
		return index(func(r db.OutputTasksRow) (int, OutputTask) {
			t := OutputTask{
				Tenant: r.Tenant, WorkspaceID: id.Of[id.Workspace](r.WorkspaceID), Deployment: id.Of[id.Deployment](r.DeploymentID),
				Asset: r.Asset, Partition: r.Partition,
			}
			if r.FirstOrdinal != nil && r.LastOrdinal != nil {
				t.Range = &run.PartitionRange{Series: r.Series, First: *r.FirstOrdinal, Last: *r.LastOrdinal}
			}
			return int(r.Nth), t
		})(tx.q.OutputTasks(ctx, db.OutputTasksParams{
			Nths: ordinals(len(keys)), TenantIds: column(keys, TaskKey.tenantID), RunIds: column(keys, TaskKey.runID), TaskIds: column(keys, TaskKey.taskID),
		}))
	})
}

// PointerKey identifies the pointer of a partition; Partition is "" for an asset without partitions.
type PointerKey struct {
	Tenant    id.Tenant
	Workspace id.Workspace
	Asset     string
	Partition string
}

// Pointer is the pointer of a partition.
type Pointer struct {
	PointerKey
	output.Pointer
}

// pointerTries bounds how often a transaction waits for pointers that others create.
const pointerTries = 100

// LockPointers locks the pointers of partitions by key, and creates those that do not exist. They are the last
// locks of a transaction.
func (tx *Tx) LockPointers(ctx context.Context, keys []PointerKey) (map[PointerKey]output.Pointer, error) {
	wanted := make(map[PointerKey]bool, len(keys))
	for _, k := range keys {
		wanted[k] = true
	}
	found := make(map[PointerKey]output.Pointer, len(wanted))
	for range pointerTries {
		if len(found) == len(wanted) {
			return found, nil
		}
		rows, err := tx.q.LockPointers(ctx, db.LockPointersParams{
			TenantIds: column(keys, PointerKey.tenantID), WorkspaceIds: column(keys, PointerKey.workspaceID),
			Assets: column(keys, PointerKey.assetKey), Partitions: column(keys, PointerKey.partition),
		})
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			key := PointerKey{id.Of[id.Tenant](r.TenantID), id.Of[id.Workspace](r.WorkspaceID), r.Asset, r.Partition}
			found[key] = output.Pointer{Current: r.Current, Highest: r.Highest}
		}
	}
	return nil, errors.New("pointers are created and rolled back again and again")
}

func (k PointerKey) tenantID() uuid.UUID    { return k.Tenant.UUID }
func (k PointerKey) workspaceID() uuid.UUID { return k.Workspace.UUID }
func (k PointerKey) assetKey() string       { return k.Asset }
func (k PointerKey) partition() string      { return k.Partition }

// movePointers writes pointers that this transaction has locked.
func (tx *Tx) movePointers(ctx context.Context, c Changes) error {
	rows := c.Pointers
	return tx.writes.write("move pointers", len(rows), func(q *db.Queries) error {
		return q.MovePointers(ctx, db.MovePointersParams{
			Now:          c.Now,
			TenantIds:    column(rows, func(p Pointer) uuid.UUID { return p.Tenant.UUID }),
			WorkspaceIds: column(rows, func(p Pointer) uuid.UUID { return p.Workspace.UUID }),
			Assets:       column(rows, func(p Pointer) string { return p.Asset }),
			Partitions:   column(rows, func(p Pointer) string { return p.Partition }),
			Currents:     column(rows, func(p Pointer) int64 { return p.Current }),
			Highests:     column(rows, func(p Pointer) int64 { return p.Highest }),
		})
	})
}

// Materialization is a version of an output.
type Materialization struct {
	Tenant     id.Tenant
	Workspace  id.Workspace
	Asset      string
	Token      int64     // its version
	ID         uuid.UUID // of its task, and of the stream of its reviews
	Version    int32     // of that stream
	Partition  string    // as its task names it
	Range      *run.PartitionRange
	Run        id.Run // zero if another system has reported it
	Attempt    int32
	Deployment id.Deployment
	RecordedAt time.Time
	Current    bool // a pointer names it

	output.Materialization
}

// insertMaterializations writes versions with their inputs: one statement.
func (tx *Tx) insertMaterializations(ctx context.Context, c Changes) error {
	rows := c.Materializations
	if len(rows) == 0 {
		return nil
	}
	details, err := convert(rows, func(m Materialization) (string, error) {
		data, err := json.Marshal(m.Detail)
		return string(data), err
	})
	if err != nil {
		return err
	}
	p := db.InsertMaterializationsParams{
		NoOrdinal:     noOrdinal,
		TenantIds:     column(rows, func(m Materialization) uuid.UUID { return m.Tenant.UUID }),
		WorkspaceIds:  column(rows, func(m Materialization) uuid.UUID { return m.Workspace.UUID }),
		Assets:        column(rows, func(m Materialization) string { return m.Asset }),
		Tokens:        column(rows, func(m Materialization) int64 { return m.Token }),
		Ids:           column(rows, func(m Materialization) uuid.UUID { return m.ID }),
		States:        column(rows, func(m Materialization) string { return string(m.State) }),
		Gates:         column(rows, func(m Materialization) string { return string(m.Gate) }),
		Partitions:    column(rows, func(m Materialization) string { return m.Partition }),
		Series:        column(rows, func(m Materialization) string { return rangeOf(run.TaskSpec{Range: m.Range}).Series }),
		FirstOrdinals: column(rows, func(m Materialization) int64 { return rangeOf(run.TaskSpec{Range: m.Range}).First }),
		LastOrdinals:  column(rows, func(m Materialization) int64 { return rangeOf(run.TaskSpec{Range: m.Range}).Last }),
		RunIds:        column(rows, func(m Materialization) uuid.UUID { return m.Run.UUID }),
		Attempts:      column(rows, func(m Materialization) int32 { return m.Attempt }),
		DeploymentIds: column(rows, func(m Materialization) uuid.UUID { return m.Deployment.UUID }),
		Formats:       column(rows, func(m Materialization) string { return string(m.Format) }),
		Paths:         column(rows, func(m Materialization) string { return m.Path }),
		Rows:          column(rows, func(m Materialization) int64 { return m.Rows }),
		Bytes:         column(rows, func(m Materialization) int64 { return m.Bytes }),
		Files:         column(rows, func(m Materialization) int32 { return int32(m.Files) }), //nolint:gosec // at most output.MaxFiles
		Digests:       column(rows, func(m Materialization) string { return m.Digest }),
		SchemaHashes:  column(rows, func(m Materialization) string { return m.SchemaHash }),
		Details:       details,
		StartedAts:    column(rows, func(m Materialization) time.Time { return m.StartedAt }),
		CommittedAts:  column(rows, func(m Materialization) time.Time { return m.CommittedAt }),
		RecordedAts:   column(rows, func(m Materialization) time.Time { return m.RecordedAt }),
	}
	for _, m := range rows {
		for _, in := range m.Inputs {
			task, err := uuid.Parse(in.Task)
			if err != nil {
				continue // an input of another system
			}
			p.InputTenantIds, p.InputWorkspaceIds = append(p.InputTenantIds, m.Tenant.UUID), append(p.InputWorkspaceIds, m.Workspace.UUID)
			p.InputOfAssets, p.InputOfTokens, p.InputIds = append(p.InputOfAssets, m.Asset), append(p.InputOfTokens, m.Token), append(p.InputIds, task)
		}
	}
	return tx.writes.write("insert materializations", anyRows, func(q *db.Queries) error { return q.InsertMaterializations(ctx, p) })
}
