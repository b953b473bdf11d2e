package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/devpg"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/loops/admission"
	"go.arco.dev/servo/internal/loops/presence"
	"go.arco.dev/servo/internal/loops/reaper"
	"go.arco.dev/servo/internal/store"
)

// Options select scenarios, sizes and the database.
type Options struct {
	Database  string   // a PostgreSQL to use; "" starts a private one with fsync on
	Scenarios []string // names; none is all
	Tasks     int      // of each scenario; 0 is the scenario's own number
	Tenants   int
	Slots     int // tasks that the workers hold at once
	Logger    *slog.Logger
	// Progress is called after each scenario.
	Progress func(Result) error
}

// Result is what one scenario showed.
type Result struct {
	Scenario   string      `json:"scenario"`
	Tasks      int64       `json:"tasks"`
	Runs       int64       `json:"runs"`
	Cost       Cost        `json:"cost"`
	Pace       []float64   `json:"pace"` // tasks/s in ten slices of the work
	Queues     []TableSize `json:"queues"`
	Statements []Statement `json:"statements,omitempty"`
}

// PerSecond is the figure that counts: tasks a second over the whole path.
func (r Result) PerSecond() float64 { return float64(r.Tasks) / r.Cost.Elapsed.Seconds() }

// bencher is one database with an engine on it.
type bencher struct {
	options    Options
	store      *store.Store
	engine     *engine.Engine
	admin      *pgx.Conn
	postmaster int
	tenants    []id.Tenant
	finished   atomic.Int64
	holds      bool // pg_stat_statements is installed
	conns      int32
}

// Run measures scenarios one after the other, each in a database of its own.
func Run(ctx context.Context, o Options) ([]Result, error) {
	if o.Tenants == 0 {
		o.Tenants = 50
	}
	if o.Slots == 0 {
		o.Slots = 1000
	}
	chosen, err := choose(o.Scenarios)
	if err != nil {
		return nil, err
	}
	admin, postmaster, stop, err := cluster(ctx, o.Database, o.Logger)
	if err != nil {
		return nil, err
	}
	defer stop()
	var results []Result
	for _, s := range chosen {
		result, err := runScenario(ctx, o, admin, postmaster, s)
		if err != nil {
			return results, fmt.Errorf("%s: %w", s.name, err)
		}
		results = append(results, result)
		if o.Progress == nil {
			continue
		}
		if err := o.Progress(result); err != nil {
			return results, err
		}
	}
	return results, nil
}

// cluster is the database to use, or a private one that stop ends.
func cluster(ctx context.Context, database string, log *slog.Logger) (admin string, postmaster int, stop func(), err error) {
	if database != "" {
		return database, 0, func() {}, nil
	}
	server, err := devpg.Start(ctx, devpg.Options{Settings: settings(), Logger: log})
	if err != nil {
		return "", 0, func() {}, err
	}
	return server.URL("postgres"), server.PID(), func() { _ = server.Stop(context.WithoutCancel(ctx)) }, nil
}

// settings of the private cluster: durable, with memory and log for a machine of its size.
func settings() map[string]string {
	return map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
		"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "15min", "wal_compression": "lz4",
		"autovacuum_naptime": "5s", "track_io_timing": "off",
	}
}

func runScenario(ctx context.Context, o Options, admin string, postmaster int, s scenario) (Result, error) {
	b := &bencher{options: o, postmaster: postmaster}
	closeAll, err := b.open(ctx, admin)
	defer closeAll()
	if err != nil {
		return Result{}, err
	}
	if err := b.createTenants(ctx, s); err != nil {
		return Result{}, err
	}
	tasks := s.tasks
	if o.Tasks > 0 {
		tasks = o.Tasks
	}
	return b.measure(ctx, s, tasks)
}

// open makes a database for the scenario, migrates it and puts an engine with its loops on
// it. What it gives back takes all of it down again.
func (b *bencher) open(ctx context.Context, admin string) (func(), error) {
	var undo []func()
	closeAll := func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}
	name := fmt.Sprintf("servo_bench_%d", time.Now().UnixNano())
	if err := execute(ctx, admin, `CREATE DATABASE `+name+` TEMPLATE template0`); err != nil {
		return closeAll, err
	}
	undo = append(undo, func() { _ = execute(context.WithoutCancel(ctx), admin, `DROP DATABASE `+name+` WITH (FORCE)`) })
	u, err := url.Parse(admin)
	if err != nil {
		return closeAll, err
	}
	u.Path = "/" + name
	if b.admin, err = pgx.Connect(ctx, u.String()); err != nil {
		return closeAll, err
	}
	undo = append(undo, func() { _ = b.admin.Close(context.WithoutCancel(ctx)) })
	_, err = b.admin.Exec(ctx, `CREATE EXTENSION pg_stat_statements`)
	b.holds = err == nil // not there everywhere; then the profile is left out
	if b.store, err = store.Open(ctx, store.Options{URL: u.String(), MaxConns: max(16, b.conns)}); err != nil {
		return closeAll, err
	}
	undo = append(undo, b.store.Close)
	if _, err := b.store.Migrate(ctx); err != nil {
		return closeAll, err
	}
	if err := b.store.Prepare(ctx); err != nil {
		return closeAll, err
	}
	// The load begins when the first worker is ready.
	b.engine = engine.New(b.store, engine.Config{Quotas: tenant.NoLimits(), QueueWithoutWorkers: 1, Handoff: true}, b.options.Logger)
	undo = append(undo, b.engine.Stop)
	admit := admission.Start(b.store, b.engine, admission.Config{Holder: "bench", Logger: b.options.Logger}) //nolint:contextcheck // a loop lives until it is stopped
	undo = append(undo, func() { _ = admit.Stop(context.WithoutCancel(ctx)) })
	here := presence.Start(ctx, b.store, b.engine, presence.Config{Name: "bench", Logger: b.options.Logger})
	undo = append(undo, func() { _ = here.Stop(context.WithoutCancel(ctx)) })
	reap := reaper.Start(b.store, b.engine, reaper.Config{Logger: b.options.Logger}) //nolint:contextcheck // likewise
	undo = append(undo, reap.Stop)
	return closeAll, nil
}

func execute(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// forget resets the profile.
func (b *bencher) forget(ctx context.Context) error {
	if !b.holds {
		return nil
	}
	_, err := b.admin.Exec(ctx, `SELECT pg_stat_statements_reset()`)
	return err
}

// measure runs the scenario's load to its end between two readings.
func (b *bencher) measure(ctx context.Context, s scenario, tasks int) (Result, error) {
	if err := b.forget(ctx); err != nil {
		return Result{}, err
	}
	before, err := b.read(ctx)
	if err != nil {
		return Result{}, err
	}
	load, err := b.run(ctx, s, tasks)
	if err != nil {
		return Result{}, err
	}
	if err := b.settle(ctx); err != nil {
		return Result{}, err
	}
	after, err := b.read(ctx)
	if err != nil {
		return Result{}, err
	}
	result := Result{Scenario: s.name, Tasks: b.finished.Load(), Runs: load.runs, Cost: before.until(after, load.elapsed), Pace: load.pace}
	if result.Queues, err = b.queueSizes(ctx); err != nil {
		return result, err
	}
	if b.holds {
		result.Statements, err = b.statements(ctx)
	}
	return result, err
}

func choose(names []string) ([]scenario, error) {
	all := scenarios()
	if len(names) == 0 {
		return all, nil
	}
	var chosen []scenario
	for _, name := range names {
		found := false
		for _, s := range all {
			if s.name == name {
				chosen, found = append(chosen, s), true
			}
		}
		if !found {
			return nil, fault.New(fault.InvalidArgument, "unknown scenario "+name, fault.Field("scenario"),
				fault.Remedy("use one of "+scenarioNames()))
		}
	}
	return chosen, nil
}

var errLostTasks = errors.New("the run of the load ended with tasks missing")
