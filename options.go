package servo

import (
	"time"

	"go.arco.dev/servo/internal/base/duration"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/quality"
)

// AssetOption declares something about an asset. [Worker.Manifest] contains it.
type AssetOption func(w *Worker, a *asset.Asset)

// Reads declares the upstreams of an asset: the assets whose results or outputs its function reads
// with [Upstream], [MappedResults] or [Input]. For a manifest that is written by hand, `servo worker
// check` compares them with its upstream field.
func Reads(assets ...string) AssetOption {
	return func(w *Worker, a *asset.Asset) {
		if w.reads == nil {
			w.reads = map[string][]string{}
		}
		w.reads[a.Key] = append(w.reads[a.Key], assets...)
		a.Upstream = append(a.Upstream, assets...)
	}
}

// Description describes an asset for people.
func Description(text string) AssetOption {
	return func(_ *Worker, a *asset.Asset) { a.Description = text }
}

// Pool names the pool of an asset's tasks; default: "default".
func Pool(name string) AssetOption {
	return func(_ *Worker, a *asset.Asset) { a.Pool = name }
}

// TimeLimit is how long an attempt may take; default one hour.
func TimeLimit(d time.Duration) AssetOption {
	return func(_ *Worker, a *asset.Asset) { a.Timeout = duration.Duration(d) }
}

// Retry declares how failed attempts are repeated.
func Retry(policy RetryPolicy) AssetOption {
	return func(_ *Worker, a *asset.Asset) { a.Retry = policy.declared() }
}

// Tags adds tags to an asset.
func Tags(tags ...string) AssetOption {
	return func(_ *Worker, a *asset.Asset) { a.Tags = append(a.Tags, tags...) }
}

// Owners adds the owners of an asset.
func Owners(owners ...string) AssetOption {
	return func(_ *Worker, a *asset.Asset) { a.Owners = append(a.Owners, owners...) }
}

// DailyPartitions divides an asset by local days from start, such as 2026-01-01.
func DailyPartitions(dimension, start string, options ...PartitionOption) AssetOption {
	return partitionedBy(partition.Daily, dimension, start, options)
}

// HourlyPartitions divides an asset by hours from start, such as 2026-01-01T00Z.
func HourlyPartitions(dimension, start string, options ...PartitionOption) AssetOption {
	return partitionedBy(partition.Hourly, dimension, start, options)
}

// WeeklyPartitions divides an asset by ISO weeks from start, such as 2026-W01.
func WeeklyPartitions(dimension, start string, options ...PartitionOption) AssetOption {
	return partitionedBy(partition.Weekly, dimension, start, options)
}

// MonthlyPartitions divides an asset by months from start, such as 2026-01.
func MonthlyPartitions(dimension, start string, options ...PartitionOption) AssetOption {
	return partitionedBy(partition.Monthly, dimension, start, options)
}

// StaticPartitions divides an asset by fixed values.
func StaticPartitions(dimension string, values ...string) AssetOption {
	return func(_ *Worker, a *asset.Asset) {
		a.Partitions = append(a.Partitions, partition.Dimension{Name: dimension, Kind: partition.Static, Values: values})
	}
}

// PartitionOption changes a dimension of time.
type PartitionOption func(*partition.Dimension)

// Timezone is the zone of local days, weeks and months; default UTC.
func Timezone(name string) PartitionOption {
	return func(d *partition.Dimension) { d.Timezone = name }
}

// EndOffset moves the last partition that slots cover: -1 stops one before the last completed one, 1
// includes the current one.
func EndOffset(n int) PartitionOption {
	return func(d *partition.Dimension) { d.EndOffset = n }
}

func partitionedBy(kind partition.Kind, dimension, start string, options []PartitionOption) AssetOption {
	return func(_ *Worker, a *asset.Asset) {
		d := partition.Dimension{Name: dimension, Kind: kind, Start: start}
		for _, option := range options {
			option(&d)
		}
		a.Partitions = append(a.Partitions, d)
	}
}

// MapPartitions declares which partitions of an upstream a partition needs: "all", "last 7 days", …;
// default: the same.
func MapPartitions(upstream, mapping string) AssetOption {
	return func(_ *Worker, a *asset.Asset) {
		if a.PartitionMapping == nil {
			a.PartitionMapping = map[string]string{}
		}
		a.PartitionMapping[upstream] = mapping
	}
}

// PartitionsPerTask is how many consecutive partitions one task covers at most; -1 is as many as
// possible.
func PartitionsPerTask(n int) AssetOption {
	return func(_ *Worker, a *asset.Asset) { a.PartitionsPerTask = asset.PerTask(n) }
}

// Format is the file format of an output.
type Format string

// The formats.
const (
	Parquet Format = "parquet"
	CSV     Format = "csv"
	JSONL   Format = "jsonl"
	JSON    Format = "json"
	Files   Format = "files" // any files, without rows
)

// Writes declares that each success of an asset writes a version of its output: files in
// [Task.OutputDir], or rows with [Output].
func Writes(format Format, options ...OutputOption) AssetOption {
	return func(_ *Worker, a *asset.Asset) {
		o := &quality.Output{Format: quality.Format(format)}
		for _, option := range options {
			option(o)
		}
		a.Output = o
	}
}

// OutputOption declares something about an output.
type OutputOption func(*quality.Output)

// Column declares a column: its type is string, integer, number, decimal, boolean, date, timestamp,
// binary, object or array. An output with columns is compared with them.
func Column(name, columnType string) OutputOption {
	return func(o *quality.Output) {
		o.Schema = append(o.Schema, quality.Column{Name: name, Type: quality.ColumnType(columnType)})
	}
}

// Sensitive declares columns whose values never appear in results of checks.
func Sensitive(columns ...string) OutputOption {
	return func(o *quality.Output) { o.Sensitive = append(o.Sensitive, columns...) }
}

// Retain is how many versions are kept; default 10.
func Retain(versions int) OutputOption {
	return func(o *quality.Output) { o.Retain = versions }
}

// Quarantine keeps a version that fails a critical check without promoting it, in place of failing
// the task.
func Quarantine() AssetOption {
	return func(_ *Worker, a *asset.Asset) { a.Quarantine = true }
}
