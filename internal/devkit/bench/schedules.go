package bench

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// SchedulesOptions select the measurements.
type SchedulesOptions struct {
	Database string // a PostgreSQL to use; "" starts a private one with fsync on
	Configs  []int  // how many are due at once, one measurement each
	Loops    int    // that fire at the same time in the last measurement
	Due      int    // configs of the last measurement
	Batch    int    // configs that a loop of it takes at once; 0 is an equal share of those that are due
	Profile  bool   // with the most expensive statements
	Tenants  int
	Logger   *slog.Logger
	// Progress is called with each result.
	Progress func(SchedulesResult) error
}

// SchedulesResult is what firing showed.
type SchedulesResult struct {
	Configs    int         `json:"configs"`
	Loops      int         `json:"loops"`
	Batch      int         `json:"batch"`       // configs that one look takes at most
	Seconds    float64     `json:"seconds"`     // from the first look until every run was ready
	PerSecond  float64     `json:"per_second"`  // slots
	BatchP50   float64     `json:"batch_p50"`   // of one look that fired something, in milliseconds
	BatchP99   float64     `json:"batch_p99"`   // likewise
	Looks      int         `json:"looks"`       // that fired something
	Statements float64     `json:"statements"`  // for each slot
	PostgresUS float64     `json:"postgres_us"` // processor time for each slot, in microseconds; 0 where it cannot be read
	GoUS       float64     `json:"go_us"`       // likewise
	WALBytes   float64     `json:"wal_bytes"`   // for each slot
	HeapMiB    float64     `json:"heap_mib"`    // the most that was live
	Expensive  []Statement `json:"expensive,omitempty"`
}

// RunSchedules measures how fast configs that are all due fire.
func RunSchedules(ctx context.Context, o SchedulesOptions) ([]SchedulesResult, error) {
	admin, postmaster, stop, err := cluster(ctx, o.Database, o.Logger)
	if err != nil {
		return nil, err
	}
	defer stop()
	var results []SchedulesResult
	measure := func(configs, loops, batch int) error {
		result, err := fireAll(ctx, o, admin, postmaster, SchedulesResult{Configs: configs, Loops: loops, Batch: batch})
		if err != nil {
			return fmt.Errorf("%d configs, %d loops: %w", configs, loops, err)
		}
		results = append(results, result)
		if o.Progress != nil {
			return o.Progress(result)
		}
		return nil
	}
	for _, n := range o.Configs {
		if err := measure(n, 1, engine.DefaultFiring); err != nil {
			return results, err
		}
	}
	if o.Loops > 0 {
		err = measure(o.Due, o.Loops, cmp.Or(o.Batch, max(1, o.Due/o.Loops)))
	}
	return results, err
}

// fireAll makes configs that are all due, and lets loops fire them.
func fireAll(ctx context.Context, o SchedulesOptions, admin string, postmaster int, result SchedulesResult) (SchedulesResult, error) {
	b := &bencher{options: Options{Logger: o.Logger, Tenants: o.Tenants}, postmaster: postmaster, conns: int32(max(16, result.Loops))} //nolint:gosec // a few
	closeAll, err := b.open(ctx, admin)
	defer closeAll()
	if err != nil {
		return result, err
	}
	if err := b.createTenants(ctx, scenario{manifest: chain(1)}); err != nil {
		return result, err
	}
	// One more for each connection, which fires it beforehand.
	if err := b.saveConfigs(ctx, result.Configs+int(b.conns)); err != nil {
		return result, err
	}
	if err := b.warm(ctx, int(b.conns)); err != nil {
		return result, err
	}
	if err := b.settle(ctx); err != nil {
		return result, err
	}
	if err := b.forget(ctx); err != nil {
		return result, err
	}
	before, err := b.read(ctx)
	if err != nil {
		return result, err
	}
	took, heap, err := b.fire(ctx, result.Configs, result.Loops, result.Batch)
	if err != nil {
		return result, err
	}
	after, err := b.read(ctx)
	if err != nil {
		return result, err
	}
	cost, slots := before.until(after, after.at.Sub(before.at)), float64(result.Configs)
	result.Seconds = cost.Elapsed.Seconds()
	result.PerSecond = slots / result.Seconds
	result.Looks, result.BatchP50, result.BatchP99 = len(took), milliseconds(took, 0.5), milliseconds(took, 0.99)
	result.Statements, result.WALBytes = float64(cost.Statements)/slots, float64(cost.WALBytes)/slots
	result.PostgresUS, result.GoUS = float64(cost.PostgresCPU.Microseconds())/slots, float64(cost.GoCPU.Microseconds())/slots
	result.HeapMiB = float64(heap) / (1 << 20)
	if o.Profile && b.holds {
		result.Expensive, err = b.statements(ctx)
	}
	return result, err
}

// saveConfigs gives the tenants configs, and returns when the first slot of each has passed.
func (b *bencher) saveConfigs(ctx context.Context, n int) error {
	const lead = 5 * time.Second // a chunk is saved by then
	for first := 0; first < n; {
		for i, tenant := range b.tenants {
			share := min(n/len(b.tenants)+1, engine.MaxConfigsPerSave)
			anchor := time.Now().UTC().Truncate(time.Second).Add(lead)
			var save []engine.SaveConfig
			for j := 0; j < share && first < n; j++ {
				save = append(save, engine.SaveConfig{Name: fmt.Sprintf("config-%d-%d", i, first), Spec: config.Spec{
					Pipeline: "bench", Trigger: config.Trigger{Interval: asset.Duration(24 * time.Hour), Anchor: &anchor},
				}})
				first++
			}
			if len(save) == 0 {
				break
			}
			if _, err := b.engine.SaveConfigs(ctx, engine.SaveConfigs{Tenant: tenant, Configs: save, Meta: benchMeta}); err != nil {
				return err
			}
		}
	}
	return sleep(ctx, lead)
}

// warm lets every connection of the pool fire once, so that it knows its statements: it keeps
// one after the other busy while the next one fires.
func (b *bencher) warm(ctx context.Context, connections int) error {
	if _, err := b.engine.FireDue(ctx, 1); err != nil || connections <= 1 {
		return err
	}
	return b.store.Snapshot(ctx, func(ctx context.Context, _ *store.Tx) error { return b.warm(ctx, connections-1) })
}

// fire lets loops fire until all configs have, and gives what each look took and how much memory
// was live at most. A loop that finds nothing to do goes away, as it would until its next look.
func (b *bencher) fire(ctx context.Context, configs, loops, batch int) (took []time.Duration, heap uint64, err error) {
	var (
		mu    sync.Mutex
		fired int
	)
	group, ctx := errgroup.WithContext(ctx)
	for range loops {
		group.Go(func() error {
			for {
				started := time.Now()
				done, err := b.engine.FireDue(ctx, batch)
				if err != nil || done.Configs == 0 {
					return err
				}
				lasted := time.Since(started)
				var memory runtime.MemStats
				runtime.ReadMemStats(&memory)
				mu.Lock()
				took, heap, fired = append(took, lasted), max(heap, memory.HeapAlloc), fired+done.Runs
				mu.Unlock()
			}
		})
	}
	if err = group.Wait(); err == nil && fired != configs {
		err = errLostTasks
	}
	return took, heap, err
}

// milliseconds is a percentile of times.
func milliseconds(times []time.Duration, share float64) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return float64(times[min(len(times)-1, int(share*float64(len(times))))].Microseconds()) / 1000
}
