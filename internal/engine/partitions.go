package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// MaxPartitionTexts is how many selections one trigger may name.
const MaxPartitionTexts = 100

// partitionFacts are what the named partitions of a batch of triggers are resolved with. A batch that
// names none has no facts, and costs no statement.
type partitionFacts struct {
	now time.Time
}

// partitionFactsOf reads the facts if a trigger of the batch names partitions.
func partitionFactsOf(ctx context.Context, tx *store.Tx, cmds []*triggerCommand) (*partitionFacts, error) {
	if !slices.ContainsFunc(cmds, func(t *triggerCommand) bool { return len(t.Partitions) > 0 }) {
		return nil, nil
	}
	now, err := tx.Clock(ctx)
	return &partitionFacts{now: now}, err
}

// planRequest is the trigger as a request to the planner.
func (t *triggerCommand) planRequest(code *deployment, facts *partitionFacts, only []run.Target, limit int) (plan.Request, error) {
	request := plan.Request{Pipeline: t.Pipeline, Select: t.Select, Parameters: t.Parameters, Limit: limit}
	for _, target := range only {
		request.Only = append(request.Only, plan.Target(target))
	}
	if t.backfill != nil {
		request.Partitions = func(*partition.Scheme) (partition.Set, error) { return t.backfill.set, nil }
		return request, nil
	}
	if len(t.Partitions) == 0 {
		return request, t.coverPartitions(code, &request)
	}
	now := time.Time{}
	if facts != nil {
		now = facts.now
	}
	var err error
	request.Partitions, err = SelectPartitions(t.Partitions, now, code.planner.SchemesOf(request))
	return request, err
}

// slotCover is the config and the slot of a trigger that names no partitions.
type slotCover struct {
	config  config.Config
	covered time.Time // the end of the coverage of earlier slots
	at      time.Time
	slot    bool // a slot; otherwise a call or an event, which covers the last completed partition
}

// slotCovered is what a slot covers: the end of the coverage, and the names of the partitions.
type slotCovered struct {
	until time.Time
	names []string
}

func coverOf(c *store.ConfigState, slot, now time.Time) *slotCover {
	if slot.IsZero() {
		return &slotCover{config: config.Config{Spec: c.Spec, CreatedAt: now}, at: now}
	}
	of := c.Config
	if c.LastSlot.After(of.CreatedAt) { // slots fired before the pipeline had partitions
		of.CreatedAt = c.LastSlot
	}
	return &slotCover{config: of, covered: c.CoveredUntil, at: slot, slot: true}
}

// errNoPartition refuses the run of a slot without a newly completed partition.
var errNoPartition = fault.New(fault.Conflict, "no partition was completed since the last slot that fired", fault.Field("partitions"),
	fault.Remedy("wait for the next slot, or name partitions"))

// coverPartitions requests the partitions that the trigger of a config covers.
func (t *triggerCommand) coverPartitions(code *deployment, request *plan.Request) error {
	if t.cover == nil || t.retry != nil || !code.planner.Divided() {
		return nil
	}
	schemes := code.planner.SchemesOf(*request)
	if len(schemes) == 0 {
		return nil
	}
	coverage := t.cover.config.Cover(schemes, t.cover.covered, t.cover.at)
	if coverage.None {
		return errNoPartition
	}
	request.Partitions = coverage.Select
	if t.cover.slot {
		t.covered = slotCovered{until: coverage.Until, names: coverage.Names(schemes)}
	}
	return nil
}

// SelectPartitions reads the partitions that a request names, for the planner. Schemes are those of its
// assets.
func SelectPartitions(texts []string, now time.Time, schemes []*partition.Scheme) (func(*partition.Scheme) (partition.Set, error), error) {
	if len(texts) > MaxPartitionTexts {
		return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("has %d entries, the limit is %d", len(texts), MaxPartitionTexts),
			fault.Field("partitions"), fault.Remedy("use ranges, such as date=2026-01-01..2026-03-31"), fault.Value("limit", MaxPartitionTexts))
	}
	if len(texts) == 0 {
		return nil, nil
	}
	selection, err := partition.ParseSelection(texts...)
	if err != nil {
		return nil, err
	}
	if err := selection.Check(schemes); err != nil {
		return nil, err
	}
	return func(s *partition.Scheme) (partition.Set, error) { return selection.For(s, now) }, nil
}

// specRange is the partitions of a planned task.
func specRange(t plan.Task) *run.PartitionRange {
	if t.Range == nil {
		return nil
	}
	return &run.PartitionRange{Series: t.Range.Series, First: t.Range.First, Last: t.Range.Last}
}

// maxInheritedPartitions bounds the results of other partitions that one task of a retry inherits.
const maxInheritedPartitions = 1_000

// givePartitions adds to the tasks of a retry the partitions of their upstreams that succeeded before
// and are not executed again.
func (t *plannedTrigger) givePartitions(specs []run.TaskSpec) error {
	if t.retry == nil || !t.code.planner.Divided() {
		return nil
	}
	type before struct {
		from   run.Inherited
		series string
		r      partition.Range
	}
	again := make(map[run.Target]bool, len(specs))
	for _, s := range specs {
		again[s.Target()] = true
	}
	done := map[string][]before{}
	for target, from := range t.retry.done {
		scheme := t.code.planner.Scheme(target.Asset)
		if scheme == nil || target.Partition == "" || again[target] {
			continue
		}
		series, r, err := scheme.Bind(t.values).ParseRange(target.Partition)
		if err != nil {
			continue // the scheme has changed: it is no partition any more
		}
		done[target.Asset] = append(done[target.Asset], before{from, series, r})
	}
	for i := range specs {
		code, _ := t.code.Asset(specs[i].Asset)
		for _, key := range code.Upstream {
			if len(done[key]) == 0 || len(done[key]) > maxInheritedPartitions {
				continue
			}
			mapping, err := t.code.planner.Mapping(specs[i].Asset, key)
			if err != nil {
				return err
			}
			own := specs[i].Range
			for _, b := range done[key] {
				if own == nil || mapping.Matches(own.Series, partition.Range{First: own.First, Last: own.Last}, b.series, b.r) {
					specs[i].Inherited = append(specs[i].Inherited, b.from)
				}
			}
		}
	}
	return nil
}

// partitionsOf returns the keys of the declared partitions of a task, in order.
func (d *deployment) partitionsOf(asset, key string) []string {
	if key == "" || !d.planner.Divided() {
		return nil
	}
	scheme := d.planner.Scheme(asset)
	if scheme == nil {
		return nil
	}
	if !scheme.Timed() {
		return []string{key} // only time has ranges
	}
	series, r, err := scheme.ParseRange(key)
	if err != nil {
		return []string{key}
	}
	return scheme.Keys(series, r)
}
