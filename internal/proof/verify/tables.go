package verify

import (
	"context"
	"fmt"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

// wholeTables checks what no single run can show: rows without their run, and values that must be
// unique and are not. The database counts them.
func (v *verifier) wholeTables(ctx context.Context, tx *store.Tx) error {
	if err := tx.Orphans(ctx, v.options.Tenant, v.orphan); err != nil {
		return err
	}
	if err := tx.EntityOrphans(ctx, v.options.Tenant, v.entityOrphan); err != nil {
		return err
	}
	if err := tx.Ledger(ctx, v.options.Tenant, v.ledger); err != nil {
		return err
	}
	if err := tx.WrongTotals(ctx, v.options.Tenant, v.totals); err != nil {
		return err
	}
	if err := tx.WrongPartitionStatus(ctx, v.options.Tenant, v.partitionStatus); err != nil {
		return err
	}
	if err := tx.WrongHolds(ctx, v.options.Tenant, v.hold); err != nil {
		return err
	}
	if err := tx.WrongPointers(ctx, v.options.Tenant, v.pointer); err != nil {
		return err
	}
	if v.options.Tenant != nil {
		return nil // duplicates need the rows of all tenants
	}
	return tx.EachDuplicate(ctx, store.Duplicates{
		Run: func(row store.RunIDRow) error {
			v.report.add(Divergence{
				Kind: Invariant, Table: "runs", Column: "id", Tenant: id.Of[id.Tenant](row.TenantID), Run: id.Of[id.Run](row.ID),
				Want: "an id that is unique among tenants", Got: "an id that a run of another tenant has too",
			})
			return nil
		},
		Position: func(row store.PositionRow) error {
			v.report.add(Divergence{
				Kind: Stream, Table: "run_events", Column: "position", Want: "positions that are unique", Got: fmt.Sprintf("%d %d times", row.Position, row.Events),
			})
			return nil
		},
		ClaimToken: func(row store.ClaimTokenRow) error {
			v.report.add(Divergence{
				Kind: Invariant, Table: "run_events", Column: "data", Want: "a token for each attempt", Got: fmt.Sprintf("token %s for %d", row.Token, row.Claims),
			})
			return nil
		},
		LeaseToken: func(row store.LeaseTokenRow) error {
			v.report.add(Divergence{
				Kind: Invariant, Table: "leases", Column: "token", Tenant: id.Of[id.Tenant](row.TenantID), Run: id.Of[id.Run](row.RunID),
				Subject: row.TaskID, Want: "tokens that are unique", Got: fmt.Sprintf("%d again", row.Token),
			})
			return nil
		},
	})
}

// totals reports sums of ended runs that differ from the rows of the runs.
func (v *verifier) totals(row store.TotalsRow) error {
	amount := func(n float64) string {
		return fmt.Sprintf("%g of labels %q on %s", n, row.Labels, row.Day)
	}
	v.report.add(Divergence{
		Kind: Invariant, Table: "run_totals", Column: row.Name, Tenant: id.Of[id.Tenant](row.TenantID), Want: amount(row.Want), Got: amount(row.Got),
	})
	return nil
}

// hold reports a hold of partitions that does not fit the admitted tasks.
func (v *verifier) hold(row store.WrongHold) error {
	d := Divergence{Kind: Invariant, Table: "partition_holds", Tenant: id.Of[id.Tenant](row.TenantID), Run: id.Of[id.Run](row.RunID), Subject: row.TaskID}
	switch row.Problem {
	case "missing":
		d.Kind, d.Want = Missing, "the partitions of a task that was admitted and has not ended"
	case "surplus":
		d.Kind, d.Got = Surplus, "partitions that no admitted task has"
	case "overlap":
		d.Column, d.Want, d.Got = "first", "partitions that no other task holds", "partitions that overlap another hold"
	default:
		d.Table, d.Column, d.Want, d.Got = "partition_waits", "holder_task_id", "a ready task, and the task whose hold it waits for", "a row without one of them"
	}
	v.report.add(d)
	return nil
}

func (v *verifier) orphan(row store.OrphanRow) error {
	d := Divergence{
		Kind: Surplus, Table: row.Source, Column: "run_id", Tenant: id.Of[id.Tenant](row.TenantID), Run: id.Of[id.Run](row.RunID),
		Want: "a run", Got: fmt.Sprintf("%d rows without one", row.Lost),
	}
	if row.Owner != nil {
		d.Kind, d.Column, d.Want = ForeignTenant, "tenant_id", "tenant "+row.Owner.String()
		d.Got = fmt.Sprintf("%d rows of another", row.Lost)
	}
	v.report.add(d)
	if row.Source == "run_events" && row.Owner == nil {
		v.report.add(Divergence{
			Kind: Missing, Table: "runs", Tenant: d.Tenant, Run: d.Run, Subject: row.RunID, Want: fmt.Sprintf("the row of a run with %d events", row.Lost),
		})
	}
	return nil
}

func (v *verifier) entityOrphan(row store.EntityOrphanRow) error {
	v.report.add(Divergence{
		Kind: Surplus, Table: row.Source, Column: "tenant_id", Tenant: id.Of[id.Tenant](row.TenantID),
		Want: "a tenant", Got: fmt.Sprintf("%d rows without one", row.Lost),
	})
	if row.Source == "entity_events" {
		v.report.add(Divergence{
			Kind: Missing, Table: "tenants", Tenant: id.Of[id.Tenant](row.TenantID), Subject: row.TenantID,
			Want: fmt.Sprintf("the row of a tenant with %d events", row.Lost),
		})
	}
	return nil
}
