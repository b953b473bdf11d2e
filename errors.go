package servo

import "go.arco.dev/servo/internal/worker"

// The causes of the end of a task's context, as [context.Cause] returns them.
var (
	// ErrCancelled means that the run was cancelled.
	ErrCancelled = worker.ErrCancelled
	// ErrInterrupted means that the worker is stopping; another worker retries the task. A task
	// with a cursor can return Yield.
	ErrInterrupted = worker.ErrInterrupted
	// ErrLeaseLost means that another worker may execute the task: the server ignores reports of
	// this attempt.
	ErrLeaseLost = worker.ErrLeaseLost
	// ErrTimedOut means that the attempt exceeded the asset's timeout.
	ErrTimedOut = worker.ErrTimedOut

	// ErrCursorMoved means that the cursor did not have the value that the task expected;
	// Task.Cursor returns the current one.
	ErrCursorMoved = worker.ErrCursorMoved
)

// The standard failure codes. Other codes may be used: they are stored as they are, and retried only
// if the asset's retry policy lists them.
const (
	// Retried, unless the policy excludes them.
	NetworkError       = "NETWORK_ERROR"
	RateLimited        = "RATE_LIMITED"
	ServiceUnavailable = "SERVICE_UNAVAILABLE"
	Timeout            = "TIMEOUT"
	OutOfMemory        = "OUT_OF_MEMORY"
	DiskFull           = "DISK_FULL"
	InternalError      = "INTERNAL_ERROR"

	// Final, unless the policy lists them: a retry would fail again.
	UserCodeException    = "USER_CODE_EXCEPTION" // the code of errors without one
	CheckFailed          = "CHECK_FAILED"
	MissingInput         = "MISSING_INPUT"
	SchemaViolation      = "SCHEMA_VIOLATION"
	DataCorruption       = "DATA_CORRUPTION"
	AuthenticationFailed = "AUTHENTICATION_FAILED"
	AuthorizationFailed  = "AUTHORIZATION_FAILED"
	InvalidConfiguration = "INVALID_CONFIGURATION"
	ResourceNotFound     = "RESOURCE_NOT_FOUND"
	InvalidPartition     = "INVALID_PARTITION"
)

// Error is a failure with a code. The code decides whether the task is retried.
type Error struct {
	Code            string
	Message         string         // default: the message of Err
	Details         map[string]any // stored as JSON with the attempt, at most 48 KiB
	SuggestedAction string         // what the operator can do
	NoRetry         bool           // prevents a retry
	Err             error          // the cause, for errors.Is and errors.As
}

// Error returns the message, or the message of Err, or the code.
func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return e.Message
	case e.Err != nil:
		return e.Err.Error()
	}
	return e.Code
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Fail returns an error with a code:
//
//	return result, servo.Fail(servo.RateLimited, err)
func Fail(code string, err error) error { return &Error{Code: code, Err: err} }

type yieldError struct{ cursor string }

func (*yieldError) Error() string { return "the task yields" }

// Yield ends the attempt without a result and without a failure. The task returns to the queue with
// the cursor next, and its next attempt, on this or another worker, continues from there. With "" the
// cursor does not change; ten attempts in a row without progress fail the task.
func Yield(next string) error { return &yieldError{cursor: next} }
