// Package fault is the one error type that people see: a stable code, a sentence that
// says what is wrong, the field it is about and what to do. Everything that is not a
// fault is internal: it is logged and never shown.
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

// The codes, from the caller's mistakes to ours.
const (
	InvalidArgument Code = "INVALID_ARGUMENT" // the request can never work as it is
	InvalidManifest Code = "INVALID_MANIFEST" // a manifest breaks a rule
	CycleDetected   Code = "CYCLE_DETECTED"   // assets depend on each other in a circle
	Unauthenticated Code = "UNAUTHENTICATED"  // nobody knows who is calling
	Forbidden       Code = "FORBIDDEN"        // what was shown does not permit this
	NotFound        Code = "NOT_FOUND"        // no such thing, or not yours
	AlreadyExists   Code = "ALREADY_EXISTS"   // the name is taken
	Conflict        Code = "CONFLICT"         // the thing is in a state that does not allow this
	Stale           Code = "STALE"            // a lease that somebody else holds by now
	LimitExceeded   Code = "LIMIT_EXCEEDED"   // over a quota or a size limit
	Unavailable     Code = "UNAVAILABLE"      // try again after RetryAfter
	Internal        Code = "INTERNAL"         // our mistake
)

// Violation is one broken rule of a request: which field, what is wrong, what helps.
type Violation struct {
	Code    Code   `json:"code"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// Fault is a coded error written for the person who reads it.
type Fault struct {
	Violation

	// Others are further violations of the same request, so that a manifest with five
	// mistakes is mended in one round.
	Others []Violation
	// Values carry the figures behind the message (limit, current, state …).
	Values map[string]any
	// RetryAfter is how long to wait before the same request may work.
	RetryAfter time.Duration

	cause error
}

// Option adds a detail to a fault.
type Option func(*Fault)

// Field names the field that is wrong.
func Field(name string) Option { return func(f *Fault) { f.Violation.Field = name } }

// Under is an error about a part of a request: its fields are named below the part's. Other
// errors than faults stay as they are.
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

// Remedy says what to do about it.
func Remedy(text string) Option { return func(f *Fault) { f.Violation.Remedy = text } }

// Value attaches a figure.
func Value(key string, value any) Option {
	return func(f *Fault) {
		if f.Values == nil {
			f.Values = map[string]any{}
		}
		f.Values[key] = value
	}
}

// RetryAfter says when the same request may work.
func RetryAfter(d time.Duration) Option { return func(f *Fault) { f.RetryAfter = d } }

// Cause keeps the error underneath for the log; it is not shown.
func Cause(err error) Option { return func(f *Fault) { f.cause = err } }

// New makes a fault.
func New(code Code, message string, options ...Option) *Fault {
	f := &Fault{Violation: Violation{Code: code, Message: message}}
	for _, option := range options {
		option(f)
	}
	return f
}

// FromViolations turns collected violations into one fault, or nil if there are none.
// The first violation gives the code.
func FromViolations(violations []Violation) error {
	if len(violations) == 0 {
		return nil
	}
	return &Fault{Violation: violations[0], Others: violations[1:]}
}

// Violations are all broken rules, the first one included.
func (f *Fault) Violations() []Violation {
	return append([]Violation{f.Violation}, f.Others...)
}

// Error is the whole message on one line: field, what is wrong, what helps.
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

// Unwrap gives the cause to errors.Is and errors.As.
func (f *Fault) Unwrap() error { return f.cause }

// Is makes errors.Is(err, fault.New(code, "")) compare codes.
func (f *Fault) Is(target error) bool {
	other, ok := target.(*Fault) // Is must not unwrap its target
	return ok && other.Code == f.Code && other.Message == ""
}

// As finds the fault in an error chain.
func As(err error) (*Fault, bool) {
	f, ok := errors.AsType[*Fault](err)
	return f, ok
}

// CodeOf is the code of an error: "" for nil, Internal for anything that is not a fault.
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
