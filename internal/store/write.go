package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Changes are the changes of one transaction: new rows, moves between queue tables, changed runs,
// and the events that explain them.
type Changes struct {
	Now         time.Time
	NewRuns     []run.Run // runs with a lock hold it already: see TakeLocks
	NewTasks    []NewTask
	NewEdges    []Edge
	Moves       []Move
	ChangedRuns []run.Run
	LiveRuns    []run.Run // changed runs, and runs with a lock, that start, wait or are being cancelled
	EndedRuns   []RunKey  // changed runs that have ended
	Events      []event.Event
	OpenCones   []RunKey // runs whose cone of skipped tasks continues in another transaction
	CloseCones  []RunKey
	Reschedule  []run.Task         // leases with another time for the reaper's next check
	Charges     []Charge           // charges of a round of admission
	Clocks      map[string]float64 // clocks of pools after that round
	ByClaims    bool               // claims made that round
	Settlements []Settlement
	Results     []ConfigResult // results of ended runs for their configs
	Looked      []run.Run      // runs whose start needs no other check
	Deltas      []RunDelta     // additions to the totals by ended runs and breaches
	Released    []run.Run      // released runs that have ended, for the totals of their releases
	// PartitionEnds are tasks with partitions that have ended in success or failure.
	PartitionEnds []PartitionEnd
	Holds         []Hold // of admitted tasks
	// Materializations are the versions of tasks that have succeeded, and Pointers those that moved.
	Materializations []Materialization
	Pointers         []Pointer
}

// NewTask is a task that a run creates.
type NewTask struct {
	Key  TaskKey
	Spec run.TaskSpec
}

// Edge is an edge of the plan: Task waits for Upstream.
type Edge struct {
	Key      RunKey
	Upstream id.Task
	Task     id.Task
}

// Move is a changed task: From is its state before, 0 if it is new.
type Move struct {
	From run.TaskState
	Task run.Task
}

// Apply collects the statements for the changes: one for each table.
func (tx *Tx) Apply(ctx context.Context, c Changes) error {
	for _, step := range []func(context.Context, Changes) error{
		tx.insertRuns, tx.insertTasks, tx.insertEdges, tx.updateRuns, tx.writeLiveRuns, tx.moveTasks, tx.chargeShares, tx.insertEvents, tx.writeCones, tx.reschedule, tx.insertSettlements, tx.insertConfigResults,
		tx.lookedLate, tx.insertRunDeltas, tx.insertReleaseEnds, tx.insertPartitionDeltas, tx.insertHolds, tx.insertMaterializations, tx.movePointers,
	} {
		if err := step(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) insertRuns(ctx context.Context, c Changes) error {
	rows := c.NewRuns
	retries, err := convert(rows, func(r run.Run) (string, error) { return jsonText(r.Retry) })
	if err != nil {
		return err
	}
	windows, err := convert(rows, func(r run.Run) (string, error) { return jsonText(r.Window) })
	if err != nil {
		return err
	}
	return tx.writes.write("insert runs", len(rows), func(q *db.Queries) error {
		return q.InsertRuns(ctx, db.InsertRunsParams{
			Now:           c.Now,
			TenantIds:     column(rows, func(r run.Run) uuid.UUID { return r.Tenant.UUID }),
			Ids:           column(rows, func(r run.Run) uuid.UUID { return r.ID.UUID }),
			WorkspaceIds:  column(rows, func(r run.Run) uuid.UUID { return r.Workspace.UUID }),
			DeploymentIds: column(rows, func(r run.Run) uuid.UUID { return r.Deployment.UUID }),
			ParentRunIds: column(rows, func(r run.Run) uuid.UUID {
				if r.Parent == nil {
					return uuid.UUID{}
				}
				return r.Parent.UUID
			}),
			StartedAts:   column(rows, func(r run.Run) time.Time { return r.StartedAt }),
			States:       column(rows, func(r run.Run) int16 { return int16(r.State) }),
			Versions:     column(rows, func(r run.Run) int32 { return r.Version }),
			Totals:       column(rows, func(r run.Run) int32 { return r.Total }),
			Priorities:   column(rows, func(r run.Run) int16 { return r.Priority }),
			Pipelines:    column(rows, func(r run.Run) string { return r.Pipeline }),
			TriggerTypes: column(rows, func(r run.Run) string { return r.TriggerType }),
			TriggeredBys: column(rows, func(r run.Run) string { return r.TriggeredBy }),
			Fingerprints: column(rows, func(r run.Run) string { return r.Fingerprint }),
			Parameters:   column(rows, func(r run.Run) string { return string(r.Parameters) }),
			Traces:       column(rows, func(r run.Run) string { return r.Trace }),
			Retries:      retries,
			ConfigIds:    column(rows, configOf),
			SlotAts:      column(rows, func(r run.Run) time.Time { return r.Slot }),
			LabelSets:    column(rows, func(r run.Run) string { return r.Labels }),
			StartBys:     column(rows, func(r run.Run) time.Time { return r.StartBy }),
			StartLimits:  column(rows, func(r run.Run) int32 { return r.StartLimit }),
			Lates:        column(rows, isLate),
			Windows:      windows,
			Releaseds:    column(rows, func(r run.Run) bool { return r.Released }),
			Divideds:     column(rows, func(r run.Run) bool { return r.Divided }),
		})
	})
}

func configOf(r run.Run) uuid.UUID {
	if r.Config == nil {
		return uuid.UUID{}
	}
	return r.Config.UUID
}

// jsonText is a value as JSON text, "" for nil.
func jsonText[T any](value *T) (string, error) {
	if value == nil {
		return "", nil
	}
	text, err := json.Marshal(value)
	return string(text), err
}

func (tx *Tx) insertTasks(ctx context.Context, c Changes) error {
	rows := c.NewTasks
	upstreams, err := upstreamsOf(rows)
	if err != nil {
		return err
	}
	return tx.writes.write("insert tasks", len(rows), func(q *db.Queries) error {
		return q.InsertTasks(ctx, db.InsertTasksParams{
			Now:        c.Now,
			TenantIds:  column(rows, func(t NewTask) uuid.UUID { return t.Key.Tenant.UUID }),
			RunIds:     column(rows, func(t NewTask) uuid.UUID { return t.Key.Run.UUID }),
			Ids:        column(rows, func(t NewTask) uuid.UUID { return t.Key.Task.UUID }),
			Ixs:        column(rows, func(t NewTask) int32 { return t.Spec.Index }),
			Timeouts:   column(rows, func(t NewTask) int32 { return t.Spec.Timeout }),
			Priorities: column(rows, func(t NewTask) int16 { return t.Spec.Priority }),
			Assets:     column(rows, func(t NewTask) string { return t.Spec.Asset }),
			Partitions: column(rows, func(t NewTask) string { return t.Spec.Partition }),
			Pools:      column(rows, func(t NewTask) string { return t.Spec.Pool }),
			Upstreams:  upstreams,

			Inheritances: column(rows, func(t NewTask) string { return idsText(InheritedIDs(t.Spec.Inherited)) }),

			NoOrdinal:     noOrdinal,
			Series:        column(rows, func(t NewTask) string { return rangeOf(t.Spec).Series }),
			FirstOrdinals: column(rows, func(t NewTask) int64 { return rangeOf(t.Spec).First }),
			LastOrdinals:  column(rows, func(t NewTask) int64 { return rangeOf(t.Spec).Last }),
		})
	})
}

// noOrdinal is null in a list of ordinals.
const noOrdinal = math.MinInt64

// rangeOf returns the declared partitions of a task, with nulls if it has none.
func rangeOf(s run.TaskSpec) run.PartitionRange {
	if s.Range == nil {
		return run.PartitionRange{First: noOrdinal, Last: noOrdinal}
	}
	return *s.Range
}

func ordinalOr(p *int64) int64 {
	if p == nil {
		return noOrdinal
	}
	return *p
}

// upstreamsOf converts the upstream indexes of new tasks to ids. The tasks of a plan are created
// together, in the order of their indexes.
func upstreamsOf(rows []NewTask) ([]string, error) {
	texts := make([]string, len(rows))
	for i, t := range rows {
		ids := make([]uuid.UUID, len(t.Spec.Upstream))
		for j, place := range t.Spec.Upstream {
			at := i + int(place) - int(t.Spec.Index)
			if at < 0 || at >= len(rows) || rows[at].Key.Run != t.Key.Run || rows[at].Spec.Index != place {
				return nil, fmt.Errorf("store: task %s waits for place %d, which is not made with it", t.Key.Task, place)
			}
			ids[j] = rows[at].Key.Task.UUID
		}
		texts[i] = idsText(ids)
	}
	return texts, nil
}

// idsText is an array of ids as text, "" for none.
func idsText(ids []uuid.UUID) string {
	if len(ids) == 0 {
		return ""
	}
	text := make([]byte, 0, len(ids)*37+1)
	separator := byte('{')
	for _, u := range ids {
		text = append(append(text, separator), u.String()...)
		separator = ','
	}
	return string(append(text, '}'))
}

func (tx *Tx) insertEdges(ctx context.Context, c Changes) error {
	rows := c.NewEdges
	return tx.writes.write("insert edges", len(rows), func(q *db.Queries) error {
		return q.InsertEdges(ctx, db.InsertEdgesParams{
			TenantIds:   column(rows, func(e Edge) uuid.UUID { return e.Key.Tenant.UUID }),
			RunIds:      column(rows, func(e Edge) uuid.UUID { return e.Key.Run.UUID }),
			UpstreamIds: column(rows, func(e Edge) uuid.UUID { return e.Upstream.UUID }),
			TaskIds:     column(rows, func(e Edge) uuid.UUID { return e.Task.UUID }),
		})
	})
}

func (tx *Tx) updateRuns(ctx context.Context, c Changes) error {
	rows := c.ChangedRuns
	return tx.writes.write("update runs", len(rows), func(q *db.Queries) error {
		return q.UpdateRuns(ctx, db.UpdateRunsParams{
			TenantIds:     column(rows, func(r run.Run) uuid.UUID { return r.Tenant.UUID }),
			Ids:           column(rows, func(r run.Run) uuid.UUID { return r.ID.UUID }),
			Versions:      column(rows, func(r run.Run) int32 { return r.Version }),
			Totals:        column(rows, func(r run.Run) int32 { return r.Total }),
			Remainings:    column(rows, func(r run.Run) int32 { return r.Remaining }),
			Succeededs:    column(rows, func(r run.Run) int32 { return r.Succeeded }),
			Faileds:       column(rows, func(r run.Run) int32 { return r.Failed }),
			Skippeds:      column(rows, func(r run.Run) int32 { return r.Skipped }),
			Cancelleds:    column(rows, func(r run.Run) int32 { return r.Cancelled }),
			States:        column(rows, func(r run.Run) int16 { return int16(r.State) }),
			TimedOuts:     column(rows, func(r run.Run) bool { return r.TimedOut }),
			Lates:         column(rows, isLate),
			CancelReasons: column(rows, func(r run.Run) string { return r.CancelReason }),
			Warneds:       column(rows, func(r run.Run) bool { return r.Warned }),
			Quarantineds:  column(rows, func(r run.Run) int32 { return r.Quarantined }),
			StartedAts:    column(rows, func(r run.Run) time.Time { return r.StartedAt }),
			FinishedAts:   column(rows, func(r run.Run) time.Time { return r.FinishedAt }),
		})
	})
}

// encode returns the schema versions and the JSON of events.
func (tx *Tx) encode(bodies []event.Body) (schemas []int16, datas []string, err error) {
	schemas, datas = make([]int16, len(bodies)), make([]string, len(bodies))
	for i, body := range bodies {
		schema, data, err := tx.codec.Encode(body)
		if err != nil {
			return nil, nil, err
		}
		schemas[i], datas[i] = schema, string(data)
	}
	return schemas, datas, nil
}

func (tx *Tx) insertEvents(ctx context.Context, c Changes) error {
	rows, err := pack(tx.codec, c.Events)
	if err != nil {
		return err
	}
	return tx.writes.write("insert events", len(rows), func(q *db.Queries) error {
		return q.InsertRunEvents(ctx, db.InsertRunEventsParams{
			TenantIds:   column(rows, func(r packedRow) uuid.UUID { return r.Tenant }),
			RunIds:      column(rows, func(r packedRow) uuid.UUID { return r.Run }),
			RecordedAts: column(rows, func(r packedRow) time.Time { return r.At }),
			Events:      column(rows, func(r packedRow) string { return string(r.Events) }),
		})
	})
}

func (tx *Tx) writeCones(ctx context.Context, c Changes) error {
	if len(c.OpenCones) > 0 {
		err := tx.writes.write("open cones", anyRows, func(q *db.Queries) error {
			return q.InsertCones(ctx, db.InsertConesParams{TenantIds: column(c.OpenCones, RunKey.tenantID), RunIds: column(c.OpenCones, RunKey.runID)})
		})
		if err != nil {
			return err
		}
	}
	if len(c.CloseCones) == 0 {
		return nil
	}
	return tx.writes.write("close cones", anyRows, func(q *db.Queries) error {
		return q.DeleteCones(ctx, column(c.CloseCones, RunKey.runID))
	})
}

// anyRows marks a statement that may change any number of rows.
const anyRows = -1

func (tx *Tx) reschedule(ctx context.Context, c Changes) error {
	rows := c.Reschedule
	return tx.writes.write("reschedule leases", len(rows), func(q *db.Queries) error {
		return q.RescheduleLeases(ctx, db.RescheduleLeasesParams{
			RunIds:     column(rows, func(t run.Task) uuid.UUID { return t.Run.UUID }),
			TaskIds:    column(rows, func(t run.Task) uuid.UUID { return t.ID.UUID }),
			ExpiresAts: column(rows, func(t run.Task) time.Time { return t.ExpiresAt }),
			DueAts:     column(rows, leaseDue),
		})
	})
}

// leaseDue is when the reaper must check a lease: at its expiry or its deadline.
func leaseDue(t run.Task) time.Time {
	if !t.Deadline.IsZero() && t.Deadline.Before(t.ExpiresAt) {
		return t.Deadline
	}
	return t.ExpiresAt
}
