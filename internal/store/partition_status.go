package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// bucketSize is how many ordinals one row of partition_status has at most.
const bucketSize = 16_384

// PartitionedAsset identifies an asset of a workspace.
type PartitionedAsset struct {
	Tenant    id.Tenant
	Workspace id.Workspace
	Asset     string
}

// PartitionEnd is a task with partitions that has ended.
type PartitionEnd struct {
	TaskKey

	Workspace id.Workspace
	Succeeded bool // otherwise it failed
}

// insertPartitionDeltas adds the ends of tasks to the status of their partitions.
func (tx *Tx) insertPartitionDeltas(ctx context.Context, c Changes) error {
	rows := c.PartitionEnds
	if len(rows) == 0 {
		return nil
	}
	return tx.writes.write("insert partition deltas", anyRows, func(q *db.Queries) error {
		return q.InsertPartitionDeltas(ctx, db.InsertPartitionDeltasParams{
			TenantIds:    column(rows, func(e PartitionEnd) uuid.UUID { return e.Tenant.UUID }),
			RunIds:       column(rows, func(e PartitionEnd) uuid.UUID { return e.Run.UUID }),
			TaskIds:      column(rows, func(e PartitionEnd) uuid.UUID { return e.Task.UUID }),
			WorkspaceIds: column(rows, func(e PartitionEnd) uuid.UUID { return e.Workspace.UUID }),
			Succeededs:   column(rows, func(e PartitionEnd) bool { return e.Succeeded }),
		})
	})
}

// Status is the status of an asset's partitions.
type Status struct {
	Succeeded partition.Set // at least once
	Failed    partition.Set // by their last task
}

// apply adds the end of a task.
func (s *Status) apply(series string, r partition.Range, succeeded bool) {
	of := partition.NewSet(series, r)
	if succeeded {
		s.Succeeded, s.Failed = s.Succeeded.Union(of), s.Failed.Difference(of)
		return
	}
	s.Failed = s.Failed.Union(of)
}

// PartitionStatus reads the status of an asset, with ends that no merger has folded yet.
func (tx *Tx) PartitionStatus(ctx context.Context, of PartitionedAsset) (status Status, err error) {
	rows, err := tx.q.StatusOfAsset(ctx, db.StatusOfAssetParams{TenantID: of.Tenant.UUID, WorkspaceID: of.Workspace.UUID, Asset: of.Asset})
	if err != nil {
		return status, err
	}
	succeeded, failed := map[string][]partition.Range{}, map[string][]partition.Range{}
	for _, r := range rows {
		if r.Delta != 0 {
			continue
		}
		for _, part := range []struct {
			text string
			to   map[string][]partition.Range
		}{{r.Succeeded, succeeded}, {r.Failed, failed}} {
			ranges, err := readMultirange(part.text)
			if err != nil {
				return status, err
			}
			part.to[r.Series] = append(part.to[r.Series], ranges...)
		}
	}
	status.Succeeded, status.Failed = partition.NewSets(succeeded), partition.NewSets(failed)
	for _, r := range rows { // after the rows, in the order of their ids
		if r.Delta != 0 {
			status.apply(r.Series, partition.Range{First: r.First, Last: r.Last}, r.Success)
		}
	}
	return status, nil
}

// PartitionStatus reads the status of an asset under the role of its tenant, and the partitions with a task
// in a queue or with a worker.
func (s *Store) PartitionStatus(ctx context.Context, of PartitionedAsset) (status Status, running partition.Set, err error) {
	err = s.tenantSnapshot(of.Tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		if status, err = tx.PartitionStatus(ctx, of); err != nil {
			return err
		}
		rows, err := tx.q.RunningPartitions(ctx, db.RunningPartitionsParams{TenantID: of.Tenant.UUID, WorkspaceID: of.Workspace.UUID, Asset: of.Asset})
		ranges := map[string][]partition.Range{}
		for _, r := range rows {
			ranges[r.Series] = append(ranges[r.Series], partition.Range{First: *r.FirstOrdinal, Last: *r.LastOrdinal})
		}
		running = partition.NewSets(ranges)
		return err
	})
	return status, running, err
}

// NamedPartitionStatus is PartitionStatus of an asset in a workspace with a name.
func (s *Store) NamedPartitionStatus(ctx context.Context, owner id.Tenant, workspace, asset string) (Status, partition.Set, error) {
	of := PartitionedAsset{Tenant: owner, Asset: asset}
	err := s.tenant(owner)(ctx, func(ctx context.Context, tx *Tx) error {
		w, err := tx.q.GetWorkspace(ctx, db.GetWorkspaceParams{TenantID: owner.UUID, Name: workspace})
		of.Workspace = id.Of[id.Workspace](w.ID)
		return notFound(err, "workspace", workspace)
	})
	if err != nil {
		return Status{}, partition.Set{}, err
	}
	return s.PartitionStatus(ctx, of)
}

// RunEnds is how the partitions of an ended run ended.
type RunEnds struct {
	Covered partition.Set // by any task
	Failed  partition.Set // by any task
	Undone  partition.Set // skipped or cancelled, by any task
}

// PartitionEnds reads how the partitions of an ended run ended.
func (tx *Tx) PartitionEnds(ctx context.Context, of RunKey) (ends RunEnds, err error) {
	rows, err := tx.q.PartitionEnds(ctx, db.PartitionEndsParams{TenantID: of.Tenant.UUID, RunID: of.Run.UUID})
	if err != nil {
		return ends, err
	}
	covered, failed, undone := map[string][]partition.Range{}, map[string][]partition.Range{}, map[string][]partition.Range{}
	for _, r := range rows {
		part := partition.Range{First: *r.FirstOrdinal, Last: *r.LastOrdinal}
		covered[r.Series] = append(covered[r.Series], part)
		switch run.TaskState(r.State) {
		case run.Succeeded:
		case run.Failed:
			failed[r.Series] = append(failed[r.Series], part)
		default:
			undone[r.Series] = append(undone[r.Series], part)
		}
	}
	return RunEnds{partition.NewSets(covered), partition.NewSets(failed), partition.NewSets(undone)}, nil
}

// seriesKey identifies a series of an asset.
type seriesKey struct {
	tenant, workspace uuid.UUID
	asset, series     string
}

type bucketKey struct {
	seriesKey

	bucket int64
}

// FoldPartitionDeltas is Tx.FoldPartitionDeltas in a transaction of its own.
func (s *Store) FoldPartitionDeltas(ctx context.Context, most int) (int, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (int, error) { return tx.FoldPartitionDeltas(ctx, most) })
}

// FoldPartitionDeltas folds up to about most ends of tasks into the status of their partitions, and returns
// how many. It locks the rows of the series first, and applies the deltas of a series in the order of their
// ids. Any server may call it at any time.
func (tx *Tx) FoldPartitionDeltas(ctx context.Context, most int) (int, error) {
	found, err := tx.q.SeriesWithDeltas(ctx, int32(most)) //nolint:gosec // a batch size
	if err != nil || len(found) == 0 {
		return 0, err
	}
	keys := column(found, func(r db.SeriesWithDeltasRow) seriesKey {
		return seriesKey{r.TenantID, r.WorkspaceID, r.Asset, r.Series}
	})
	err = tx.q.InsertPartitionSeries(ctx, db.InsertPartitionSeriesParams{
		TenantIds: column(keys, seriesKey.tenantID), WorkspaceIds: column(keys, seriesKey.workspaceID), Assets: column(keys, seriesKey.assetKey), Series: column(keys, seriesKey.name),
	})
	if err != nil {
		return 0, err
	}
	locked, err := tx.q.LockPartitionSeries(ctx, db.LockPartitionSeriesParams{
		TenantIds: column(keys, seriesKey.tenantID), WorkspaceIds: column(keys, seriesKey.workspaceID), Assets: column(keys, seriesKey.assetKey), Series: column(keys, seriesKey.name),
	})
	if err != nil || len(locked) == 0 {
		return 0, err
	}
	keys = column(locked, func(r db.ServoPartitionSeries) seriesKey {
		return seriesKey{r.TenantID, r.WorkspaceID, r.Asset, r.Series}
	})
	deltas, err := tx.q.TakePartitionDeltas(ctx, db.TakePartitionDeltasParams{
		TenantIds: column(keys, seriesKey.tenantID), WorkspaceIds: column(keys, seriesKey.workspaceID), Assets: column(keys, seriesKey.assetKey), Series: column(keys, seriesKey.name),
	})
	if err != nil {
		return 0, err
	}
	return len(deltas), tx.foldInto(ctx, deltas)
}

// foldInto applies deltas to the buckets that they touch.
func (tx *Tx) foldInto(ctx context.Context, deltas []db.TakePartitionDeltasRow) error {
	buckets := map[bucketKey]*Status{}
	for _, d := range deltas {
		for b := floorDiv(d.First); b <= floorDiv(d.Last); b++ {
			buckets[bucketKey{seriesKey{d.TenantID, d.WorkspaceID, d.Asset, d.Series}, b}] = &Status{}
		}
	}
	keys := slices.SortedFunc(maps.Keys(buckets), func(a, b bucketKey) int {
		return cmp.Or(slices.Compare(a.tenant[:], b.tenant[:]), slices.Compare(a.workspace[:], b.workspace[:]), strings.Compare(a.asset, b.asset),
			strings.Compare(a.series, b.series), cmp.Compare(a.bucket, b.bucket))
	})
	rows, err := tx.q.StatusBuckets(ctx, db.StatusBucketsParams{
		TenantIds: column(keys, bucketKey.tenantID), WorkspaceIds: column(keys, bucketKey.workspaceID), Assets: column(keys, bucketKey.assetKey),
		Series: column(keys, bucketKey.name), Buckets: column(keys, func(k bucketKey) int64 { return k.bucket }),
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		status := buckets[bucketKey{seriesKey{r.TenantID, r.WorkspaceID, r.Asset, r.Series}, r.Bucket}]
		if status.Succeeded, err = multirangeSet(r.Series, r.Succeeded); err != nil {
			return err
		}
		if status.Failed, err = multirangeSet(r.Series, r.Failed); err != nil {
			return err
		}
	}
	for _, d := range deltas {
		for b := floorDiv(d.First); b <= floorDiv(d.Last); b++ {
			r := partition.Range{First: max(d.First, b*bucketSize), Last: min(d.Last, (b+1)*bucketSize-1)}
			buckets[bucketKey{seriesKey{d.TenantID, d.WorkspaceID, d.Asset, d.Series}, b}].apply(d.Series, r, d.Succeeded)
		}
	}
	return tx.q.InsertPartitionStatus(ctx, db.InsertPartitionStatusParams{
		TenantIds: column(keys, bucketKey.tenantID), WorkspaceIds: column(keys, bucketKey.workspaceID), Assets: column(keys, bucketKey.assetKey),
		Series: column(keys, bucketKey.name), Buckets: column(keys, func(k bucketKey) int64 { return k.bucket }),
		Succeededs: column(keys, func(k bucketKey) string { return multirange(buckets[k].Succeeded.Ranges(k.series)) }),
		Faileds:    column(keys, func(k bucketKey) string { return multirange(buckets[k].Failed.Ranges(k.series)) }),
	})
}

func (k seriesKey) tenantID() uuid.UUID    { return k.tenant }
func (k seriesKey) workspaceID() uuid.UUID { return k.workspace }
func (k seriesKey) assetKey() string       { return k.asset }
func (k seriesKey) name() string           { return k.series }

// floorDiv is the bucket of an ordinal.
func floorDiv(ordinal int64) int64 {
	b := ordinal / bucketSize
	if ordinal%bucketSize < 0 {
		b--
	}
	return b
}

// multirange writes ranges as PostgreSQL reads them.
func multirange(ranges partition.Ranges) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, r := range ranges {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "[%d,%d]", r.First, r.Last)
	}
	b.WriteByte('}')
	return b.String()
}

// readMultirange reads ranges as PostgreSQL writes them: {[1,5),[7,9)}.
func readMultirange(text string) ([]partition.Range, error) {
	inner := strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
	if inner == "" {
		return nil, nil
	}
	var ranges []partition.Range
	for part := range strings.SplitSeq(inner, "),") {
		first, last, ok := strings.Cut(strings.Trim(part, "[)"), ",")
		from, err := strconv.ParseInt(first, 10, 64)
		until, err2 := strconv.ParseInt(last, 10, 64)
		if !ok || err != nil || err2 != nil {
			return nil, fmt.Errorf("multirange %.100q", text)
		}
		ranges = append(ranges, partition.Range{First: from, Last: until - 1})
	}
	return ranges, nil
}

func multirangeSet(series, text string) (partition.Set, error) {
	ranges, err := readMultirange(text)
	return partition.NewSet(series, ranges...), err
}

// BackfillFacts is what bounds the speed of a tenant's tasks.
type BackfillFacts struct {
	Seconds            map[string]float64 // of an attempt, by asset; without those that never ran
	MaxTasks, InFlight int                // -1 is no limit
	Capacity           int                // of all live workers
	Share              float64            // the tenant's part of it, by weight
}

// BackfillFacts reads what bounds the speed of a tenant's tasks.
func (tx *Tx) BackfillFacts(ctx context.Context, owner id.Tenant, assets []string, alive time.Duration) (BackfillFacts, error) {
	r, err := tx.q.BackfillFacts(ctx, db.BackfillFactsParams{TenantID: owner.UUID, Alive: alive.Seconds()})
	if err != nil {
		return BackfillFacts{}, err
	}
	seconds, err := index(func(r db.AssetSecondsRow) (string, float64) { return r.Asset, r.Seconds })(tx.q.AssetSeconds(ctx, db.AssetSecondsParams{TenantID: owner.UUID, Assets: assets}))
	return BackfillFacts{Seconds: seconds, MaxTasks: int(r.MaxConcurrentTasks), InFlight: int(r.InFlight), Capacity: int(r.Capacity), Share: r.Share}, err
}
