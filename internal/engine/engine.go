package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine/batch"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// Config are the limits and times of an engine. Zero fields have defaults.
type Config struct {
	MaxBatch         int           // commands in one transaction
	MaxWaiting       int           // commands that may wait in a lane; more are refused
	InFlight         int           // transactions of a lane at once
	CallTimeout      time.Duration // for callers without a deadline
	Lease            time.Duration // lease duration of a claim that requests none
	HeartbeatTimeout time.Duration // how long a heartbeat renews such a lease
	WorkerTimeout    time.Duration // silence after which a worker loses its leases
	PollEvery        time.Duration // how often waiting claims poll
	ForceCancelAfter time.Duration // silence of a worker after which its task may be force-cancelled
	Quotas           tenant.Quotas // of new tenants
	QueueTarget      int           // most queued tasks of a pool
	// QueueWithoutWorkers is how many tasks are queued for a pool before its first worker appears.
	QueueWithoutWorkers int
	Server              string   // name of this server, for the ledger of slots
	Round               int      // most tasks or runs of one round of admission
	Observer            Observer // receives what was committed; nil costs nothing
	// Handoff lets transactions admit ready tasks and lease them to claims directly.
	Handoff bool
	// LogRates bound the stored bytes of logs.
	LogRates LogRates
	// Outputs reads versions that workers have committed; nil fails the tasks that have one.
	Outputs OutputReader
}

// DefaultRound is the default of Config.Round.
const DefaultRound = 1000

func (c Config) withDefaults() Config {
	setInt := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	setTime := func(field *time.Duration, value time.Duration) {
		if *field == 0 {
			*field = value
		}
	}
	setInt(&c.MaxBatch, 500)
	setInt(&c.MaxWaiting, 20_000)
	setInt(&c.InFlight, 2)
	setInt(&c.QueueTarget, 5_000)
	setInt(&c.QueueWithoutWorkers, 100)
	setInt(&c.Round, DefaultRound)
	if c.Quotas == (tenant.Quotas{}) {
		c.Quotas = tenant.DefaultQuotas()
	}
	setTime(&c.CallTimeout, 30*time.Second)
	setTime(&c.Lease, 5*time.Minute)
	setTime(&c.HeartbeatTimeout, 5*time.Minute+10*time.Second)
	setTime(&c.WorkerTimeout, 30*time.Second)
	setTime(&c.PollEvery, time.Second)
	setTime(&c.ForceCancelAfter, 5*time.Minute)
	return c
}

// Engine applies commands to runs and tasks.
type Engine struct {
	store        *store.Store
	config       Config
	log          *slog.Logger
	deployments  *deployments
	signals      *signal.Signals
	handoffs     handoffs
	pace         pace
	seen         *seenWorkers
	capabilities capabilitySets
	keys         *keyring
	observed     sync.Pool // of *Committed: reused memory for the observer

	control    *batch.Lane[controlRequest, controlAnswer]
	work       *batch.Lane[workRequest, workAnswer]
	heartbeats *batch.Lane[[]Heartbeat, []Pulse]
	progress   *batch.Lane[[]Progress, []Pulse]
	logs       *batch.Lane[LogChunk, struct{}]
	logMeter   *logMeter
	audits     *batch.Lane[*store.Audit, struct{}]
}

// New starts an engine on a store. Stop it when done.
func New(s *store.Store, config Config, log *slog.Logger) *Engine {
	config = config.withDefaults()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{store: s, config: config, log: log, deployments: newDeployments(), signals: signal.New(s.Notify, log), seen: newSeenWorkers(), keys: &keyring{store: s}}
	limits := batch.Limits{Batch: config.MaxBatch, Waiting: config.MaxWaiting, InFlight: config.InFlight, Timeout: config.CallTimeout}
	e.control = batch.New("control", batch.Options[controlRequest, controlAnswer]{Limits: limits, Apply: e.runControl, Recovered: e.signals.All}, log)
	e.work = batch.New("work", batch.Options[workRequest, workAnswer]{Limits: limits, Apply: e.runWork, Weight: workRequest.weight, Recovered: e.signals.All}, log)
	e.audits = batch.New("audits", batch.Options[*store.Audit, struct{}]{Limits: limits, Apply: e.runAudits}, log)
	limits.InFlight = 1
	e.heartbeats = batch.New("heartbeats", batch.Options[[]Heartbeat, []Pulse]{Limits: limits, Apply: e.runHeartbeats, Weight: weightOf[Heartbeat], Recovered: e.signals.All}, log)
	e.progress = batch.New("progress", batch.Options[[]Progress, []Pulse]{Limits: limits, Apply: e.runProgress, Weight: weightOf[Progress]}, log)
	limits.Waiting = min(limits.Waiting, maxLogsWait)
	e.logMeter = newLogMeter(config.LogRates)
	e.logs = batch.New("logs", batch.Options[LogChunk, struct{}]{Limits: limits, Apply: e.runLogs, Weight: chunkWeight}, log)
	return e
}

// Stop finishes the accepted commands and refuses later ones.
func (e *Engine) Stop() {
	e.control.Stop()
	e.audits.Stop()
	e.work.Stop()
	e.logs.Stop()
	e.progress.Stop()
	e.heartbeats.Stop()
	e.signals.Stop()
}

// transact runs fn in a transaction over a new working set, writes the changes, and signals after the
// commit. After a transient error of the database before the commit, fn runs again in a new transaction,
// so it must set its results again. The lanes repeat their batches themselves (see store.Once).
func (e *Engine) transact(ctx context.Context, fn func(ctx context.Context, tx *store.Tx, w *working) error) error {
	return e.withCode(ctx, func(ctx context.Context) error { return e.transactOnce(ctx, fn) })
}

// transactOnce is transact with the code that is cached.
func (e *Engine) transactOnce(ctx context.Context, fn func(ctx context.Context, tx *store.Tx, w *working) error) error {
	var (
		w *working
		h *handoff
	)
	defer func() { h.end(false) }() // after a panic too the taken claims must not wait
	err := e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if w != nil { // a try before was rolled back
			h.end(false)
			e.observe(w, errRolledBack)
		}
		w, h = newWorking(), nil
		e.watch(w)
		if err := fn(ctx, tx, w); err != nil {
			return err
		}
		if err := w.releaseHolds(ctx, tx); err != nil {
			return err
		}
		h, err = e.handOff(ctx, tx, w)
		if err == nil {
			err = e.apply(ctx, tx, w, h)
		}
		if err != nil {
			h.end(false) // the claims look themselves while this is repeated
		}
		return err
	})
	h.end(err == nil)
	if err != nil {
		if w != nil {
			e.observe(w, err)
		}
		return err
	}
	store.AfterCommit(ctx, func() {
		done := w.signals()
		e.handoffs.readied(done.Topics)
		e.signals.Committed(done)
		e.observe(w, nil)
	})
	return nil
}

// errRolledBack is the error of a working set whose transaction is repeated.
var errRolledBack = errors.New("the transaction was rolled back")

// apply writes the changes of a working set, and completes the leases of its claims.
func (e *Engine) apply(ctx context.Context, tx *store.Tx, w *working, h *handoff) error {
	if err := missedStarts(ctx, tx, w); err != nil {
		return err
	}
	changes, err := w.finish()
	if err != nil {
		return err
	}
	if err := tx.Apply(ctx, changes); err != nil {
		return err
	}
	return e.completeLeases(ctx, tx, w, h)
}
