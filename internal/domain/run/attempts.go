package run

import (
	"time"

	"go.arco.dev/servo/internal/base/event"
)

// AttemptEnd is how an attempt ended; "" while it is running.
type AttemptEnd string

// The ends of an attempt. An attempt that was returned ends with the reason of its return.
const (
	AttemptSucceeded   AttemptEnd = "SUCCEEDED"
	AttemptFailed      AttemptEnd = "FAILED"  // the task failed with it
	AttemptRetried     AttemptEnd = "RETRIED" // failed, and the task is retried
	AttemptYielded                = AttemptEnd(ReturnYielded)
	AttemptInterrupted            = AttemptEnd(ReturnInterrupted)
	AttemptExpired                = AttemptEnd(ReturnExpired)
	AttemptWorkerDied             = AttemptEnd(ReturnWorkerDied)
	AttemptCancelled   AttemptEnd = "CANCELLED"
	AttemptForced      AttemptEnd = "FORCE_CANCELLED" // its worker did not respond
)

// Attempt is one try of a task.
type Attempt struct {
	Number    int32
	Worker    string
	ClaimedAt time.Time
	StartedAt time.Time // zero if it never started
	EndedAt   time.Time // zero while it is running
	End       AttemptEnd
	Failure   *Failure // why it failed, or the worker's message when it was cancelled
}

// Attempts returns the attempts of a task from its events, in the order of their versions. Events
// between two attempts (admission, the end of a backoff, a cancel while the task waits) are ignored.
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
		default: // does not begin, start or end an attempt
		}
	}
	return attempts
}
