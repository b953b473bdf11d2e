package bench

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
)

// FairnessOptions select the measurements.
type FairnessOptions struct {
	Database string        // a PostgreSQL to use; "" starts a private one with fsync on
	Backlog  int           // ready tasks of the noisy tenant
	Tenants  int           // that wait together
	Tasks    int           // that the tenants with weights are served in all
	For      time.Duration // how long the quiet tenant asks for a task each second
	Logger   *slog.Logger
}

// FairnessResult is what was seen.
type FairnessResult struct {
	Neighbour NeighbourResult `json:"neighbour"`
	Crowd     CrowdResult     `json:"crowd"`
	Weights   []WeightResult  `json:"weights"`
}

// NeighbourResult is how a tenant with a task each second fares beside one with a backlog.
type NeighbourResult struct {
	IdleP50   float64 `json:"idle_p50"`   // of the quiet tenant's READY → RUNNING while it is alone, in milliseconds
	IdleP99   float64 `json:"idle_p99"`   // likewise
	Length    float64 `json:"length"`     // of the noisy tenant's tasks, in milliseconds
	Backlog   int     `json:"backlog"`    // of the noisy tenant when it began
	Tasks     int     `json:"tasks"`      // of the quiet tenant
	WaitP50   float64 `json:"wait_p50"`   // its READY → QUEUED, in milliseconds
	WaitP99   float64 `json:"wait_p99"`   // likewise
	StartP50  float64 `json:"start_p50"`  // its READY → RUNNING
	StartP99  float64 `json:"start_p99"`  // likewise
	Rounds    int     `json:"rounds"`     // of admission from READY to QUEUED, at most, the last one included
	RoundP50  float64 `json:"round_p50"`  // between two rounds of admission that queued something
	RoundP99  float64 `json:"round_p99"`  // likewise
	NoisyRate float64 `json:"noisy_rate"` // tasks/s of the noisy tenant meanwhile
}

// WeightResult is what one of several tenants got that always had tasks ready.
type WeightResult struct {
	Tenant   string  `json:"tenant"`
	Weight   float64 `json:"weight"`
	Length   float64 `json:"length"` // of its tasks, in milliseconds
	Tasks    int64   `json:"tasks"`
	Seconds  float64 `json:"seconds"`  // worker-seconds that it was served
	Share    float64 `json:"share"`    // of all worker-seconds
	Entitled float64 `json:"entitled"` // by its weight
}

// RunFairness measures how tenants that want more than there is share a pool.
func RunFairness(ctx context.Context, o FairnessOptions) (FairnessResult, error) {
	var result FairnessResult
	admin, _, stop, err := cluster(ctx, o.Database, o.Logger)
	if err != nil {
		return result, err
	}
	defer stop()
	if result.Neighbour, err = neighbour(ctx, o, admin); err != nil {
		return result, fmt.Errorf("neighbour: %w", err)
	}
	if result.Crowd, err = waitingCrowd(ctx, o, admin); err != nil {
		return result, fmt.Errorf("crowd: %w", err)
	}
	if result.Weights, err = weights(ctx, o, admin); err != nil {
		return result, fmt.Errorf("weights: %w", err)
	}
	return result, nil
}

// contest is a database with tenants whose tasks take a while.
type contest struct {
	*bencher

	length map[id.Tenant]time.Duration
}

func newContest(ctx context.Context, admin string, log *slog.Logger) (*contest, func(), error) {
	b := &bencher{options: Options{Logger: log}}
	closeAll, err := b.open(ctx, admin)
	return &contest{bencher: b, length: map[id.Tenant]time.Duration{}}, closeAll, err
}

// join adds a tenant whose tasks take so long.
func (c *contest) join(ctx context.Context, name string, weight float64, length time.Duration) (id.Tenant, error) {
	joined, err := c.engine.CreateTenant(ctx, name, benchMeta)
	if err != nil {
		return joined, err
	}
	quotas := tenant.NoLimits()
	quotas.FairnessWeight = weight
	quotas.MaxConcurrentTasks = 100_000 // counted, and far away
	if _, err := c.engine.SetQuotas(ctx, joined, quotas, 1, benchMeta); err != nil {
		return joined, err
	}
	manifest, err := asset.Parse([]byte(chain(1)), "servo.yaml")
	if err != nil {
		return joined, err
	}
	c.length[joined] = length
	_, err = c.engine.Deploy(ctx, joined, "default", manifest, benchMeta)
	return joined, err
}

// fill gives a tenant ready tasks.
func (c *contest) fill(ctx context.Context, of id.Tenant, n int) error {
	for n > 0 {
		triggers := make([]engine.Trigger, min(n, 500))
		for i := range triggers {
			triggers[i] = engine.Trigger{Tenant: of, Pipeline: "bench", TriggeredBy: "bench", Meta: benchMeta}
		}
		n -= len(triggers)
		_, errs := c.engine.TriggerRuns(ctx, triggers)
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// work holds a number of tasks at once, each for its tenant's task duration, until done returns true.
func (c *contest) work(ctx context.Context, slots int, done func(finished int64) bool) error {
	var (
		wait  sync.WaitGroup
		ended = make(chan engine.Lease, slots)
	)
	defer wait.Wait()
	for free := slots; !done(c.finished.Load()); {
		if free > 0 {
			leases, err := c.engine.Claim(ctx, engine.ClaimRequest{
				Worker: "bench", Claim: id.Of[id.Claim](uuid.New()), Pools: []string{asset.DefaultPool}, Max: free, Slots: slots, Start: true,
			})
			if err != nil {
				return err
			}
			free -= len(leases)
			for _, l := range leases {
				wait.Add(1)
				time.AfterFunc(c.length[l.Tenant], func() { defer wait.Done(); ended <- l })
			}
		}
		reports, err := collect(ctx, ended)
		if err != nil {
			return err
		}
		_, errs := c.engine.Report(ctx, reports)
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		free += len(reports)
		c.finished.Add(int64(len(reports)))
	}
	return nil
}

// collect waits for some tasks to end, a moment if none does.
func collect(ctx context.Context, ended <-chan engine.Lease) ([]engine.Report, error) {
	var reports []engine.Report
	moment := time.NewTimer(2 * time.Millisecond)
	defer moment.Stop()
	for {
		select {
		case l := <-ended:
			reports = append(reports, engine.Report{TaskKey: l.TaskKey, Token: l.Token, Action: engine.Complete{}})
		case <-moment.C:
			return reports, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// neighbour: a backlog of one tenant, and another that wants one task each second.
func neighbour(ctx context.Context, o FairnessOptions, admin string) (NeighbourResult, error) {
	result := NeighbourResult{Backlog: o.Backlog, Length: 100}
	c, closeAll, err := newContest(ctx, admin, o.Logger)
	defer closeAll()
	if err != nil {
		return result, err
	}
	noisy, err := c.join(ctx, "noisy", 1, 100*time.Millisecond)
	if err != nil {
		return result, err
	}
	quiet, err := c.join(ctx, "quiet", 1, 10*time.Millisecond)
	if err != nil {
		return result, err
	}
	alone := time.Now()
	if err := c.ask(ctx, quiet, o.For/4); err != nil {
		return result, err
	}
	var idle NeighbourResult
	if err := c.admin.QueryRow(ctx, neighbourSQL, quiet.UUID, alone).Scan(idle.waits()...); err != nil {
		return result, err
	}
	if err := c.fill(ctx, noisy, o.Backlog); err != nil {
		return result, err
	}
	c.finished.Store(0)
	beside := time.Now()
	if err := c.ask(ctx, quiet, o.For); err != nil {
		return result, err
	}
	result.NoisyRate = float64(c.finished.Load()) / time.Since(beside).Seconds()
	err = c.admin.QueryRow(ctx, neighbourSQL, quiet.UUID, beside).Scan(result.waits()...)
	result.IdleP50, result.IdleP99 = idle.StartP50, idle.StartP99
	return result, err
}

// ask triggers one task of a tenant each second for a while; a worker serves all tenants.
func (c *contest) ask(ctx context.Context, quiet id.Tenant, length time.Duration) error {
	until := time.Now().Add(length)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return c.work(ctx, 100, func(int64) bool { return time.Now().After(until.Add(time.Second)) })
	})
	group.Go(func() error {
		for time.Now().Before(until) {
			if err := c.fill(ctx, quiet, 1); err != nil {
				return err
			}
			if err := sleep(ctx, time.Second); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// waits are what neighbourSQL answers with.
func (r *NeighbourResult) waits() []any {
	return []any{&r.Tasks, &r.WaitP50, &r.WaitP99, &r.StartP50, &r.StartP99, &r.RoundP50, &r.RoundP99, &r.Rounds}
}

// neighbourSQL reads from the events how long the quiet tenant's tasks waited, and how far
// apart the rounds of admission were.
const neighbourSQL = `
WITH waits AS (
	SELECT r.created_at AS ready_at, q.recorded_at AS queued_at, c.recorded_at AS started_at
	FROM   servo.runs r
	JOIN   servo.run_events q ON q.tenant_id = r.tenant_id AND q.run_id = r.id AND q.type = 'task.queued'
	JOIN   servo.run_events c ON c.tenant_id = r.tenant_id AND c.run_id = r.id AND c.type = 'task.claimed'
	WHERE  r.tenant_id = $1 AND r.created_at >= $2
), rounds AS (
	SELECT DISTINCT recorded_at AS at FROM servo.run_events WHERE type = 'task.queued'
	AND    recorded_at >= (SELECT min(ready_at) FROM waits)
), gaps AS (
	SELECT extract(epoch FROM at - lag(at) OVER (ORDER BY at)) * 1000 AS apart FROM rounds
), took AS (
	SELECT extract(epoch FROM queued_at - ready_at) * 1000 AS queued, extract(epoch FROM started_at - ready_at) * 1000 AS started,
	       (SELECT count(*) FROM rounds WHERE at > ready_at AND at <= queued_at) AS rounds
	FROM   waits
)
SELECT count(*)::int, percentile_cont(0.5) WITHIN GROUP (ORDER BY queued)::float8, percentile_cont(0.99) WITHIN GROUP (ORDER BY queued)::float8,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY started)::float8, percentile_cont(0.99) WITHIN GROUP (ORDER BY started)::float8,
       (SELECT coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY apart), 0)::float8 FROM gaps),
       (SELECT coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY apart), 0)::float8 FROM gaps), max(rounds)::int
FROM   took`

// weights: three tenants that always wait, with tasks of different length.
func weights(ctx context.Context, o FairnessOptions, admin string) ([]WeightResult, error) {
	c, closeAll, err := newContest(ctx, admin, o.Logger)
	defer closeAll()
	if err != nil {
		return nil, err
	}
	results := []WeightResult{{Tenant: "one", Weight: 1, Length: 100}, {Tenant: "two", Weight: 2, Length: 25}, {Tenant: "four", Weight: 4, Length: 50}}
	for i := range results {
		r := &results[i]
		joined, err := c.join(ctx, r.Tenant, r.Weight, time.Duration(r.Length)*time.Millisecond)
		if err != nil {
			return nil, err
		}
		// As many as would be served if it had all to itself, so that it always waits.
		if err := c.fill(ctx, joined, o.Tasks*3/4); err != nil {
			return nil, err
		}
	}
	if err := c.work(ctx, 30, func(finished int64) bool { return finished >= int64(o.Tasks) }); err != nil {
		return nil, err
	}
	return results, c.served(ctx, results)
}

// served reads what each tenant got.
func (c *contest) served(ctx context.Context, results []WeightResult) error {
	rows, err := c.admin.Query(ctx, `SELECT n.name, s.tasks, s.served FROM servo.shares s JOIN servo.tenants n ON n.id = s.tenant_id`)
	if err != nil {
		return err
	}
	var (
		name           string
		tasks          int64
		seconds, total float64
		weight         float64
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &tasks, &seconds}, func() error {
		for i := range results {
			if results[i].Tenant == name {
				results[i].Tasks, results[i].Seconds = tasks, seconds
				total += seconds
				weight += results[i].Weight
			}
		}
		return nil
	})
	for i := range results {
		results[i].Share, results[i].Entitled = results[i].Seconds/total, results[i].Weight/weight
	}
	return err
}
