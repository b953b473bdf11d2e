package run

import (
	"fmt"
	"time"
)

// SLA is a kind of service level agreement about a run.
type SLA string

// The kinds of SLAs.
const (
	SLAStartDelay SLA = "start_delay" // it starts in time
	SLAExecution  SLA = "execution"   // it takes no longer than max_execution
)

// SLAs returns all kinds.
func SLAs() []SLA { return []SLA{SLAStartDelay, SLAExecution} }

// MayBeLate reports whether the run may have missed its start. Only then its start time needs to be
// read.
func (r Run) MayBeLate(now time.Time) bool {
	return !r.StartBy.IsZero() && !r.Late && !r.State.Terminal() && now.After(r.StartBy)
}

// MissedStart returns the breach of a run that did not start in time. A run starts with its first
// task.
func (r Run) MissedStart(begunInTime bool, now time.Time) (breach RunBreached, missed bool) {
	if begunInTime || !r.MayBeLate(now) {
		return RunBreached{}, false
	}
	return RunBreached{SLA: SLAStartDelay, Limit: r.StartLimit, Due: r.StartBy}, true
}

// Overrun returns the breach of a run that is about to be timed out.
func (r Run) Overrun(limit int32) (breach RunBreached, overran bool) {
	if r.Overran || r.State.Terminal() || r.State == RunCancelling {
		return RunBreached{}, false
	}
	from := r.StartedAt
	if from.IsZero() {
		from = r.CreatedAt
	}
	return RunBreached{SLA: SLAExecution, Limit: limit, Due: from.Add(time.Duration(limit) * time.Second)}, true
}

// Breached reports whether any SLA of the run was breached.
func (r Run) Breached() bool { return r.Late || r.Overran || r.TimedOut }

// LateAt returns when to check whether the run has started; zero for never.
func (r Run) LateAt() time.Time {
	if r.Late || r.State.Terminal() {
		return time.Time{}
	}
	return r.StartBy
}

func (r Run) breached(b RunBreached) (Run, error) {
	var broken *bool
	switch b.SLA {
	case SLAStartDelay:
		broken = &r.Late
	case SLAExecution:
		broken = &r.Overran
	default:
		return r, fmt.Errorf("run %s: unknown SLA %q", r.ID, b.SLA)
	}
	if *broken {
		return r, fmt.Errorf("run %s: SLA %s is breached a second time", r.ID, b.SLA)
	}
	*broken = true
	return r, nil
}
