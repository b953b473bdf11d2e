package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// Config are the limits and times of an engine. Zero fields take the defaults.
type Config struct {
	MaxBatch         int           // commands in one transaction
	MaxWaiting       int           // commands that may wait in a lane before callers are turned away
	InFlight         int           // transactions of a lane at once
	CallTimeout      time.Duration // for callers that bring no deadline
	Lease            time.Duration // what a claim gives when it does not say
	HeartbeatTimeout time.Duration // how long a heartbeat renews a lease whose claim does not say
	WorkerTimeout    time.Duration // after how long a silent worker loses its leases
	PollEvery        time.Duration // how often waiting claims look without a signal
	ForceCancelAfter time.Duration // how long a worker must be silent before its task may be cancelled by force
	Quotas           tenant.Quotas // what new tenants may use
	QueueTarget      int           // no pool has more queued tasks than this
	// QueueWithoutWorkers is how many tasks are queued for a pool of which no worker was seen
	// yet: what the first one finds.
	QueueWithoutWorkers int
	Server              string   // its name, for the ledger of slots
	Round               int      // how many tasks or runs one round of admission takes at most
	Observer            Observer // is told what was committed; nil costs nothing
	// Inline lets transactions queue and lease what they make ready, where nobody waits.
	Inline bool
	// LogRates bound what is stored of logs.
	LogRates LogRates
}

// DefaultRound is how many tasks or runs one round of admission takes at most.
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
	signals      *signals
	short        shortWay
	pace         pace
	seen         *seenWorkers
	capabilities capabilitySets
	keys         *keyring
	observed     sync.Pool // of *Committed: memory for what the observer is told

	control    *lane[controlCommand]
	work       *lane[workCommand]
	heartbeats *lane[*heartbeatCommand]
	progress   *lane[*progressCommand]
	logs       *lane[*logCommand]
	logMeter   *logMeter
	audits     *lane[*auditCommand]
}

// New makes an engine on a store. Stop it when done.
func New(s *store.Store, config Config, log *slog.Logger) *Engine {
	config = config.withDefaults()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{store: s, config: config, log: log, deployments: newDeployments(), signals: newSignals(), seen: newSeenWorkers(), keys: &keyring{store: s}}
	e.signals.far = newWakeups(s.Notify, log)
	limits := laneLimits{batch: config.MaxBatch, waiting: config.MaxWaiting, timeout: config.CallTimeout}
	e.control = newLane("control", limits, config.InFlight, log, e.runControl, e.signals.everybody)
	e.work = newLane("work", limits, config.InFlight, log, e.runWork, e.signals.everybody)
	e.heartbeats = newLane("heartbeats", limits, 1, log, e.runHeartbeats, e.signals.everybody)
	e.progress = newLane("progress", limits, 1, log, e.runProgress, func() {})         // nobody waits for it
	e.audits = newLane("audits", limits, config.InFlight, log, e.runAudits, func() {}) // nobody waits for what others did
	limits.waiting = min(limits.waiting, maxLogsWait)
	e.logMeter = newLogMeter(config.LogRates)
	e.logs = newLane("logs", limits, 1, log, e.runLogs, func() {}) // nobody waits for them
	return e
}

// Stop finishes what was accepted and turns away what comes after.
func (e *Engine) Stop() {
	e.control.stop()
	e.audits.stop()
	e.work.stop()
	e.logs.stop()
	e.progress.stop()
	e.heartbeats.stop()
	e.signals.far.stop()
}

// Ready is signalled when a task has become ready.
func (e *Engine) Ready() <-chan struct{} { return e.signals.wait(readyTopic) }

// WakeAdmission signals Ready in this process: there may be something to admit that another
// server was told of.
func (e *Engine) WakeAdmission() { e.signals.wake([]string{readyTopic}) }

// Due gives a channel that closes when a config may be due earlier than was known.
func (e *Engine) Due() <-chan struct{} { return e.signals.wait(dueTopic) }

// FollowUp is signalled when a transaction left work for another one (see SkipDoomed).
func (e *Engine) FollowUp() <-chan struct{} { return e.signals.wait(followUpTopic) }

// RunChanged is signalled at the next change of a run: something was recorded about the run
// or a task of it. Take the channel first, look second, and call stop when done, signalled or
// not. What other servers have changed may be missed: look from time to time.
func (e *Engine) RunChanged(run id.Run) (changed <-chan struct{}, stop func()) {
	changed, stop = e.signals.runs.wait(run)
	e.signals.far.watch()
	return changed, stop
}

// transact runs fn in an engine transaction over a fresh working set, writes what it
// changed, and signals after the commit. After a transient error of the database before the commit
// fn runs again in a new transaction, so it must set anew what it leaves to its caller.
// The lanes repeat their batches themselves (see store.Once).
func (e *Engine) transact(ctx context.Context, fn func(ctx context.Context, tx *store.Tx, w *working) error) error {
	var (
		w       *working
		brought *gift
	)
	defer func() { brought.end(false) }() // whoever was taken for it must not wait for ever, even if something panics
	err := e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if w != nil { // a try before was rolled back
			brought.end(false)
			e.tell(w, errRolledBack)
		}
		w, brought = newWorking(), nil
		e.watch(w)
		if err := fn(ctx, tx, w); err != nil {
			return err
		}
		brought, err = e.inline(ctx, tx, w)
		if err == nil {
			err = e.apply(ctx, tx, w, brought)
		}
		if err != nil {
			brought.end(false) // the claims look for themselves while this is repeated
		}
		return err
	})
	brought.end(err == nil)
	if err != nil {
		if w != nil {
			e.tell(w, err)
		}
		return err
	}
	store.AfterCommit(ctx, func() {
		e.signals.after(w)
		e.tell(w, nil)
	})
	return nil
}

// errRolledBack is told of a working set whose transaction is repeated.
var errRolledBack = errors.New("the transaction was rolled back")

// apply writes what a working set has changed, and reads what its gift needs.
func (e *Engine) apply(ctx context.Context, tx *store.Tx, w *working, brought *gift) error {
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
	return e.fillGift(ctx, tx, w, brought)
}
