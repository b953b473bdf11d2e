package engine

import (
	"context"
	"encoding/json"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine/batch"
	"go.arco.dev/servo/internal/store"
)

// Trigger requests a run of a pipeline, or of a selection of assets.
type Trigger struct {
	Tenant      id.Tenant        `json:"-"`
	Workspace   string           `json:"workspace"` // "" is the default one
	Pipeline    string           `json:"pipeline"`
	Select      []string         `json:"select"` // instead of the pipeline's own selection
	Parameters  json.RawMessage  `json:"parameters"`
	Partitions  []string         `json:"partitions,omitempty"` // selections such as date=2026-01-01..2026-01-31
	Priority    int16            `json:"priority"`             // 0 is the pipeline's
	TriggerType string           `json:"trigger_type"`
	TriggeredBy string           `json:"triggered_by"` // the authenticated caller
	Note        string           `json:"note"`         // of the caller, for people
	Parent      *id.Run          `json:"parent"`
	Retry       *run.RetryPolicy `json:"retry"`
	// IdempotencyKey makes a repeat return the first run.
	IdempotencyKey string `json:"-"`
	// WaitForQuota creates a run that waits for its start, instead of a refusal, when too many runs have
	// not ended or too many tasks are ready.
	WaitForQuota bool `json:"-"`
	// Queue creates a run that waits for its lock when a run with other parameters holds it.
	Queue bool `json:"-"`
	// WaitForLock is how long TriggerRun waits for a run that holds the lock.
	WaitForLock time.Duration `json:"-"`
	Meta        event.Meta    `json:"-"`
	// For is the config of the run, and its slot; nil without a config.
	For *ForConfig `json:"-"`
}

// ForConfig is the config of a run.
type ForConfig struct {
	Config id.Config
	Name   string
	Slot   time.Time // zero if no slot creates it
	Limit  time.Duration
	// Within is how long after its slot and Delay, or after now without a slot, the run should have begun;
	// 0 sets no limit.
	Within time.Duration
	Delay  time.Duration // of the slot, by the config's jitter
	Labels string        // the config's, as run.Run has them
	// Overlap is whether the run excludes the config's other runs, and whether it waits for them.
	Overlap config.Overlap
	// Window is passed to the code of the run.
	Window *run.Window
}

// Triggered is the answer to a trigger.
type Triggered struct {
	Run    id.Run
	Repeat bool // the run of an earlier trigger with the same idempotency key
	// AlreadyRunning reports that Run holds the requested lock: no run was created.
	AlreadyRunning bool
	// Differs reports that this run does something else than was requested.
	Differs bool
}

// Limits of a trigger.
const (
	maxKeyLength         = 255
	maxTriggeredByLength = 200
	maxTriggerTypeLength = 100
	maxTasksPerEvent     = 1000
	// maxTasksPerBatch bounds a transaction of triggers or cancels: the first that exceeds it is the last.
	maxTasksPerBatch = 10_000
)

// MaxTasksPerRun bounds a plan; fan-outs may grow a run to MaxFanOut tasks.
const (
	MaxTasksPerRun = 10_000
	MaxFanOut      = 100_000
)

// TriggerRun creates a run of the workspace's active deployment. Its tasks without upstreams are
// ready when it returns, unless the run waits for its start. If another run holds its lock, it
// creates none and returns that run.
func (e *Engine) TriggerRun(ctx context.Context, t Trigger) (Triggered, error) {
	return e.withLock(ctx, t.WaitForLock, func() (Triggered, error) { return e.trigger(ctx, newTrigger(t)) })
}

// trigger requests one run and cancels the runs that it replaces.
func (e *Engine) trigger(ctx context.Context, cmd *triggerCommand) (Triggered, error) {
	answer, err := e.control.Do(ctx, controlRequest{trigger: cmd})
	if err != nil {
		return Triggered{}, err
	}
	return answer.trigger.Triggered, e.replace(ctx, answer.trigger.replaces)
}

// TriggerRuns creates several runs in one transaction and returns an answer or an error for each.
func (e *Engine) TriggerRuns(ctx context.Context, triggers []Trigger) ([]Triggered, []error) {
	requests := make([]controlRequest, len(triggers))
	for i, t := range triggers {
		requests[i].trigger = newTrigger(t)
	}
	found, errs := e.control.DoAll(ctx, requests)
	answers := make([]Triggered, len(triggers))
	for i := range found {
		answers[i] = found[i].trigger.Triggered
		e.answered(answers[i], errs[i], answers[i].AlreadyRunning, 0)
		if errs[i] == nil {
			errs[i] = answers[i].conflict()
		}
	}
	return answers, errs
}

// controlRequest is a trigger or a cancel: one of the two is set. They have a lane of their own, since
// they may be large and must not delay reports.
type controlRequest struct {
	trigger *triggerCommand
	cancel  *Cancel
}

// controlAnswer is the answer to a controlRequest.
type controlAnswer struct {
	trigger triggerResult
	cancel  Cancelled
}

type controlCall = batch.Call[controlRequest, controlAnswer]

// A trigger passes through these stages in one transaction, each with its own type:
//
//	triggerCommand   what was requested
//	plannedTrigger   with workspace, code, plan and inputs (planTriggers)
//	lockedTrigger    with its lock, or a place among those that wait for it (takeLocks, queueBehind)
//	allowedTrigger   within the quotas of its tenant (underQuotas); create turns it into a run
//
// The stage at which a trigger ends sets its triggerResult.

// triggerCommand is a trigger as a caller, a retry or a config requests it.
type triggerCommand struct {
	Trigger

	retry  *retryScope // nil unless it retries a run
	fired  bool        // by a slot or an event, not by a call
	broken error       // why its parameters could not be rendered
	cover  *slotCover  // of a config's trigger: what it covers if it names no partitions
	// covered is what the run of a slot covers, once it is planned.
	covered slotCovered
	// backfill is set for a run of a backfill: it takes no lock and has the lowest priority.
	backfill *backfillRun
	run      id.Run // minted in the first transaction and kept, so that a repeat finds its own run
}

func newTrigger(t Trigger) *triggerCommand {
	if t.Workspace == "" {
		t.Workspace = tenant.DefaultWorkspace
	}
	return &triggerCommand{Trigger: t}
}

// triggerResult is the answer to a trigger, or why it was refused.
type triggerResult struct {
	Triggered

	replaces []Cancel // runs to cancel because of the new one
	err      error
}

// follow copies the result of the trigger that decides about this one too.
func (r *triggerResult) follow(first *triggerResult) { r.err, r.Run = first.err, first.Run }

// runControl applies the triggers of a batch and then its cancels, in separate transactions: a trigger
// locks no run, a cancel locks its own first.
func (e *Engine) runControl(ctx context.Context, calls []*controlCall) error {
	var triggers, cancels []*controlCall
	for _, c := range calls {
		if c.Request.trigger != nil {
			triggers = append(triggers, c)
		} else {
			cancels = append(cancels, c)
		}
	}
	if err := e.runTriggers(ctx, triggers); err != nil {
		return err
	}
	return e.runCancels(ctx, cancels)
}

// runTriggers creates the runs of a batch, in one transaction unless they are large: a batch of the
// largest plans exceeds memory and deadline.
func (e *Engine) runTriggers(ctx context.Context, calls []*controlCall) error {
	cmds := make([]*triggerCommand, len(calls))
	for i, c := range calls {
		cmds[i] = c.Request.trigger
	}
	for done := 0; done < len(calls); {
		results, err := e.runSomeTriggers(ctx, cmds[done:])
		if err != nil {
			return err
		}
		for i, r := range results {
			calls[done+i].Answer.trigger, calls[done+i].Err = r, r.err
		}
		done += len(results)
	}
	return nil
}

// runSomeTriggers creates the runs of the first triggers, and returns a result for each of these.
func (e *Engine) runSomeTriggers(ctx context.Context, cmds []*triggerCommand) (results []triggerResult, err error) {
	err = e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) (err error) {
		var planned []*plannedTrigger
		if planned, results, err = e.planTriggers(ctx, tx, cmds, maxTasksPerBatch); err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		w.at(now)
		fresh, err := answerRepeatedTriggers(ctx, tx, w, planned)
		if err != nil {
			return err
		}
		_, err = createRuns(ctx, tx, w, planned, fresh, nil)
		return err
	})
	return results, err
}
