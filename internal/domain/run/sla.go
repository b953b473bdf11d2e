package run

import (
	"fmt"
	"time"
)

// SLA is a promise about a run.
type SLA string

// The promises.
const (
	SLAStartDelay SLA = "start_delay" // it begins in time
	SLAExecution  SLA = "execution"   // it takes no longer than it may
)

// SLAs are all of them.
func SLAs() []SLA { return []SLA{SLAStartDelay, SLAExecution} }

// MayBeLate says that the run may have missed its start: only then anybody needs to read
// when it began.
func (r Run) MayBeLate(now time.Time) bool {
	return !r.StartBy.IsZero() && !r.Late && !r.State.Terminal() && now.After(r.StartBy)
}

// MissedStart is the breach of a run that did not begin in time. It has begun when its first
// task was started.
func (r Run) MissedStart(begunInTime bool, now time.Time) (breach RunBreached, missed bool) {
	if begunInTime || !r.MayBeLate(now) {
		return RunBreached{}, false
	}
	return RunBreached{SLA: SLAStartDelay, Limit: r.StartLimit, Due: r.StartBy}, true
}

// Overrun is the breach of a run that is about to be timed out.
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

// Breached says that any promise about it was broken.
func (r Run) Breached() bool { return r.Late || r.Overran || r.TimedOut }

// LateAt is when somebody must look whether the run has begun; zero if nobody must.
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
		return r, fmt.Errorf("run %s: no promise is called %q", r.ID, b.SLA)
	}
	if *broken {
		return r, fmt.Errorf("run %s: its %s is breached a second time", r.ID, b.SLA)
	}
	*broken = true
	return r, nil
}
