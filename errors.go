package servo

import "go.arco.dev/servo/internal/worker"

// Why a task's context ends before its function does, by context.Cause.
var (
	// ErrCancelled means that somebody has cancelled the run.
	ErrCancelled = worker.ErrCancelled
	// ErrInterrupted means that the worker is stopping; the task is tried again elsewhere.
	// A task with a cursor may use the moment to yield.
	ErrInterrupted = worker.ErrInterrupted
	// ErrLeaseLost means that the task is somebody else's by now: nothing that this attempt
	// still says counts.
	ErrLeaseLost = worker.ErrLeaseLost
	// ErrTimedOut means that the asset's timeout is over.
	ErrTimedOut = worker.ErrTimedOut

	// ErrCursorMoved means that the cursor was not where the task thought; Task.Cursor says
	// where it is.
	ErrCursorMoved = worker.ErrCursorMoved
)

// Codes of failures. Any other code may be used: it is kept as it is, and not retried unless
// the asset's retry policy lists it.
const (
	// Retried, unless the policy says otherwise.
	NetworkError       = "NETWORK_ERROR"
	RateLimited        = "RATE_LIMITED"
	ServiceUnavailable = "SERVICE_UNAVAILABLE"
	Timeout            = "TIMEOUT"
	OutOfMemory        = "OUT_OF_MEMORY"
	DiskFull           = "DISK_FULL"
	InternalError      = "INTERNAL_ERROR"

	// Final, unless the policy lists them: what would fail again.
	UserCodeException    = "USER_CODE_EXCEPTION" // of errors without a code
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

// Error is a failure with a code, which decides whether the task is tried again.
type Error struct {
	Code            string
	Message         string         // Err's if not said
	Details         map[string]any // for people: kept as JSON with the attempt, at most 48 KiB
	SuggestedAction string         // what would help
	NoRetry         bool           // makes a code that is retried final
	Err             error          // underneath, for errors.Is and errors.As
}

// Error is the message, or that of the error underneath, or the code.
func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return e.Message
	case e.Err != nil:
		return e.Err.Error()
	}
	return e.Code
}

// Unwrap gives the error underneath.
func (e *Error) Unwrap() error { return e.Err }

// Fail gives an error a code: return zero, servo.Fail(servo.RateLimited, err).
func Fail(code string, err error) error { return &Error{Code: code, Err: err} }

type yieldError struct{ cursor string }

func (*yieldError) Error() string { return "the task yields" }

// Yield ends the attempt without a result and without a failure: the task is given back at
// that cursor, and its next attempt, on this worker or another, goes on from there. With ""
// the cursor stays where it is; ten attempts in a row without progress fail the task.
func Yield(next string) error { return &yieldError{cursor: next} }
