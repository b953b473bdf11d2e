package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// A crowd is many workers with many tasks that take long. Each beats ten times as often as
// workers need to (every 30 s), reports progress every third time, and ends one task
// and claims another from time to time.
const (
	crowdWorkers  = 200
	crowdHeld     = 25 // tasks of each worker: 5,000 in all
	beatEvery     = 3 * time.Second
	turnEvery     = 2 * time.Second // a task ends after 50 s
	crowdWatch    = 30 * time.Second
	crowdFlatOut  = 5 * time.Second
	crowdStarting = 30 * time.Second
)

// crowd is the workers of the scenario, and how long their calls took.
type crowd struct {
	workers []*crowdWorker

	mu   sync.Mutex
	took map[string][]time.Duration
}

type crowdWorker struct {
	name   string
	client *client.Client
	crowd  *crowd

	mu       sync.Mutex
	leases   []string // the oldest first
	progress float32
}

// measureHeartbeats holds 5,000 running tasks and looks at what their workers' calls take.
func measureHeartbeats(ctx context.Context, f *fleet, _ TaskOptions) ([]Figure, error) {
	const tenant = "heartbeats"
	if err := f.unlimited(ctx, tenant); err != nil {
		return nil, err
	}
	turns := crowdWorkers * int(crowdWatch/turnEvery)
	if err := f.trigger(ctx, tenant, "single", crowdWorkers*crowdHeld+turns); err != nil {
		return nil, err
	}
	c, err := f.gather(ctx)
	defer c.leave()
	if err != nil {
		return nil, err
	}
	before := f.times(nil)
	if err := c.all(ctx, crowdWatch, (*crowdWorker).live); err != nil {
		return nil, err
	}
	used := f.times(nil).since(before)
	var figures []Figure
	for _, call := range []string{"heartbeat", "progress", "claim", "transition"} {
		figures = append(figures, quantiles(call, c.took[call])...)
	}
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / crowdWatch.Seconds() }
	figures = append(figures,
		Figure{"processor, PostgreSQL", percent(used.postgres), "% of a core"}, Figure{"processor, server", percent(used.server), "% of a core"})
	flatOut, err := f.flatOut(ctx, c)
	if err != nil {
		return nil, err
	}
	return append(figures, flatOut...), f.dismiss(ctx, c)
}

// unlimited takes a tenant's quotas away: what is measured is not what they hold back.
func (f *fleet) unlimited(ctx context.Context, tenant string) error {
	none := proto.Int32(-1)
	_, err := f.client.Tenants().SetQuotas(ctx, &servov1.SetQuotasRequest{Tenant: tenant, Quotas: &servov1.Quotas{
		MaxConcurrentTasks: none, MaxQueuedTasks: none, MaxConcurrentRuns: none,
	}})
	return err
}

// gather gives each worker a connection and its tasks.
func (f *fleet) gather(ctx context.Context) (*crowd, error) {
	c := &crowd{took: map[string][]time.Duration{}}
	for i := range crowdWorkers {
		conn, err := client.New(client.Options{Servers: []string{f.address}})
		if err != nil {
			return c, err
		}
		c.workers = append(c.workers, &crowdWorker{name: fmt.Sprintf("crowd-%d", i), client: conn, crowd: c})
	}
	return c, c.all(ctx, crowdStarting, func(w *crowdWorker, ctx context.Context) error {
		for len(w.leases) < crowdHeld {
			if err := w.claim(ctx, crowdHeld-len(w.leases)); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return errors.New("the workers of the crowd did not get their tasks in time")
			}
		}
		return nil
	})
}

// leave closes the connections.
func (c *crowd) leave() {
	for _, w := range c.workers {
		_ = w.client.Close()
	}
}

// all lets all workers do something for a while. The end of the time is no error.
func (c *crowd) all(ctx context.Context, most time.Duration, do func(*crowdWorker, context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	group, limited := errgroup.WithContext(limited)
	for _, w := range c.workers {
		group.Go(func() error {
			err := do(w, limited)
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

// timed makes a call and notes how long it took. What is under way when the time is over is
// waited for.
func (w *crowdWorker) timed(ctx context.Context, what string, call func(ctx context.Context) error) error {
	calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), crowdStarting)
	defer cancel()
	began := time.Now()
	if err := call(calling); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	took := time.Since(began)
	w.crowd.mu.Lock()
	defer w.crowd.mu.Unlock()
	w.crowd.took[what] = append(w.crowd.took[what], took)
	return nil
}

// claim claims up to a number of tasks.
func (w *crowdWorker) claim(ctx context.Context, most int) error {
	response, err := w.client.Workers().Claim(ctx, &servov1.ClaimRequest{
		WorkerId: w.name, ClaimId: uuid.NewString(), Pools: []string{"default"}, Max: int32(most), Slots: crowdHeld + 1, //nolint:gosec // a few
		Start: true, Wait: durationpb.New(5 * time.Second),
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range response.GetLeases() {
		w.leases = append(w.leases, l.GetLease())
	}
	return nil
}

// live is a worker's life: beats, and tasks that end and begin. Each worker begins at a moment of
// its own.
func (w *crowdWorker) live(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		beats := 0
		return at(ctx, beatEvery, func() error {
			if beats++; beats%3 == 0 {
				if err := w.timed(ctx, "progress", w.report); err != nil {
					return err
				}
			}
			return w.timed(ctx, "heartbeat", w.beat)
		})
	})
	group.Go(func() error {
		return at(ctx, turnEvery, func() error {
			if err := w.timed(ctx, "transition", w.complete); err != nil {
				return err
			}
			return w.timed(ctx, "claim", func(ctx context.Context) error { return w.claim(ctx, 1) })
		})
	})
	return group.Wait()
}

// at does something at a pace, beginning somewhere within its first beat.
func at(ctx context.Context, pace time.Duration, do func() error) error {
	if err := sleep(ctx, rand.N(pace)); err != nil { //nolint:gosec // a spread, not a secret
		return err
	}
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		if err := do(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func (w *crowdWorker) held() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.leases)
}

// beat renews all leases of the worker.
func (w *crowdWorker) beat(ctx context.Context) error {
	request := &servov1.HeartbeatRequest{WorkerId: w.name}
	for _, lease := range w.held() {
		request.Leases = append(request.Leases, &servov1.HeartbeatItem{Lease: lease})
	}
	_, err := w.client.Workers().Heartbeat(ctx, request)
	return err
}

// report sends the progress of all tasks of the worker.
func (w *crowdWorker) report(ctx context.Context) error {
	w.progress = min(w.progress+0.05, 1)
	request := &servov1.ReportRequest{WorkerId: w.name}
	for _, lease := range w.held() {
		request.Items = append(request.Items, &servov1.ReportItem{Lease: lease, Action: &servov1.ReportItem_Progress{Progress: &servov1.Progress{
			Phase: "LOAD", Stage: fmt.Sprintf("part %.0f", w.progress*4), Fraction: w.progress, RecordsLoaded: int64(w.progress * 1e6),
		}}})
	}
	_, err := w.client.Workers().Report(ctx, request)
	return err
}

// complete ends the oldest task.
func (w *crowdWorker) complete(ctx context.Context) error { return w.end(ctx, 1) }

func (w *crowdWorker) end(ctx context.Context, n int) error {
	w.mu.Lock()
	n = min(n, len(w.leases))
	ended := w.leases[:n]
	w.leases = w.leases[n:]
	w.mu.Unlock()
	if n == 0 {
		return nil
	}
	request := &servov1.ReportRequest{WorkerId: w.name}
	for _, lease := range ended {
		request.Items = append(request.Items, &servov1.ReportItem{Lease: lease, Action: &servov1.ReportItem_Complete{Complete: &servov1.Complete{}}})
	}
	_, err := w.client.Workers().Report(ctx, request)
	return err
}

// flatOut lets all workers send heartbeats without a pause, and measures the cost of a renewal.
func (f *fleet) flatOut(ctx context.Context, c *crowd) ([]Figure, error) {
	type books struct{ renewed, inPlace, dead, wal int64 }
	read := func() (b books, err error) {
		if err := sleep(ctx, 1200*time.Millisecond); err != nil { // until the backends have handed in their counts
			return b, err
		}
		err = f.admin.QueryRow(ctx, `
			SELECT n_tup_upd, n_tup_hot_upd, n_dead_tup, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint
			FROM   pg_stat_user_tables WHERE schemaname = 'servo' AND relname = 'heartbeats'`).Scan(&b.renewed, &b.inPlace, &b.dead, &b.wal)
		return b, err
	}
	before, err := read()
	if err != nil {
		return nil, err
	}
	c.took["flat out"] = nil
	err = c.all(ctx, crowdFlatOut, func(w *crowdWorker, ctx context.Context) error {
		for ctx.Err() == nil {
			if err := w.timed(ctx, "flat out", w.beat); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	after, err := read()
	if err != nil {
		return nil, err
	}
	renewed := max(after.renewed-before.renewed, 1)
	return append(quantiles("heartbeat, flat out", c.took["flat out"]),
		Figure{"renewals, flat out", float64(renewed) / crowdFlatOut.Seconds(), "leases/s"},
		Figure{"of them in place", 100 * float64(after.inPlace-before.inPlace) / float64(renewed), "%"},
		Figure{"log", float64(after.wal-before.wal) / float64(renewed), "bytes/renewal"},
		Figure{"dead rows afterwards", float64(after.dead), "rows"},
	), nil
}

// dismiss ends what the crowd holds and lets a worker do the rest.
func (f *fleet) dismiss(ctx context.Context, c *crowd) error {
	if err := c.all(ctx, crowdStarting, func(w *crowdWorker, ctx context.Context) error { return w.end(ctx, crowdHeld+1) }); err != nil {
		return err
	}
	worker, err := f.worker(ctx, 1000)
	if err != nil {
		return err
	}
	defer worker.stop()
	return f.drained(ctx, worker)
}
