package bench

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/asset"
	"go.arco.dev/servo/internal/config"
	"go.arco.dev/servo/internal/engine"
)

// SchedulesOptions say what to measure.
type SchedulesOptions struct {
	Database string // a PostgreSQL to use; "" starts a private one with fsync on
	Configs  []int  // how many are due at once, one measurement each
	Loops    int    // that fire at the same time in the last measurement
	Due      int    // configs of the last measurement
	Tenants  int
	Logger   *slog.Logger
	// Progress is told each result.
	Progress func(SchedulesResult) error
}

// SchedulesResult is what firing showed.
type SchedulesResult struct {
	Configs    int     `json:"configs"`
	Loops      int     `json:"loops"`
	Seconds    float64 `json:"seconds"`    // from the first look until every run was ready
	PerSecond  float64 `json:"per_second"` // slots
	BatchP50   float64 `json:"batch_p50"`  // of one look that fired something, in milliseconds
	BatchP99   float64 `json:"batch_p99"`  // likewise
	Statements float64 `json:"statements"` // for each slot
	WALBytes   float64 `json:"wal_bytes"`  // likewise
	HeapMiB    float64 `json:"heap_mib"`   // the most that was live
}

// RunSchedules measures how fast configs that are all due fire.
func RunSchedules(ctx context.Context, o SchedulesOptions) ([]SchedulesResult, error) {
	admin, _, stop, err := cluster(ctx, o.Database, o.Logger)
	if err != nil {
		return nil, err
	}
	defer stop()
	var results []SchedulesResult
	measure := func(configs, loops, batch int) error {
		result, err := fireAll(ctx, o, admin, configs, loops, batch)
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
		err = measure(o.Due, o.Loops, max(1, o.Due/o.Loops))
	}
	return results, err
}

// fireAll makes configs that are all due, and lets loops fire them.
func fireAll(ctx context.Context, o SchedulesOptions, admin string, configs, loops, batch int) (SchedulesResult, error) {
	result := SchedulesResult{Configs: configs, Loops: loops}
	b := &bencher{options: Options{Logger: o.Logger, Tenants: o.Tenants}, conns: int32(max(16, loops))} //nolint:gosec // a few
	closeAll, err := b.open(ctx, admin)
	defer closeAll()
	if err != nil {
		return result, err
	}
	if err := b.createTenants(ctx, scenario{manifest: chain(1)}); err != nil {
		return result, err
	}
	// As many again beforehand, so that every loop has a connection that knows its statements.
	warm := loops * batch
	if err := b.saveConfigs(ctx, configs+warm); err != nil {
		return result, err
	}
	if _, _, err := b.fire(ctx, warm, loops, batch, 1); err != nil {
		return result, err
	}
	if err := b.settle(ctx); err != nil {
		return result, err
	}
	before, err := b.read(ctx)
	if err != nil {
		return result, err
	}
	took, heap, err := b.fire(ctx, configs, loops, batch, configs)
	if err != nil {
		return result, err
	}
	after, err := b.read(ctx)
	if err != nil {
		return result, err
	}
	elapsed := after.at.Sub(before.at)
	result.Seconds = elapsed.Seconds()
	result.PerSecond = float64(configs) / result.Seconds
	result.BatchP50, result.BatchP99 = milliseconds(took, 0.5), milliseconds(took, 0.99)
	result.Statements = float64(after.stats.Statements-before.stats.Statements) / float64(configs)
	result.WALBytes = float64(after.walBytes-before.walBytes) / float64(configs)
	result.HeapMiB = float64(heap) / (1 << 20)
	return result, nil
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

// fire lets loops fire until all configs have, each at most so often, and gives what each look
// took and how much memory was live at most.
func (b *bencher) fire(ctx context.Context, configs, loops, batch, looks int) (took []time.Duration, heap uint64, err error) {
	var (
		mu    sync.Mutex
		fired atomic.Int64
	)
	group, ctx := errgroup.WithContext(ctx)
	for range loops {
		group.Go(func() error {
			for range looks {
				if fired.Load() >= int64(configs) {
					break
				}
				started := time.Now()
				done, err := b.engine.FireDue(ctx, batch)
				if err != nil {
					return err
				}
				if done.Configs == 0 {
					return nil // the rest is with others
				}
				fired.Add(int64(done.Runs))
				var memory runtime.MemStats
				runtime.ReadMemStats(&memory)
				mu.Lock()
				took, heap = append(took, time.Since(started)), max(heap, memory.HeapAlloc)
				mu.Unlock()
			}
			return nil
		})
	}
	if err = group.Wait(); err == nil && fired.Load() != int64(configs) {
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
