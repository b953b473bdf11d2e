package bench

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/engine"
)

// CrowdResult is how fast tasks are served while many tenants wait.
type CrowdResult struct {
	Tenants  int     `json:"tenants"`   // with a ready task each when it began
	Capacity int     `json:"capacity"`  // of the one worker
	Tasks    int64   `json:"tasks"`     // no-ops that were served
	Rate     float64 `json:"rate"`      // tasks/s
	RoundP50 float64 `json:"round_p50"` // between two rounds of admission that queued something, in milliseconds
	RoundP99 float64 `json:"round_p99"` // likewise
}

// crowdCapacity is how many tasks the worker of a crowd holds at once.
const crowdCapacity = 32

// waitingCrowd: many tenants that wait with two tasks each, and one worker with no-op tasks. It is
// measured while at least one task of each tenant is ready.
func waitingCrowd(ctx context.Context, o FairnessOptions, admin string) (CrowdResult, error) {
	result := CrowdResult{Tenants: o.Tenants, Capacity: crowdCapacity}
	if o.Tenants == 0 {
		return result, nil
	}
	c, closeAll, err := newContest(ctx, admin, o.Logger)
	defer closeAll()
	if err != nil {
		return result, err
	}
	first, err := c.join(ctx, "first", 1, 0)
	if err != nil {
		return result, err
	}
	tenants, err := c.copies(ctx, first, o.Tenants)
	if err != nil {
		return result, err
	}
	if err := c.fillAll(ctx, tenants); err != nil {
		return result, err
	}
	began := time.Now()
	if err := c.work(ctx, crowdCapacity, func(finished int64) bool { return finished >= int64(o.Tenants) }); err != nil {
		return result, err
	}
	result.Tasks = c.finished.Load()
	result.Rate = float64(result.Tasks) / time.Since(began).Seconds()
	err = c.admin.QueryRow(ctx, roundsSQL, began).Scan(&result.RoundP50, &result.RoundP99)
	return result, err
}

// copies creates tenants like an existing one, with its deployment.
func (c *contest) copies(ctx context.Context, of id.Tenant, n int) ([]id.Tenant, error) {
	if _, err := c.admin.Exec(ctx, copiesSQL, of.UUID, n); err != nil {
		return nil, err
	}
	rows, err := c.admin.Query(ctx, `SELECT id FROM servo.tenants WHERE name LIKE 'copy %'`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var tenants []id.Tenant
	for rows.Next() {
		var t id.Tenant
		if err := rows.Scan(&t.UUID); err != nil {
			return nil, err
		}
		tenants = append(tenants, t)
	}
	return tenants, rows.Err()
}

const copiesSQL = `
WITH made AS (
	INSERT INTO servo.tenants (id, name, version, created_at, max_concurrent_tasks, max_queued_tasks, max_concurrent_runs, max_daily_runs,
		max_run_duration_s, max_tasks_per_run, max_backfill_runs, fairness_weight, zone)
	SELECT gen_random_uuid(), 'copy ' || n, version, created_at, max_concurrent_tasks, max_queued_tasks, max_concurrent_runs, max_daily_runs,
		max_run_duration_s, max_tasks_per_run, max_backfill_runs, fairness_weight, zone
	FROM   servo.tenants, generate_series(1, $2) AS n WHERE id = $1 RETURNING id
), deployed AS (
	INSERT INTO servo.deployments (tenant_id, id, workspace_id, digest, manifest, version, created_at)
	SELECT m.id, d.id, d.workspace_id, d.digest, d.manifest, d.version, d.created_at FROM made m, servo.deployments d WHERE d.tenant_id = $1
)
INSERT INTO servo.workspaces (tenant_id, id, name, active_deployment_id, version, created_at)
SELECT m.id, w.id, w.name, w.active_deployment_id, w.version, w.created_at FROM made m, servo.workspaces w WHERE w.tenant_id = $1`

// fillAll gives each tenant two ready tasks.
func (c *contest) fillAll(ctx context.Context, tenants []id.Tenant) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for range 2 {
		for from := 0; from < len(tenants); from += 500 {
			group.Go(func() error {
				var triggers []engine.Trigger
				for _, of := range tenants[from:min(from+500, len(tenants))] {
					triggers = append(triggers, engine.Trigger{Tenant: of, Pipeline: "bench", TriggeredBy: "bench", Meta: benchMeta})
				}
				_, errs := c.engine.TriggerRuns(ctx, triggers)
				for _, err := range errs {
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// roundsSQL reads how far apart the rounds of admission were.
const roundsSQL = `
WITH rounds AS (
	SELECT DISTINCT recorded_at AS at FROM servo.run_events WHERE type = 'task.queued' AND recorded_at >= $1
), gaps AS (
	SELECT extract(epoch FROM at - lag(at) OVER (ORDER BY at)) * 1000 AS apart FROM rounds
)
SELECT coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY apart), 0)::float8, coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY apart), 0)::float8 FROM gaps`
