// Package push is what Servo and the workers of push pools agree on: the envelope that a
// task travels in, the URLs that its worker answers to, the keys that both are signed with,
// and when an endpoint is left in peace for a while. It is pure: the time and randomness
// come in as arguments. It never sends anything and keeps nothing.
package push

import (
	"encoding/json"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/id"
)

// Contract is the version of the envelope. Fields may be added to it; a change of what is
// there makes a new one.
const Contract = 1

// MaxEnvelope bounds an envelope in bytes: results that would make it larger are left out
// and can be asked for.
const MaxEnvelope = 1 << 20

// Envelope is all that a worker needs to execute one attempt and to tell how it went. It
// travels as canonical JSON (RFC 8785), with the signature inside.
type Envelope struct {
	Contract int `json:"contract"`

	Pool    string  `json:"pool"`
	Tenant  string  `json:"tenant"` // the tenant's name
	Run     id.Run  `json:"run"`
	Task    id.Task `json:"task"`
	Attempt int32   `json:"attempt"`
	Token   int64   `json:"-"` // the fencing token of the lease: workers have it in their URLs and in the key

	Asset      string `json:"asset"`      // namespace/name
	Entrypoint string `json:"entrypoint"` // the function that makes it; the asset's key if empty
	Pipeline   string `json:"pipeline"`
	Partition  string `json:"partition"`

	Config        string    `json:"config,omitempty"`        // the name of the config that made the run
	TriggerType   string    `json:"trigger_type,omitempty"`  // what made the run: schedule, event, manual, api, retry
	Slot          time.Time `json:"slot,omitzero"`           // the slot that the run works for
	IntervalStart time.Time `json:"interval_start,omitzero"` // the data interval: from the slot before
	IntervalEnd   time.Time `json:"interval_end,omitzero"`   // to its own, or to the time of the trigger

	Parameters json.RawMessage `json:"parameters"` // of the run: an object
	Upstream   []Upstream      `json:"upstream"`
	Cursor     string          `json:"cursor"`
	FanOuts    int32           `json:"fan_outs"` // the ordinal of the task's next fan-out

	TimeoutSeconds int64     `json:"timeout_s"`         // of the attempt, from its start; 0 for none
	LeaseSeconds   int64     `json:"lease_s"`           // without a heartbeat for so long, the worker is taken for dead
	Deadline       time.Time `json:"deadline,omitzero"` // of the attempt, if it was started before it was sent

	Trace Trace `json:"trace"`
	// IdempotencyKey is the same for each copy of an envelope of one attempt, so that a
	// worker that receives it twice executes it once. After a restore of the database a task
	// may have the same attempt again: the token, which never repeats, tells them apart.
	IdempotencyKey string    `json:"idempotency_key"`
	Callbacks      Callbacks `json:"callbacks"`
	Auth           Auth      `json:"auth"`
}

// Upstream is what an upstream task has produced.
type Upstream struct {
	Run       id.Run          `json:"run"`
	Task      id.Task         `json:"task"`
	Asset     string          `json:"asset"`
	Partition string          `json:"partition"`
	Result    json.RawMessage `json:"result,omitempty"`
	// Omitted says that the result was too large to come along: the upstream callback has it.
	Omitted bool `json:"omitted,omitempty"`
}

// Trace is the W3C trace context that the attempt belongs to.
type Trace struct {
	Parent string `json:"traceparent,omitempty"`
	State  string `json:"tracestate,omitempty"`
}

// Callbacks are the presigned URLs that a worker posts to. What they take and answer is the
// JSON of the contract's messages, without the lease: the URL stands for it.
//
//	status     a ReportItem: {"start":{"instance":…}}, {"complete":{…}}, {"fail":{…}}, {"yield":{…}} → ReportAnswer
//	report     {"items":[ReportItem…]}: the same, progress and log chunks in order → ReportResponse
//	heartbeat  {"progress":{…}} → HeartbeatReply
//	cursor     Advance {"expected":…,"next":…} → ReportAnswer
//	fan_out    FanOut {"ordinal":…,"tasks":[…],"barrier":…} → ReportAnswer
//	upstream   {"run":…,"task":…} → that UpstreamTask, or {"page_size":…,"page_token":…} → ListUpstreamTasksResponse
type Callbacks struct {
	Status    string    `json:"status"`
	Report    string    `json:"report"`
	Heartbeat string    `json:"heartbeat"`
	Cursor    string    `json:"cursor"`
	FanOut    string    `json:"fan_out"`
	Upstream  string    `json:"upstream,omitempty"`
	ExpiresAt time.Time `json:"expires_at"`
}

// HeartbeatReply is the answer to a heartbeat.
type HeartbeatReply struct {
	Held         bool `json:"held"`          // false: the task is somebody else's by now
	ShouldCancel bool `json:"should_cancel"` // the run was cancelled: stop, and report
	// Callbacks replace those that the worker has, when they are near their end.
	Callbacks *Callbacks `json:"callbacks,omitempty"`
}

// Auth says who has signed an envelope and for how long. All of it is covered by the
// signature but the signature itself.
type Auth struct {
	KeyID     string    `json:"key_id"`
	IssuedAt  time.Time `json:"issued_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Nonce     string    `json:"nonce"`
	Signature string    `json:"signature,omitempty"`
}

// IdempotencyKey is the key of all envelopes of an attempt.
func IdempotencyKey(task id.Task, attempt int32, token int64) string {
	return fmt.Sprintf("%s:%d:%d", task, attempt, token)
}
