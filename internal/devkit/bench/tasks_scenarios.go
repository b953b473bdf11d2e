package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// fleetManifest has every pipeline of the scenarios, made by handlers of RunWorker.
func fleetManifest() string {
	var text strings.Builder
	text.WriteString("version: 1\nassets:\n")
	text.WriteString("  - {key: single/task, go: {handler: noop}}\n")
	text.WriteString("  - {key: stamp/task, go: {handler: stamp}}\n")
	for i := range chainLength {
		fmt.Fprintf(&text, "  - {key: chain/a%02d, go: {handler: noop}", i)
		if i > 0 {
			fmt.Fprintf(&text, ", upstream: [chain/a%02d]", i-1)
		}
		text.WriteString("}\n")
	}
	text.WriteString("  - {key: fan/scan, go: {handler: scan}}\n")
	text.WriteString("  - {key: page/fetch, go: {handler: noop}}\n")
	text.WriteString("  - {key: fan/zjoin, go: {handler: noop}, upstream: [fan/scan]}\n")
	text.WriteString("pipelines:\n")
	for _, name := range []string{"single", "stamp", "chain", "fan"} {
		fmt.Fprintf(&text, "  - {name: %s, overlap: allow, select: [\"%s/*\"]}\n", name, name)
	}
	return text.String()
}

const (
	chainLength = 40
	fanOutWidth = 10_000
)

// measureThroughput works off single-task runs that exist when the worker starts.
func measureThroughput(slots int) func(context.Context, *fleet, TaskOptions) ([]Figure, error) {
	return func(ctx context.Context, f *fleet, o TaskOptions) ([]Figure, error) {
		tasks := 50_000
		if o.Tasks > 0 {
			tasks = o.Tasks
		}
		tenant := fmt.Sprintf("slots-%d", slots)
		began := time.Now()
		if err := f.trigger(ctx, tenant, "single", tasks); err != nil {
			return nil, err
		}
		triggering := time.Since(began)
		before := f.times(nil)
		worker, err := f.worker(ctx, slots)
		if err != nil {
			return nil, err
		}
		defer worker.stop()
		if err := f.drained(ctx, worker); err != nil {
			return nil, err
		}
		used := f.times(worker).since(before)
		elapsed, err := f.between(ctx, tenant, `min(recorded_at) FILTER (WHERE type = 'task.claimed')`, `max(recorded_at)`)
		if err != nil {
			return nil, err
		}
		perTask := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(tasks) }
		return []Figure{
			{"throughput", float64(tasks) / elapsed.Seconds(), "tasks/s"},
			{"triggering, one call a run", float64(tasks) / triggering.Seconds(), "runs/s"},
			{"processor, PostgreSQL", perTask(used.postgres), "µs/task"},
			{"processor, server", perTask(used.server), "µs/task"},
			{"processor, worker", perTask(used.worker), "µs/task"},
		}, nil
	}
}

// between reads two moments out of the events of a tenant's runs.
func (f *fleet) between(ctx context.Context, tenant, from, to string) (time.Duration, error) {
	var start, end time.Time
	err := f.admin.QueryRow(ctx, `SELECT `+from+`, `+to+` FROM servo.run_events
		WHERE tenant_id = (SELECT id FROM servo.tenants WHERE name = $1)`, tenant).Scan(&start, &end)
	return end.Sub(start), err
}

// measureLatency triggers one run after the other on an idle system. A task is ready when
// its run is created; its handler records its start. Both clocks are this machine's.
func measureLatency(ctx context.Context, f *fleet, _ TaskOptions) ([]Figure, error) {
	const rounds = 300
	worker, err := f.worker(ctx, 10)
	if err != nil {
		return nil, err
	}
	defer worker.stop()
	for range rounds {
		if err := f.oneRun(ctx, worker, "latency", "stamp"); err != nil {
			return nil, err
		}
	}
	rows, err := f.admin.Query(ctx, `
		SELECT (t.result::text)::float8 - extract(epoch FROM t.created_at)::float8
		FROM   servo.tasks t WHERE t.tenant_id = (SELECT id FROM servo.tenants WHERE name = 'latency')
		ORDER  BY t.created_at OFFSET 20`) // the first ones meet cold caches
	if err != nil {
		return nil, err
	}
	var waits []time.Duration
	for rows.Next() {
		var seconds float64
		if err := rows.Scan(&seconds); err != nil {
			return nil, err
		}
		waits = append(waits, time.Duration(seconds*float64(time.Second)))
	}
	return quantiles("ready → handler start", waits), rows.Err()
}

// oneRun triggers a run, waits for its end, and leaves the system alone for a moment.
func (f *fleet) oneRun(ctx context.Context, worker *process, tenant, pipeline string) error {
	if err := f.trigger(ctx, tenant, pipeline, 1); err != nil {
		return err
	}
	if err := f.drained(ctx, worker); err != nil {
		return err
	}
	return sleep(ctx, 20*time.Millisecond)
}

func measureChain(ctx context.Context, f *fleet, _ TaskOptions) ([]Figure, error) {
	return f.durations(ctx, "chain", "chain", fmt.Sprintf("chain of %d", chainLength), 20)
}

func measureFanOut(ctx context.Context, f *fleet, _ TaskOptions) ([]Figure, error) {
	return f.durations(ctx, "fanout", "fan", fmt.Sprintf("fan-out of %d and join", fanOutWidth), 3)
}

// durations runs a pipeline several times, one run after the other, and returns the times
// from trigger to end.
func (f *fleet) durations(ctx context.Context, tenant, pipeline, what string, rounds int) ([]Figure, error) {
	worker, err := f.worker(ctx, 1000)
	if err != nil {
		return nil, err
	}
	defer worker.stop()
	for range rounds + 1 {
		if err := f.oneRun(ctx, worker, tenant, pipeline); err != nil {
			return nil, err
		}
	}
	rows, err := f.admin.Query(ctx, `
		SELECT extract(epoch FROM finished_at - created_at)::float8
		FROM   servo.runs WHERE tenant_id = (SELECT id FROM servo.tenants WHERE name = $1)
		ORDER  BY created_at OFFSET 1`, tenant) // the first one meets cold caches
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for rows.Next() {
		var seconds float64
		if err := rows.Scan(&seconds); err != nil {
			return nil, err
		}
		took = append(took, time.Duration(seconds*float64(time.Second)))
	}
	return quantiles(what, took), rows.Err()
}

func quantiles(what string, of []time.Duration) []Figure {
	slices.Sort(of)
	if len(of) == 0 {
		return nil
	}
	at := func(share float64) float64 {
		return float64(of[min(int(share*float64(len(of))), len(of)-1)].Microseconds()) / 1000
	}
	return []Figure{{what + ", p50", at(0.5), "ms"}, {what + ", p99", at(0.99), "ms"}}
}

// measureIdle looks at an installation with nothing to do.
func measureIdle(ctx context.Context, f *fleet, _ TaskOptions) ([]Figure, error) {
	const watch = 20 * time.Second
	worker, err := f.worker(ctx, 10)
	if err != nil {
		return nil, err
	}
	defer worker.stop()
	if err := sleep(ctx, 3*time.Second); err != nil { // what starting leaves behind
		return nil, err
	}
	before := f.times(worker)
	if err := sleep(ctx, watch); err != nil {
		return nil, err
	}
	used := f.times(worker).since(before)
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / watch.Seconds() }
	return []Figure{
		{"idle, PostgreSQL", share(used.postgres), "% of a core"},
		{"idle, server", share(used.server), "% of a core"},
		{"idle, worker", share(used.worker), "% of a core"},
	}, nil
}

// processorTimes are what the processes have used so far.
type processorTimes struct{ postgres, server, worker time.Duration }

func (t processorTimes) since(before processorTimes) processorTimes {
	return processorTimes{t.postgres - before.postgres, t.server - before.server, t.worker - before.worker}
}

func (f *fleet) times(worker *process) processorTimes {
	t := processorTimes{postgres: postgresCPU(f.postmaster), server: f.server.cpu()}
	if worker != nil {
		t.worker = worker.cpu()
	}
	return t
}

// cpu is the processor time of the process; 0 without /proc.
func (p *process) cpu() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, _, own, _ := processTimes(string(data))
	return own
}
