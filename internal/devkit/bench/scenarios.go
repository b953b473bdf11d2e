package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
)

// scenario is a load: which runs, how many tasks, and whether they exist before the
// workers begin.
type scenario struct {
	name     string
	tasks    int
	perRun   int
	prefill  bool // all runs are triggered before the clock starts
	manifest string
	fanOut   int
	// mix gives tenants different loads: these in turn, with perRun as their mean.
	mix []mixed
	// failing is one in how many first attempts that fail and are tried again; 0 is none.
	failing int
}

// mixed is one load of a mix.
type mixed struct {
	perRun   int
	manifest string
}

// of is the load of one tenant.
func (s scenario) of(tenant int) mixed {
	if len(s.mix) == 0 {
		return mixed{perRun: s.perRun, manifest: s.manifest}
	}
	return s.mix[tenant%len(s.mix)]
}

func scenarios() []scenario {
	return []scenario{
		{name: "single", tasks: 100_000, perRun: 1, manifest: chain(1)},
		{name: "drain", tasks: 100_000, perRun: 1, prefill: true, manifest: chain(1)},
		{name: "chain", tasks: 100_000, perRun: 10, manifest: chain(10)},
		{name: "diamond", tasks: 100_000, perRun: 10, manifest: diamond(8)},
		{name: "fanout", tasks: 10_002, perRun: 10_002, manifest: fan, fanOut: 10_000},
		{
			name: "mixed", tasks: 100_000, perRun: 7, failing: 50,
			mix: []mixed{{perRun: 1, manifest: chain(1)}, {perRun: 10, manifest: chain(10)}, {perRun: 10, manifest: diamond(8)}},
		},
	}
}

func scenarioNames() string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}

// chain is a manifest of n assets, each after the one before it.
func chain(n int) string {
	var text strings.Builder
	text.WriteString("version: 1\nassets:\n")
	for i := range n {
		fmt.Fprintf(&text, "  - {key: bench/a%02d, exec: {command: [noop]}, retry: {initial_delay: 1s}", i)
		if i > 0 {
			fmt.Fprintf(&text, ", upstream: [bench/a%02d]", i-1)
		}
		text.WriteString("}\n")
	}
	text.WriteString("pipelines:\n  - {name: bench, overlap: allow, select: [\"bench/*\"]}\n")
	return text.String()
}

// diamond is a manifest of one asset, width assets after it, and one after all of them.
func diamond(width int) string {
	var text, last strings.Builder
	text.WriteString("version: 1\nassets:\n  - {key: bench/first, exec: {command: [noop]}, retry: {initial_delay: 1s}}\n")
	for i := range width {
		fmt.Fprintf(&text, "  - {key: bench/m%02d, exec: {command: [noop]}, retry: {initial_delay: 1s}, upstream: [bench/first]}\n", i)
		fmt.Fprintf(&last, "bench/m%02d, ", i)
	}
	fmt.Fprintf(&text, "  - {key: bench/last, exec: {command: [noop]}, retry: {initial_delay: 1s}, upstream: [%s]}\n", strings.TrimSuffix(last.String(), ", "))
	text.WriteString("pipelines:\n  - {name: bench, overlap: allow, select: [\"bench/*\"]}\n")
	return text.String()
}

const fan = `version: 1
assets:
  - {key: bench/scan, exec: {command: [noop]}}
  - {key: page/fetch, exec: {command: [noop]}}
  - {key: bench/zjoin, exec: {command: [noop]}, upstream: [bench/scan]}
pipelines:
  - {name: bench, overlap: allow, select: ["bench/*"]}
`

var benchMeta = event.Meta{Actor: "bench"}

func (b *bencher) createTenants(ctx context.Context, s scenario) error {
	for i := range b.options.Tenants {
		manifest, err := asset.Parse([]byte(s.of(i).manifest), "servo.yaml")
		if err != nil {
			return err
		}
		tenant, err := b.engine.CreateTenant(ctx, fmt.Sprintf("bench-%d", i), benchMeta)
		if err != nil {
			return err
		}
		if _, err := b.engine.Deploy(ctx, tenant, "default", manifest, benchMeta); err != nil {
			return err
		}
		b.tenants = append(b.tenants, tenant)
	}
	return nil
}

// load is the result of one load.
type load struct {
	runs    int64
	elapsed time.Duration
	pace    []float64
}

// maxBacklog bounds the tasks that are triggered ahead of the workers.
const maxBacklog = 20_000

// run triggers the runs and works them off. Without prefill both happen at the same time,
// as in a system under steady load.
func (b *bencher) run(ctx context.Context, s scenario, tasks int) (load, error) {
	runs := max(tasks/s.perRun, 1)
	var total int64
	for i := range runs {
		total += int64(s.of(i % len(b.tenants)).perRun)
	}
	if s.prefill {
		if err := b.feed(ctx, s, 0, runs, 0); err != nil {
			return load{}, err
		}
	}
	started := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	if !s.prefill {
		group.Go(func() error { return b.feed(ctx, s, 0, runs/2, maxBacklog/2) })
		group.Go(func() error { return b.feed(ctx, s, runs/2, runs, maxBacklog/2) })
	}
	const workers = 2 // large batches, as servers under load see them
	for i := range workers {
		group.Go(func() error { return b.workOff(ctx, s, total, fmt.Sprintf("w%d", i), b.options.Slots/workers) })
	}
	var pace []float64
	group.Go(func() (err error) {
		pace, err = b.watch(ctx, total)
		return err
	})
	err := group.Wait()
	elapsed := time.Since(started)
	if err == nil && b.finished.Load() != total {
		err = errLostTasks
	}
	return load{runs: int64(runs), elapsed: elapsed, pace: pace}, err
}

// feed triggers the runs from first to last in groups, round robin over the tenants, no
// further ahead of its share of the finished work than backlog tasks (0 is no bound).
func (b *bencher) feed(ctx context.Context, s scenario, first, last, backlog int) error {
	const group = 500
	for sent := first; sent < last; {
		for backlog > 0 && int64((sent-first)*s.perRun)-b.finished.Load()/2 > int64(backlog) {
			if err := sleep(ctx, time.Millisecond); err != nil {
				return err
			}
		}
		triggers := make([]engine.Trigger, min(group, last-sent))
		for i := range triggers {
			triggers[i] = engine.Trigger{Tenant: b.tenants[(sent+i)%len(b.tenants)], Pipeline: "bench", TriggeredBy: "bench", Meta: benchMeta}
		}
		_, errs := b.engine.TriggerRuns(ctx, triggers)
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		sent += len(triggers)
	}
	return nil
}

// workOff claims, starts and completes tasks until total are finished.
func (b *bencher) workOff(ctx context.Context, s scenario, total int64, worker string, slots int) error {
	for b.finished.Load() < total {
		leases, err := b.engine.Claim(ctx, engine.ClaimRequest{
			Worker: worker, Claim: id.Of[id.Claim](uuid.New()), Pools: []string{asset.DefaultPool}, Max: slots, Slots: slots, Start: true,
			Wait: 100 * time.Millisecond,
		})
		if err != nil {
			return err
		}
		if len(leases) == 0 {
			continue
		}
		reports := make([]engine.Report, 0, len(leases))
		failed := 0
		for _, l := range leases {
			if s.failing > 0 && l.Attempt == 1 && int(l.Task.UUID[15])%s.failing == 0 {
				failed++
				reports = append(reports, engine.Report{TaskKey: l.TaskKey, Token: l.Token, Action: engine.Fail{Failure: run.Failure{Code: "NETWORK_ERROR", Message: "the first attempt fails"}}})
				continue
			}
			if s.fanOut > 0 && l.Asset == "bench/scan" {
				reports = append(reports, engine.Report{TaskKey: l.TaskKey, Token: l.Token, Action: pages(s.fanOut)})
			}
			reports = append(reports, engine.Report{TaskKey: l.TaskKey, Token: l.Token, Action: engine.Complete{}})
		}
		_, errs := b.engine.Report(ctx, reports)
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		b.finished.Add(int64(len(leases) - failed))
	}
	return nil
}

func pages(n int) engine.FanOut {
	fanOut := engine.FanOut{Barrier: true, Tasks: make([]engine.FanOutTask, n)}
	for i := range fanOut.Tasks {
		fanOut.Tasks[i] = engine.FanOutTask{Asset: "page/fetch", Partition: fmt.Sprint(i)}
	}
	return fanOut
}

// watch notes the pace of each tenth of the work.
func (b *bencher) watch(ctx context.Context, total int64) ([]float64, error) {
	var pace []float64
	last, lastAt := int64(0), time.Now()
	for slice := int64(1); slice <= 10; slice++ {
		for b.finished.Load() < total*slice/10 {
			if err := sleep(ctx, 2*time.Millisecond); err != nil {
				return pace, err
			}
		}
		now, done := time.Now(), b.finished.Load()
		pace = append(pace, float64(done-last)/max(now.Sub(lastAt).Seconds(), 0.001))
		last, lastAt = done, now
	}
	return pace, nil
}
