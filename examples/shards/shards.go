// Package shards is the example of a fan-out: one asset determines the number of pieces and adds
// a task for each, and another one joins their results. It shows a fan-out with a barrier,
// progress and logs of many tasks at once, and, with several tenants and few workers, how a long
// queue is shared. It computes and reads nothing: a piece waits for some time, and its result is
// generated, the same for the same table.
package shards

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"go.arco.dev/servo"
)

// Manifest returns the manifest that Register declares, as `servo deploy --go` deploys it.
func Manifest() ([]byte, error) {
	w := servo.NewWorker(servo.WorkerOptions{})
	Register(w)
	return w.Manifest()
}

// Pool is the queue of the scans. Its workers are few, so that it
// grows long. What begins and ends a run is in PlanPool, and need not wait behind them.
const (
	Pool     = "shards"
	PlanPool = "shards-plan"
)

// Pools are those that a worker serves, the preferred first.
func Pools() []string { return []string{PlanPool, Pool} }

// Pipeline is the name of the pipeline.
const Pipeline = "shards"

// The keys of the assets.
const (
	split = "shards/split"
	scan  = "shards/scan"
	join  = "shards/join"
)

// Register declares the assets and the pipeline:
//
//	shards/split ─────────────────────────────▶ shards/join
//	     └─▶ shards/scan, one for each shard ─▶ shards/join
//
// What is short has a pool of its own, so that it does not wait behind hundreds of scans.
func Register(w *servo.Worker) {
	tags, owners := servo.Tags("shards"), servo.Owners("platform")
	servo.Asset(w, split, Split, servo.Pool(PlanPool), servo.TimeLimit(time.Minute), tags, owners,
		servo.Description("Finds out how many shards there are, and adds a task for each of them."))
	// In no pipeline: shards/split makes its tasks.
	servo.Asset(w, scan, Scan, servo.Pool(Pool), servo.TimeLimit(5*time.Minute), tags, owners,
		servo.Description("What one shard holds. Takes a second or two, and reports progress."))
	servo.Asset(w, join, Join, servo.Reads(split), servo.Pool(PlanPool), servo.TimeLimit(time.Minute), tags, owners,
		servo.Description("What all shards hold together."))
	w.AddPipeline(servo.Pipeline{
		Name: Pipeline, Description: "Scans a made-up table shard by shard.", Select: []string{"+" + join},
		MaxExecution: time.Hour, // most of it is waiting for a worker
		AllowOverlap: true,
		Parameters: []servo.Parameter{
			{Name: "table", Type: "string", Default: "orders", Description: "What is scanned: the same table holds the same every time."},
			{Name: "shards", Type: "integer", Default: 40, Description: "In how many shards, up to 1000."},
			{Name: "work_ms", Type: "integer", Default: 1000, Description: "How long a shard takes at least, up to 60000; at most twice as long."},
		},
	})
}

// Params are the parameters of the pipeline. Register has the defaults.
type Params struct {
	Table  string `json:"table"`   // what is scanned
	Shards int    `json:"shards"`  // in how many pieces
	WorkMS int    `json:"work_ms"` // how long a piece takes at least; at most twice as long
}

// The limits of the parameters.
const (
	maxShards = 1000
	maxWorkMS = 60_000
)

// check refuses parameters with which every attempt would fail.
func (p Params) check() error {
	switch {
	case p.Shards < 1 || p.Shards > maxShards:
		return &servo.Error{Code: servo.InvalidConfiguration, Message: fmt.Sprintf("shards is %d", p.Shards), SuggestedAction: fmt.Sprintf("use 1 to %d", maxShards)}
	case p.WorkMS < 0 || p.WorkMS > maxWorkMS:
		return &servo.Error{Code: servo.InvalidConfiguration, Message: fmt.Sprintf("work_ms is %d", p.WorkMS), SuggestedAction: fmt.Sprintf("use 0 to %d", maxWorkMS)}
	}
	return nil
}

// Splitting is what shards/split knows.
type Splitting struct {
	Table  string `json:"table"`
	Shards int    `json:"shards"` // each is a task of shards/scan
}

// Split makes shards/split: it adds a task for each piece of the table to the run. shards/join
// waits for all of them.
func Split(ctx context.Context, task *servo.Task, p Params) (Splitting, error) {
	if err := p.check(); err != nil {
		return Splitting{}, err
	}
	// The tasks have the parameters of the run; what is theirs alone is in the partition.
	pieces := make([]servo.Mapped, p.Shards)
	for i := range pieces {
		pieces[i] = servo.Mapped{Asset: scan, Partition: fmt.Sprintf("%04d", i)}
	}
	if _, err := task.FanOut(ctx, pieces, servo.Barrier()); err != nil {
		return Splitting{}, err
	}
	task.Log().Info("split", "table", p.Table, "shards", p.Shards)
	return Splitting{Table: p.Table, Shards: p.Shards}, nil
}

// Found is what shards/scan has found in its piece.
type Found struct {
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
}

// steps is the number of progress reports of a scan.
const steps = 4

// Scan makes shards/scan: one piece of the table, in steps that take their time.
func Scan(ctx context.Context, task *servo.Task, p Params) (Found, error) {
	if err := p.check(); err != nil {
		return Found{}, err
	}
	d := dice(p.Table, task.Partition)
	all := Found{Rows: 1000 + d.Int64N(9000)}
	all.Bytes = all.Rows * (80 + d.Int64N(80))
	takes := time.Duration(float64(p.WorkMS) * (1 + d.Float64()) * float64(time.Millisecond))
	for step := range int64(steps) {
		if err := pause(ctx, takes/steps); err != nil {
			return Found{}, err
		}
		task.Progress(servo.Progress{
			Phase: "EXTRACT", Stage: "scan", Fraction: float32(step+1) / steps,
			RecordsExtracted: all.Rows * (step + 1) / steps, Bytes: all.Bytes * (step + 1) / steps,
		})
	}
	task.Log().Info("scanned", "shard", task.Partition, "rows", all.Rows, "bytes", all.Bytes)
	return all, nil
}

// Report is what shards/join gives.
type Report struct {
	Table   string `json:"table"`
	Shards  int    `json:"shards"`
	Rows    int64  `json:"rows"`
	Bytes   int64  `json:"bytes"`
	Largest string `json:"largest"` // the piece with most rows
}

// Join makes shards/join: it adds up what the pieces have found, if there are results of all of them.
func Join(ctx context.Context, task *servo.Task, _ Params) (Report, error) {
	whole, err := servo.Upstream[Splitting](ctx, task, split)
	if err != nil {
		return Report{}, err
	}
	report, most := Report{Table: whole.Table}, int64(-1)
	for piece, err := range servo.MappedResults[Found](ctx, task, scan) {
		if err != nil {
			return Report{}, err
		}
		report.Shards, report.Rows, report.Bytes = report.Shards+1, report.Rows+piece.Value.Rows, report.Bytes+piece.Value.Bytes
		if piece.Value.Rows > most {
			report.Largest, most = piece.Partition, piece.Value.Rows
		}
	}
	if report.Shards != whole.Shards {
		return Report{}, &servo.Error{Code: servo.MissingInput, Message: fmt.Sprintf("%d of %d shards have a result", report.Shards, whole.Shards)}
	}
	task.Log().Info("joined", "table", report.Table, "shards", report.Shards, "rows", report.Rows, "largest", report.Largest)
	return report, nil
}

// dice are thrown the same way for the same piece of the same table.
func dice(table, piece string) *rand.Rand {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(table + "/" + piece)) // never fails
	return rand.New(rand.NewPCG(sum.Sum64(), 1))  //nolint:gosec // made-up data
}

// pause waits, unless the task is to end before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx) // cancelled, interrupted or timed out: Servo knows which
	}
}
