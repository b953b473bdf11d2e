package run

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"go.arco.dev/servo/internal/base/fault"
)

// Failure is why an attempt failed, as its worker reported it.
type Failure struct {
	Code            string          `json:"code"`
	Message         string          `json:"message,omitempty"`
	Details         json.RawMessage `json:"details,omitempty"`
	SuggestedAction string          `json:"suggested_action,omitempty"`
}

// The codes that Servo sets or treats specially.
const (
	CodeInterrupted   = "INTERRUPTED"
	CodeHeartbeatLost = "HEARTBEAT_LOST"
	CodeWorkerCrash   = "WORKER_CRASH"
	CodeHostCrash     = "HOST_CRASH" // of a process that a worker runs code in
	CodeTimeout       = "TIMEOUT"
	CodePoison        = "POISON"
	CodeCancelled     = "CANCELLED"
	CodeMissingInput  = "MISSING_INPUT"
)

// Class groups error codes by their remedy.
type Class string

// The classes.
const (
	ClassTransient      Class = "transient"
	ClassInfrastructure Class = "infrastructure"
	ClassUserCode       Class = "user code"
	ClassInput          Class = "input"
	ClassConfiguration  Class = "configuration"
	ClassSystem         Class = "system"
	ClassCancelled      Class = "cancelled"
)

// classOf returns the class of a code and whether it is retried by default. An unknown code is the
// user's own: it is kept as sent, and not retried.
func classOf(code string) (class Class, retried bool) {
	switch canonicalCode(code) {
	case "NETWORK_ERROR", "RATE_LIMITED", "SERVICE_UNAVAILABLE", CodeTimeout:
		return ClassTransient, true
	case "OUT_OF_MEMORY", "DISK_FULL", CodeWorkerCrash, CodeHostCrash, CodeHeartbeatLost, CodeInterrupted:
		return ClassInfrastructure, true
	case "USER_CODE_EXCEPTION", "IMPORT_ERROR", "CHECK_FAILED":
		return ClassUserCode, false
	case CodeMissingInput, "SCHEMA_VIOLATION", "DATA_CORRUPTION":
		return ClassInput, false
	case "AUTHENTICATION_FAILED", "AUTHORIZATION_FAILED", "INVALID_CONFIGURATION", "RESOURCE_NOT_FOUND",
		"INVALID_MANIFEST", "INVALID_PARTITION", "CYCLE_DETECTED":
		return ClassConfiguration, false
	case "INTERNAL_ERROR":
		return ClassSystem, true
	case "NOT_IMPLEMENTED":
		return ClassSystem, false
	case CodeCancelled:
		return ClassCancelled, false
	}
	return ClassUserCode, false
}

// IsWorkerDeath reports whether the attempt ended because its worker, or the host process under it, died.
func (f *Failure) IsWorkerDeath() bool {
	if f == nil {
		return false
	}
	code := canonicalCode(f.Code)
	return code == CodeHeartbeatLost || code == CodeWorkerCrash || code == CodeHostCrash
}

// ClassOf returns the class of an error code.
func ClassOf(code string) Class {
	class, _ := classOf(code)
	return class
}

// canonicalCode maps accepted synonyms to the code that Servo uses.
func canonicalCode(code string) string {
	switch code {
	case "TRANSIENT_NETWORK":
		return "NETWORK_ERROR"
	case "RATE_LIMIT_EXCEEDED":
		return "RATE_LIMITED"
	case "STALE_EXECUTION":
		return CodeHeartbeatLost
	}
	return code
}

// The limits of a reported failure.
const (
	maxCodeLength    = 100
	maxMessageLength = 64 << 10
	maxDetailsLength = 64 << 10
)

// Validate checks a failure that a worker reported.
func (f Failure) Validate() error {
	switch {
	case f.Code == "":
		return fault.Invalid("error.code", "is missing", "send a code such as USER_CODE_EXCEPTION")
	case len(f.Code) > maxCodeLength:
		return tooLong("error.code", len(f.Code), maxCodeLength)
	case len(f.Message) > maxMessageLength:
		return tooLong("error.message", len(f.Message), maxMessageLength)
	case len(f.Details) > maxDetailsLength:
		return tooLong("error.details", len(f.Details), maxDetailsLength)
	case len(f.SuggestedAction) > maxMessageLength:
		return tooLong("error.suggested_action", len(f.SuggestedAction), maxMessageLength)
	}
	for field, text := range map[string]string{"error.code": f.Code, "error.message": f.Message, "error.suggested_action": f.SuggestedAction} {
		if err := storable(field, text); err != nil {
			return err
		}
	}
	return storableJSON("error.details", f.Details)
}

func tooLong(field string, length, limit int) error {
	return fault.New(fault.LimitExceeded, fmt.Sprintf("has %d bytes, the limit is %d", length, limit), fault.Field(field),
		fault.Remedy("send less, and a reference to the rest"), fault.Value("limit", limit), fault.Value("current", length))
}

// storable refuses text that PostgreSQL cannot store.
func storable(field, text string) error {
	if !utf8.ValidString(text) {
		return fault.Invalid(field, "is not valid UTF-8", "send UTF-8 text")
	}
	for i := range len(text) {
		if text[i] == 0 {
			return fault.Invalid(field, "contains a zero byte", "remove it")
		}
	}
	return nil
}

// storableJSON refuses invalid JSON. Escaped zero characters and lone surrogates are left to the
// store, which isolates the one command that has them.
func storableJSON(field string, data json.RawMessage) error {
	if !utf8.Valid(data) {
		return fault.Invalid(field, "is not valid UTF-8", "send JSON in UTF-8")
	}
	if len(data) > 0 && !json.Valid(data) {
		return fault.Invalid(field, "is not valid JSON", "send one JSON value")
	}
	return nil
}
