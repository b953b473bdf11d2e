// Package fault defines the one error type that users see: a stable code, a message, the field and a
// remedy. Every other error is internal: it is logged and never shown.
package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code is the stable, documented kind of a fault. The API maps codes to statuses in
// one place.
type Code string

// The codes, from errors of the caller to errors of Servo.
const (
	InvalidArgument Code = "INVALID_ARGUMENT" // the request is invalid
	InvalidManifest Code = "INVALID_MANIFEST" // a manifest is invalid
	CycleDetected   Code = "CYCLE_DETECTED"   // assets depend on each other in a cycle
	Unauthenticated Code = "UNAUTHENTICATED"  // the caller's credentials are missing or invalid
	Forbidden       Code = "FORBIDDEN"        // the caller's role does not permit the call
	NotFound        Code = "NOT_FOUND"        // it does not exist, or belongs to another tenant
	AlreadyExists   Code = "ALREADY_EXISTS"   // the name is in use
	Conflict        Code = "CONFLICT"         // the current state does not permit the call
	Stale           Code = "STALE"            // the lease was lost to another holder
	LimitExceeded   Code = "LIMIT_EXCEEDED"   // over a quota or a size limit
	Unavailable     Code = "UNAVAILABLE"      // retry after RetryAfter
	Internal        Code = "INTERNAL"         // an error of Servo
)

// Violation is one invalid field of a request: the field, the error and the remedy.
type Violation struct {
	Code    Code   `json:"code"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// Fault is a coded error for users.
type Fault struct {
	Violation

	// Others are further violations of the same request, so that a manifest with five errors is
	// fixed in one pass.
	Others []Violation
	// Values are the figures of the message (limit, current, state …).
	Values map[string]any
	// RetryAfter is how long to wait before the same request may succeed.
	RetryAfter time.Duration

	cause error
}

// Option adds a detail to a fault.
type Option func(*Fault)

// Field sets the invalid field.
func Field(name string) Option { return func(f *Fault) { f.Violation.Field = name } }

// Under prefixes the fields of a fault with the part of the request that it is about. Errors that are
// not faults stay as they are.
func Under(part string, err error) error {
	inner, ok := errors.AsType[*Fault](err)
	if !ok {
		return err
	}
	below := func(v Violation) Violation {
		if v.Field == "" {
			v.Field = part
		} else {
			v.Field = part + "." + v.Field
		}
		return v
	}
	outer := *inner
	outer.Violation, outer.Others = below(inner.Violation), nil
	for _, v := range inner.Others {
		outer.Others = append(outer.Others, below(v))
	}
	return &outer
}

// Remedy sets the remedy: what the user should do.
func Remedy(text string) Option { return func(f *Fault) { f.Violation.Remedy = text } }

// Value adds a figure.
func Value(key string, value any) Option {
	return func(f *Fault) {
		if f.Values == nil {
			f.Values = map[string]any{}
		}
		f.Values[key] = value
	}
}

// RetryAfter sets when the same request may succeed.
func RetryAfter(d time.Duration) Option { return func(f *Fault) { f.RetryAfter = d } }

// Cause sets the underlying error for the log; users do not see it.
func Cause(err error) Option { return func(f *Fault) { f.cause = err } }

// New returns a fault.
func New(code Code, message string, options ...Option) *Fault {
	f := &Fault{Violation: Violation{Code: code, Message: message}}
	for _, option := range options {
		option(f)
	}
	return f
}

// Invalid returns the fault of an invalid field of a request.
func Invalid(field, message, remedy string) *Fault {
	return New(InvalidArgument, message, Field(field), Remedy(remedy))
}

// FromViolations returns one fault for all violations, or nil without violations. The first violation
// defines the code.
func FromViolations(violations []Violation) error {
	if len(violations) == 0 {
		return nil
	}
	return &Fault{Violation: violations[0], Others: violations[1:]}
}

// Violations returns all violations, the first one included.
func (f *Fault) Violations() []Violation {
	return append([]Violation{f.Violation}, f.Others...)
}

// Error formats field, message and remedy on one line.
func (f *Fault) Error() string {
	var text strings.Builder
	if f.Violation.Field != "" {
		text.WriteString(f.Violation.Field + ": ")
	}
	text.WriteString(f.Message)
	if f.Violation.Remedy != "" {
		text.WriteString(" (" + f.Violation.Remedy + ")")
	}
	if n := len(f.Others); n > 0 {
		fmt.Fprintf(&text, ", and %d more", n)
	}
	return text.String()
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.cause }

// Is makes errors.Is(err, fault.New(code, "")) compare codes.
func (f *Fault) Is(target error) bool {
	other, ok := target.(*Fault) // Is must not unwrap its target
	return ok && other.Code == f.Code && other.Message == ""
}

// As returns the fault in an error chain.
func As(err error) (*Fault, bool) {
	f, ok := errors.AsType[*Fault](err)
	return f, ok
}

// CodeOf returns the code of an error: "" for nil, Internal for an error that is not a fault.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if f, ok := As(err); ok {
		return f.Code
	}
	return Internal
}

// Is reports whether err is a fault with that code.
func Is(err error, code Code) bool {
	f, ok := As(err)
	return ok && f.Code == code
}
