package store

import (
	"context"
	"fmt"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/store/internal/db"
)

// StatusDifference is a series whose status is not that of the ends of its tasks.
type StatusDifference struct {
	PartitionedAsset

	Series, Column string
	Count          int64 // of partitions that differ
	Got            string
}

// WrongPartitionStatus compares the status of partitions with the ends of the tasks that are retained, of one
// tenant or of all. Older partitions are not compared.
func (tx *Tx) WrongPartitionStatus(ctx context.Context, tenant *id.Tenant, report func(StatusDifference) error) error {
	first, _ := bounds(tenant)
	var (
		of      PartitionedAsset
		series  string
		want    Status
		touched partition.Set
		wrong   []StatusDifference
		assets  = map[PartitionedAsset]map[string]Status{}
		seen    = map[PartitionedAsset]map[string]partition.Set{}
	)
	keep := func() {
		if touched.Empty() {
			return
		}
		if assets[of] == nil {
			assets[of], seen[of] = map[string]Status{}, map[string]partition.Set{}
		}
		assets[of][series], seen[of][series] = want, touched
	}
	err := stream(ctx, tx, func(r db.VerifyPartitionEndsRow) error {
		at := PartitionedAsset{Tenant: id.Of[id.Tenant](r.TenantID), Workspace: id.Of[id.Workspace](r.WorkspaceID), Asset: r.Asset}
		if at != of || r.Series != series {
			keep()
			of, series, want, touched = at, r.Series, Status{}, partition.Set{}
		}
		part := partition.Range{First: *r.FirstOrdinal, Last: *r.LastOrdinal}
		want.apply(series, part, r.Succeeded)
		touched = touched.Union(partition.NewSet(series, part))
		return nil
	}, db.VerifyPartitionEnds, tenant == nil, first)()
	if err != nil {
		return err
	}
	keep()
	for of, bySeries := range assets {
		got, err := tx.PartitionStatus(ctx, of)
		if err != nil {
			return err
		}
		for series, want := range bySeries {
			touched := seen[of][series]
			if missing := want.Succeeded.Difference(got.Succeeded); !missing.Empty() {
				wrong = append(wrong, StatusDifference{of, series, "succeeded", missing.Count(), "not succeeded"})
			}
			failed := got.Failed.Intersect(touched)
			if differs := want.Failed.Difference(failed).Union(failed.Difference(want.Failed)); !differs.Empty() {
				wrong = append(wrong, StatusDifference{of, series, "failed", differs.Count(), fmt.Sprintf("%d failed instead of %d", failed.Count(), want.Failed.Count())})
			}
		}
	}
	for _, w := range wrong {
		if err := report(w); err != nil {
			return err
		}
	}
	return nil
}
