package worker

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// The causes of the end of a task's context.
var (
	// ErrCancelled means that the run was cancelled.
	ErrCancelled error = &endCause{codeCancelled, "the run was cancelled"}
	// ErrInterrupted means that the worker is stopping; the task will be retried.
	ErrInterrupted error = &endCause{codeInterrupted, "the worker is stopping"}
	// ErrLeaseLost means that another worker may execute the task: the server ignores reports of
	// this attempt.
	ErrLeaseLost error = &endCause{"LEASE_LOST", "the lease is lost"}
	// ErrTimedOut means that the attempt exceeded its timeout.
	ErrTimedOut error = &endCause{codeTimeout, "the task exceeded its timeout"}
)

// endCause is a cause with the name that hosts know.
type endCause struct{ reason, text string }

// Error implements error.
func (c *endCause) Error() string { return c.text }

// Reason returns the name for a cancel frame.
func (c *endCause) Reason() string { return c.reason }

// Codes that the worker itself reports.
const (
	codeUser        = "USER_CODE_EXCEPTION"
	codeCancelled   = "CANCELLED"
	codeInterrupted = "INTERRUPTED"
	codeTimeout     = "TIMEOUT"
	codeUnknown     = "NOT_IMPLEMENTED"
	codeConfig      = "INVALID_CONFIGURATION"
)

// Error is a failure with a code. The code decides whether the task is retried.
type Error struct {
	Code            string
	Message         string
	Details         map[string]any
	SuggestedAction string
	NoRetry         bool          // makes a retriable code final
	RetryAfter      time.Duration // the delay that the endpoint requested; 0 leaves it to the retry policy
	Cause           error         // for errors.Is; provides the text if Message is empty
}

// Error returns the message, or the cause's, or the code.
func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return e.Message
	case e.Cause != nil:
		return e.Cause.Error()
	}
	return e.Code
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// YieldError returns the task to the queue instead of failing it.
type YieldError struct {
	Cursor *string // where to continue; nil keeps the cursor
}

// Error implements error.
func (y *YieldError) Error() string { return "the task yields" }

// The limits of a reported failure, with room for its envelope.
const (
	maxCode    = 100
	maxMessage = 32 << 10
	maxDetails = 48 << 10
	maxStack   = 8 << 10

	maxRetryAfter = 24 * time.Hour
)

// failureOf returns the failure that reports an error.
func failureOf(err error) *servov1.Fail {
	coded, ok := errors.AsType[*Error](err)
	if !ok {
		coded = &Error{Code: codeUser}
	}
	code := cut(storable(coded.Code), maxCode)
	if code == "" {
		code = codeUser
	}
	message := err.Error()
	if message == "" {
		message = fmt.Sprintf("an error of type %T without a message", err)
	}
	fail := &servov1.Fail{Error: &servov1.Failure{
		Code: code, Message: cut(storable(message), maxMessage),
		SuggestedAction: cut(storable(coded.SuggestedAction), maxMessage),
		Details:         detailsOf(coded.Details),
	}}
	if coded.RetryAfter > 0 {
		fail.RetryAfter = durationpb.New(min(coded.RetryAfter, maxRetryAfter))
	}
	if coded.NoRetry {
		no := false
		fail.ShouldRetry = &no
	}
	return fail
}

// detailsOf converts details to JSON; a value that JSON cannot express becomes text, and details that
// are too large are omitted.
func detailsOf(details map[string]any) *structpb.Struct {
	if len(details) == 0 {
		return nil
	}
	out := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(details))}
	size := 0
	for key, detail := range details {
		value, encoded, err := encode(detail)
		if err != nil {
			value = structpb.NewStringValue(storable(fmt.Sprint(detail)))
			encoded = []byte(value.GetStringValue())
		}
		size += len(key) + len(encoded)
		out.Fields[storable(key)] = value
	}
	if size > maxDetails {
		return &structpb.Struct{Fields: map[string]*structpb.Value{
			"omitted": structpb.NewStringValue(fmt.Sprintf("the details had %d bytes, the limit is %d", size, maxDetails)),
		}}
	}
	return out
}

// panicError returns the failure of a function that panicked with that value. The deferred function
// that recovered must call it.
func panicError(value any) *Error {
	return &Error{
		Code:    codeUser,
		Message: fmt.Sprintf("panic: %v", value),
		Details: map[string]any{"panic": cut(fmt.Sprint(value), maxStack), "stack": stack()},
	}
}

// stack returns the stack of the panic: from the panic to the beginning of the author's code, without
// the frames of the runtime and of this module around it.
func stack() string {
	pcs := make([]uintptr, 128)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	var text strings.Builder
	raised := false // the frames before the call of panic belong to the recovery
	for {
		frame, more := frames.Next()
		switch {
		case frame.Function == "runtime.gopanic":
			raised = true
			text.Reset()
		case !raised || strings.HasPrefix(frame.Function, "runtime.") || machinery(frame.Function):
		default:
			fmt.Fprintf(&text, "%s\n\t%s:%d\n", frame.Function, frame.File, frame.Line)
		}
		if !more {
			return cut(text.String(), maxStack)
		}
	}
}

const module = "go.arco.dev/servo"

// machinery reports whether a function belongs to the code that calls an author's code.
func machinery(function string) bool {
	for _, prefix := range []string{module + "/internal/worker.", module + ".Asset["} {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// storable makes text that the server can store: UTF-8, without zero bytes.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// cut shortens text to a number of bytes, and marks it.
func cut(text string, limit int) string {
	const mark = " … (cut)"
	if len(text) <= limit {
		return text
	}
	if limit <= len(mark) {
		return strings.ToValidUTF8(text[:limit], "")
	}
	return strings.ToValidUTF8(text[:limit-len(mark)], "") + mark
}
