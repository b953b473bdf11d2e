package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/quality"
)

// Run is one execution of a plan.
type Run struct {
	Tenant     id.Tenant
	ID         id.Run
	Workspace  id.Workspace
	Deployment id.Deployment
	Released   bool // Deployment is the id of a release

	State       State
	Version     int32 // of the run's own stream
	Pipeline    string
	Parameters  json.RawMessage
	Priority    int16
	TriggerType string
	TriggeredBy string
	Parent      *id.Run
	Fingerprint string
	Retry       *RetryPolicy // the config's policy, which overrides pipeline and asset
	Trace       string       // the trace that it is part of
	Config      *id.Config   // that it was created for
	Slot        time.Time    // of the config; zero without a slot
	Window      *Window      // information about its config for its code; nil without one
	Labels      string       // of its config at its creation: JSON with sorted keys, "" for none
	StartBy     time.Time    // when it must have started; zero without an SLA
	StartLimit  int32        // the delay in seconds that StartBy allows
	Divided     bool         // one of its tasks has declared partitions

	// The fields of its row among the live runs. A run that is loaded to be changed does not have
	// them, unless it is loaded to be started.
	Limit    int32  // maximum seconds after its start
	Lock     string // the name of its lock; "" is none
	LockedBy string
	Behind   bool  // it waits for Lock
	Turn     int64 // its place among the runs that wait for Lock; 0 if it never waited

	// Counters. Total = Remaining + the four ends.
	Total, Remaining                      int32
	Succeeded, Failed, Skipped, Cancelled int32

	Warned      bool  // a check of severity ERROR of an output failed
	Quarantined int32 // outputs in quarantine that were not approved

	Late         bool // it had not started by StartBy
	Overran      bool // it took too long; its row has TimedOut instead
	TimedOut     bool // why it is CANCELLING
	CancelReason string

	CreatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
}

// RunAction is a request to change a run.
type RunAction interface {
	OnRun() RunCommand
}

// The commands of a run.
type (
	// StartRun starts a waiting run.
	StartRun struct{}
	// CancelRun marks the run so that its tasks end.
	CancelRun struct{ Reason string }
	// TimeOutRun marks a run that took too long.
	TimeOutRun struct{ Reason string }
	// EndRun ends a run whose tasks have all ended.
	EndRun struct{}
)

// OnRun returns the command's name in the state machine.
func (StartRun) OnRun() RunCommand   { return OnRunStart }
func (CancelRun) OnRun() RunCommand  { return OnRunCancel }
func (TimeOutRun) OnRun() RunCommand { return OnRunTimeOut }
func (EndRun) OnRun() RunCommand     { return OnRunEnd }

// MaxReasonLength is the maximum length of a reason for a cancel.
const MaxReasonLength = 1000

// defaultLimit is the limit of runs whose first event has none.
const defaultLimit = 24 * 3600

// DueAt returns when a run is timed out: never while it waits, nor once it is being cancelled.
func (r Run) DueAt() time.Time {
	if r.State != RunRunning {
		return time.Time{}
	}
	return r.StartedAt.Add(time.Duration(r.Limit) * time.Second)
}

// Decide decides a command: it returns the event to record, or a fault.
func (r Run) Decide(cmd RunAction) (event.Body, error) {
	if _, err := allowed(runTransitions, r.State, cmd.OnRun()); err != nil {
		return nil, err
	}
	switch c := cmd.(type) {
	case StartRun:
		return RunStarted{}, nil
	case CancelRun:
		return r.cancel(c.Reason, false)
	case TimeOutRun:
		return r.cancel(c.Reason, true)
	case EndRun:
		return r.end()
	}
	return nil, fmt.Errorf("unknown command %T", cmd)
}

func (r Run) cancel(reason string, timedOut bool) (event.Body, error) {
	if len(reason) > MaxReasonLength {
		return nil, tooLong("reason", len(reason), MaxReasonLength)
	}
	if err := storable("reason", reason); err != nil {
		return nil, err
	}
	return RunCancelRequested{TimedOut: timedOut, Reason: reason}, nil
}

func (r Run) end() (event.Body, error) {
	if r.Remaining != 0 {
		return nil, fmt.Errorf("run %s has %d tasks left", r.ID, r.Remaining)
	}
	state := RunSucceeded
	switch {
	case r.State == RunCancelling && r.TimedOut:
		state = RunTimedOut
	case r.State == RunCancelling:
		state = RunCancelled
	case r.Failed > 0:
		state = RunFailed
	}
	return RunEnded{State: state}, nil
}

// Count counts a task that has ended.
func (r Run) Count(end Task) Run {
	r.Remaining--
	r.Warned = r.Warned || end.Output != nil && end.Output.Gate == quality.Warn
	if end.Outcome == Quarantined {
		r.Quarantined++
	}
	switch end.State {
	case Succeeded:
		r.Succeeded++
	case Failed:
		r.Failed++
	case Skipped:
		r.Skipped++
	case Cancelled:
		r.Cancelled++
	default: // only ended tasks are counted
	}
	return r
}

// Evolve applies one event of the run's own stream to the row. Count applies the ends of its tasks.
func (r Run) Evolve(e event.Event) (Run, error) {
	if err := e.Follows(r.Version); err != nil {
		return r, err
	}
	r.Version = e.Version
	switch body := e.Body.(type) {
	case RunCreated:
		r.Tenant, r.ID, r.Workspace, r.Deployment = e.Tenant, e.Run, body.Workspace, body.Deployment
		r.Released = body.Released
		r.State, r.Pipeline, r.Parameters, r.Priority = RunPending, body.Pipeline, body.Parameters, body.Priority
		r.TriggerType, r.TriggeredBy, r.Parent = body.TriggerType, body.TriggeredBy, body.Parent
		r.Fingerprint, r.Retry, r.Trace, r.CreatedAt = body.Fingerprint, body.Retry, e.Meta.Trace, e.At
		r.Limit, r.Lock, r.Behind, r.Config = cmp.Or(body.Limit, defaultLimit), body.Lock, body.Behind, body.Config
		r.Turn, r.Window = body.Turn, body.Window
		if body.Slot != nil {
			r.Slot = *body.Slot
		}
		r.Labels, r.StartLimit = body.Labels, body.StartLimit
		if body.StartBy != nil {
			r.StartBy = *body.StartBy
		}
		if r.Lock != "" {
			r.LockedBy = cmp.Or(body.TriggeredBy, e.Meta.Actor)
		}
		if body.Started {
			r.State, r.StartedAt = RunRunning, e.At
		}
		r.add(len(body.Tasks))
		r.Divided = divided(body.Tasks)
	case RunTasksAdded:
		r.add(len(body.Tasks))
		if body.By == nil { // the rest of the plan
			r.Divided = r.Divided || divided(body.Tasks)
		}
	case RunStarted:
		r.State, r.StartedAt, r.Behind = RunRunning, e.At, false
	case RunBreached:
		return r.breached(body)
	case RunCancelRequested:
		r.State, r.TimedOut, r.CancelReason = RunCancelling, body.TimedOut, body.Reason
	case RunEnded:
		r.State, r.FinishedAt = body.State, e.At
	default:
		return r, e.Unexpected()
	}
	return r, nil
}

// divided reports whether a task has declared partitions.
func divided(tasks []TaskSpec) bool {
	return slices.ContainsFunc(tasks, func(t TaskSpec) bool { return t.Range != nil })
}

func (r *Run) add(tasks int) {
	r.Total += int32(tasks)     //nolint:gosec // bounded by max_tasks_per_run
	r.Remaining += int32(tasks) //nolint:gosec // likewise
}
