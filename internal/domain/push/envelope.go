// Package push defines the contract between Servo and the workers of push pools: the envelope of a
// task, the callback URLs, the signing keys, and when calls to an endpoint stop for a while. It is
// pure: time and randomness are arguments. It sends and stores nothing.
package push

import (
	"encoding/json"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/id"
)

// Contract is the version of the envelope. New fields keep the version; a change of existing fields
// needs a new one.
const Contract = 1

// MaxEnvelope is the maximum size of an envelope in bytes: results that would exceed it are omitted,
// and the worker can request them.
const MaxEnvelope = 1 << 20

// Envelope has everything that a worker needs to execute one attempt and to report its result. It is
// sent as canonical JSON (RFC 8785), with the signature inside.
type Envelope struct {
	Contract int `json:"contract"`

	Pool    string  `json:"pool"`
	Tenant  string  `json:"tenant"` // the tenant's name
	Run     id.Run  `json:"run"`
	Task    id.Task `json:"task"`
	Attempt int32   `json:"attempt"`
	Token   int64   `json:"fencing_token"` // of the attempt; a later one, of any task, has a higher one

	Asset      string `json:"asset"`      // namespace/name
	Entrypoint string `json:"entrypoint"` // the function that produces it; the asset's key if empty
	Pipeline   string `json:"pipeline"`
	Partition  string `json:"partition"`
	// Partitions are the keys of the declared partitions of Partition, in order.
	Partitions []string `json:"partitions,omitempty"`

	Config        string    `json:"config,omitempty"`        // the name of the run's config
	TriggerType   string    `json:"trigger_type,omitempty"`  // schedule, event, manual, api or retry
	Slot          time.Time `json:"slot,omitzero"`           // the slot of the run
	IntervalStart time.Time `json:"interval_start,omitzero"` // the data interval: from the previous slot
	IntervalEnd   time.Time `json:"interval_end,omitzero"`   // to its own, or to the time of the trigger

	Parameters json.RawMessage `json:"parameters"` // of the run: an object
	Upstream   []Upstream      `json:"upstream"`
	Cursor     string          `json:"cursor"`
	FanOuts    int32           `json:"fan_outs"` // the ordinal of the task's next fan-out

	TimeoutSeconds int64     `json:"timeout_s"`         // of the attempt, from its start; 0 for none
	LeaseSeconds   int64     `json:"lease_s"`           // a worker without a heartbeat for so long is considered dead
	Deadline       time.Time `json:"deadline,omitzero"` // of the attempt, if it was started before it was sent

	Trace Trace `json:"trace"`
	// IdempotencyKey is the same for each copy of an envelope of one attempt, so that a worker that
	// receives it twice executes it once. After a restore of the database a task may have the same
	// attempt again: the token, which never repeats, distinguishes them.
	IdempotencyKey string    `json:"idempotency_key"`
	Callbacks      Callbacks `json:"callbacks"`
	Auth           Auth      `json:"auth"`
}

// Upstream is the result of an upstream task.
type Upstream struct {
	Run       id.Run          `json:"run"`
	Task      id.Task         `json:"task"`
	Asset     string          `json:"asset"`
	Partition string          `json:"partition"`
	Result    json.RawMessage `json:"result,omitempty"`
	// Omitted is true if the result was too large for the envelope: the upstream callback returns it.
	Omitted bool `json:"omitted,omitempty"`
}

// Trace is the W3C trace context of the attempt.
type Trace struct {
	Parent string `json:"traceparent,omitempty"`
	State  string `json:"tracestate,omitempty"`
}

// Callbacks are the presigned URLs that a worker posts to. Their requests and responses are the JSON
// of the contract's messages, without the lease: the URL identifies it.
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

// HeartbeatReply is the response to a heartbeat.
type HeartbeatReply struct {
	Held         bool `json:"held"`          // false: the lease is lost
	ShouldCancel bool `json:"should_cancel"` // the run was cancelled: stop, and report
	// Callbacks replace the worker's URLs when these are close to their expiry.
	Callbacks *Callbacks `json:"callbacks,omitempty"`
}

// Auth names the signing key of an envelope and its validity. The signature covers all of it except
// itself.
type Auth struct {
	KeyID     string    `json:"key_id"`
	IssuedAt  time.Time `json:"issued_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Nonce     string    `json:"nonce"`
	Signature string    `json:"signature,omitempty"`
}

// IdempotencyKey returns the key of all envelopes of an attempt.
func IdempotencyKey(task id.Task, attempt int32, token int64) string {
	return fmt.Sprintf("%s:%d:%d", task, attempt, token)
}
