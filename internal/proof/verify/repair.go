package verify

import (
	"context"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

// repairedLease is the duration of a lease that a repair writes: its true expiry is in no event. A
// worker that still holds the token continues; otherwise the reaper expires the lease.
const repairedLease = 5 * time.Minute

// engineDuty is the duty under which tasks are admitted.
const engineDuty = "admission"

// Repair rewrites the rows of one run from its events, in one transaction under the run's lock,
// while the installation keeps working. The report lists the divergences that it found. Repair
// fixes those in rows. It never changes events, so divergences in events stay. If the events
// cannot be folded, Repair writes nothing.
func Repair(ctx context.Context, s *store.Store, tenant id.Tenant, run id.Run) (Report, error) {
	key := store.RunKey{Tenant: tenant, Run: run}
	v := &verifier{codec: store.Codec(), tables: newTables(), report: Report{Divergences: []Divergence{}, keep: defaultKeep}}
	// Repair searches for rows of other tenants under this run's id before it locks any row: no
	// index leads to them.
	var foreign store.Foreign
	err := s.Snapshot(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		foreign, err = tx.ForeignRows(ctx, key)
		return err
	})
	if err != nil {
		return v.report, err
	}
	if foreign.Events > 0 {
		return v.report, fault.New(fault.Conflict, fmt.Sprintf("%d events under the id of run %s belong to another tenant", foreign.Events, run),
			fault.Field("run"), fault.Remedy("find out how they were written: events are never repaired"))
	}
	err = s.Engine(store.Once(ctx), func(ctx context.Context, tx *store.Tx) error { return v.repair(ctx, tx, key, foreign) })
	return v.report, err
}

func (v *verifier) repair(ctx context.Context, tx *store.Tx, key store.RunKey, foreign store.Foreign) error {
	if err := tx.LockDuty(ctx, engineDuty); err != nil { // before the run, in the lock order
		return err
	}
	if err := tx.LockRun(ctx, key); err != nil {
		return err
	}
	if err := tx.LockQueues(ctx, key.Run); err != nil {
		return err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return err
	}
	if v.limits.token, v.limits.position, err = tx.Sequences(ctx); err != nil {
		return err
	}
	rows, err := tx.RunsByKey(ctx, []store.RunKey{key})
	if err != nil {
		return err
	}
	var row *store.RunRow
	if len(rows) == 1 {
		row = &rows[0]
	}
	c := newCheck(key, row, v.tables, v.limits, v.report.add)
	if err := v.checkRuns(ctx, tx, []*check{c}); err != nil {
		return err
	}
	c.foreign(foreign)
	if err := c.foldable(); err != nil {
		return err
	}
	for i := range c.fix.NewQueue {
		c.fix.NewQueue[i].ExpiresAt, c.fix.NewQueue[i].Lease = now.Add(repairedLease), repairedLease
		c.fix.NewQueue[i].Divided = c.run.Divided
	}
	if err := tx.Repair(ctx, c.fix); err != nil {
		return err
	}
	return tx.RepairHolds(ctx, key)
}

// foldable refuses a run whose rows cannot be derived from its events.
func (c *check) foldable() error {
	switch {
	case c.run.Version == 0 && !c.broken && c.row == nil && !c.empty():
		return nil // rows of a run that has neither events nor a row in runs: they are dropped
	case c.run.Version == 0 && !c.broken && c.row == nil:
		return fault.New(fault.NotFound, "no run "+c.key.Run.String(), fault.Field("run"), fault.Remedy("check the id and the tenant"))
	case c.run.Version == 0 && !c.broken:
		return fault.New(fault.Conflict, "the log has no events of run "+c.key.Run.String(), fault.Field("run"),
			fault.Remedy("restore its events: the run cannot be rebuilt without them"))
	case c.broken, c.brokenTasks:
		return fault.New(fault.Conflict, "the events of run "+c.key.Run.String()+" cannot be folded", fault.Field("run"),
			fault.Remedy("see servo admin projections verify; if a newer version wrote them, repair with that version"))
	case c.run.State.Terminal() != (c.run.Remaining == 0):
		return fault.New(fault.Conflict, fmt.Sprintf("the events of run %s leave it %s with %d tasks left", c.key.Run, c.run.State, c.run.Remaining),
			fault.Field("run"), fault.Remedy("events are missing: restore them"))
	}
	return nil
}

// empty reports whether no rows are to be dropped.
func (c *check) empty() bool {
	return len(c.fix.DropTasks) == 0 && len(c.fix.DropEdges) == 0 && len(c.fix.DropQueue) == 0 && len(c.fix.DropOutputs) == 0 && c.fix.DropCone == nil && c.fix.DropLive == nil
}

// foreign drops rows with the run's id and another tenant. They have no events.
func (c *check) foreign(found store.Foreign) {
	for table, n := range map[string]int{"runs": len(found.Runs), "tasks": len(found.Tasks), "edges": len(found.Edges)} {
		if n > 0 {
			c.diverges(ForeignTenant, table, "tenant_id", c.key.Run.UUID, c.key.Tenant.String(), fmt.Sprintf("%d rows of another", n))
		}
	}
	c.fix.DropRuns = found.Runs
	c.fix.DropTasks = append(c.fix.DropTasks, found.Tasks...)
	c.fix.DropEdges = append(c.fix.DropEdges, found.Edges...)
}
