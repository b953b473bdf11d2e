package run

import (
	"time"

	"go.arco.dev/servo/internal/base/event"
)

// AttemptEnd says how an attempt ended. "" belongs to one that is under way.
type AttemptEnd string

// The ends of an attempt. Those without the task's fault are named as their return is.
const (
	AttemptSucceeded   AttemptEnd = "SUCCEEDED"
	AttemptFailed      AttemptEnd = "FAILED"  // and the task with it
	AttemptRetried     AttemptEnd = "RETRIED" // failed, with another to come
	AttemptYielded                = AttemptEnd(ReturnYielded)
	AttemptInterrupted            = AttemptEnd(ReturnInterrupted)
	AttemptExpired                = AttemptEnd(ReturnExpired)
	AttemptWorkerDied             = AttemptEnd(ReturnWorkerDied)
	AttemptCancelled   AttemptEnd = "CANCELLED"
	AttemptForced      AttemptEnd = "FORCE_CANCELLED" // its worker was silent
)

// Attempt is one try of a task, as its events tell it.
type Attempt struct {
	Number    int32
	Worker    string
	ClaimedAt time.Time
	StartedAt time.Time // zero if it never started
	EndedAt   time.Time // zero while it is under way
	End       AttemptEnd
	Failure   *Failure // why it failed, or what a worker said when it was cancelled
}

// Attempts folds a task's events, in the order of their versions, into its attempts. What
// happens between two attempts (admission, the end of a backoff, a cancel while it waits)
// belongs to neither.
func Attempts(events []event.Event) []Attempt {
	var attempts []Attempt
	var current *Attempt // the one under way
	end := func(e event.Event, how AttemptEnd, failure *Failure) {
		if current != nil {
			current.EndedAt, current.End, current.Failure = e.At, how, failure
			current = nil
		}
	}
	for _, e := range events {
		switch body := e.Body.(type) {
		case TaskClaimed:
			attempts = append(attempts, Attempt{Number: body.Attempt, Worker: body.Worker, ClaimedAt: e.At})
			current = &attempts[len(attempts)-1]
			if body.Started {
				current.StartedAt = e.At
			}
		case TaskStarted:
			if current != nil && current.StartedAt.IsZero() {
				current.StartedAt = e.At
			}
		case TaskReturned:
			end(e, AttemptEnd(body.Reason), body.Failure)
		case TaskRetrying:
			end(e, AttemptRetried, &body.Failure)
		case TaskSucceeded:
			end(e, AttemptSucceeded, nil)
		case TaskFailed:
			end(e, AttemptFailed, &body.Failure)
		case TaskCancelled:
			how := AttemptCancelled
			if body.Forced {
				how = AttemptForced
			}
			end(e, how, body.Failure)
		default: // what does not begin, start or end an attempt
		}
	}
	return attempts
}
