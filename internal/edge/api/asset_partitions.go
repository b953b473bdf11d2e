package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/store"
)

// maxStatusRanges bounds the ranges of one series in an answer.
const maxStatusRanges = 1000

// ListAssetPartitions implements servov1.AssetServiceServer.
func (s assetService) ListAssetPartitions(ctx context.Context, req *servov1.ListAssetPartitionsRequest) (*servov1.ListAssetPartitionsResponse, error) {
	active, err := s.active(ctx, req.GetTenant(), req.GetWorkspace())
	if err != nil {
		return nil, err
	}
	if _, known := active.graph.Index(req.GetAsset()); !known {
		return nil, fault.New(fault.NotFound, "no asset "+req.GetAsset()+suggest.DidYouMean(req.GetAsset(), active.graph.Keys()),
			fault.Field("asset"), fault.Remedy("use the key of an asset in the active deployment"))
	}
	scheme := active.planner.Scheme(req.GetAsset())
	if scheme == nil {
		return nil, fault.New(fault.Conflict, "asset "+req.GetAsset()+" has no partitions", fault.Field("asset"), fault.Remedy("declare partitions in the manifest"))
	}
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	wanted, err := selectedPartitions(scheme, req.GetPartitions(), time.Now())
	if err != nil {
		return nil, err
	}
	status, running, err := s.store.NamedPartitionStatus(ctx, tenant, orDefault(req.GetWorkspace()), req.GetAsset())
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListAssetPartitionsResponse{
		Dimensions: scheme.String(), Total: wanted.Count(), Succeeded: wanted.Intersect(status.Succeeded).Count(), Failed: wanted.Intersect(status.Failed).Count(),
		Running: wanted.Intersect(running).Count(),
	}
	answer.Missing = answer.GetTotal() - answer.GetSucceeded()
	if axis, timed := scheme.Axis(); timed && scheme.Timed() {
		answer.Calendar = string(axis.Kind)
	}
	answer.Series, answer.NextPageToken, err = list(req, func(p page) (names []string, _ error) {
		for _, name := range wanted.Series() {
			if p.after == "" || "s"+name > p.after { // "" is a name too
				names = append(names, name)
			}
			if len(names) > p.size {
				break
			}
		}
		return names, nil
	}, func(name string) string { return "s" + name }, nil, sure(func(name string) *servov1.PartitionSeries {
		return seriesToProto(scheme, name, wanted.Ranges(name), status, running)
	}))
	return answer, err
}

// selectedPartitions resolves a selection; without one it is all that exist.
func selectedPartitions(scheme *partition.Scheme, texts []string, now time.Time) (partition.Set, error) {
	if len(texts) == 0 {
		return scheme.Existing(now)
	}
	selection, err := partition.ParseSelection(texts...)
	if err != nil {
		return partition.Set{}, err
	}
	return selection.Resolve(scheme, now)
}

// statusPart is consecutive partitions with one status.
type statusPart struct {
	partition.Range

	status servov1.PartitionStatusRange_Status
}

// seriesToProto divides the partitions of a series by their status: running before failed before succeeded.
func seriesToProto(scheme *partition.Scheme, name string, wanted partition.Ranges, status store.Status, running partition.Set) *servov1.PartitionSeries {
	var parts []statusPart
	left := wanted
	for _, one := range []struct {
		ranges partition.Ranges
		status servov1.PartitionStatusRange_Status
	}{
		{running.Ranges(name), servov1.PartitionStatusRange_RUNNING},
		{status.Failed.Ranges(name), servov1.PartitionStatusRange_FAILED},
		{status.Succeeded.Ranges(name), servov1.PartitionStatusRange_SUCCEEDED},
		{wanted, servov1.PartitionStatusRange_MISSING},
	} {
		for _, r := range left.Intersect(one.ranges) {
			parts = append(parts, statusPart{r, one.status})
		}
		left = left.Difference(one.ranges)
	}
	slices.SortFunc(parts, func(a, b statusPart) int { return cmp.Compare(a.First, b.First) })
	out := &servov1.PartitionSeries{Series: name, Truncated: len(parts) > maxStatusRanges}
	for _, p := range parts[:min(len(parts), maxStatusRanges)] {
		out.Ranges = append(out.Ranges, &servov1.PartitionStatusRange{
			Status: p.status, First: axisText(scheme, name, p.First), Last: axisText(scheme, name, p.Last), Count: p.Len(), Ordinal: p.First,
		})
	}
	return out
}

// axisText is the value of the numbered dimension of a partition: its key without those of the series.
func axisText(scheme *partition.Scheme, series string, ordinal int64) string {
	axis, ok := scheme.Axis()
	if !ok {
		return series
	}
	key := scheme.Key(partition.ID{Series: series, Ordinal: ordinal})
	_, value, found := strings.Cut(key, `"`+axis.Name+`":"`)
	if !found {
		return key
	}
	value, _, _ = strings.Cut(value, `"`)
	return value
}
