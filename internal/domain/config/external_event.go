package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

type (
	// EventReceived records an external event.
	EventReceived struct {
		Workspace  id.Workspace    `json:"workspace"`
		Name       string          `json:"name"`
		Key        string          `json:"key"`
		Parameters json.RawMessage `json:"parameters"`
		Reason     string          `json:"reason,omitempty"`
		Listeners  int32           `json:"listeners,omitempty"`
	}
	// EventHandled completes it: every listening config has a run or a reason for having none.
	EventHandled struct {
		Runs    int32            `json:"runs,omitempty"`
		Skipped map[string]int32 `json:"skipped,omitempty"` // by outcome
	}
)

// EventType implements event.Body.
func (EventReceived) EventType() event.Type { return "event.received" }
func (EventHandled) EventType() event.Type  { return "event.handled" }

// OutsideEvent is an external event, which configs listen for.
type OutsideEvent struct {
	Tenant     id.Tenant
	ID         id.Event
	Workspace  id.Workspace
	Name       string
	Key        string // a second event with the same key is a duplicate
	Parameters json.RawMessage
	Reason     string
	SentBy     string
	Version    int32
	ReceivedAt time.Time
	Listeners  int32 // configs that listened when it arrived

	After   id.Config // configs up to this one are handled
	Runs    int32
	Skipped map[string]int32 // how many got no run, by outcome
	DoneAt  time.Time        // zero while some configs are not handled
}

// Evolve applies one event of the log.
func (o OutsideEvent) Evolve(e event.Event) (OutsideEvent, error) {
	if err := event.Check[EventReceived](e, o.Version, !o.DoneAt.IsZero()); err != nil {
		return o, err
	}
	o.Version = e.Version
	switch body := e.Body.(type) {
	case EventReceived:
		o.Tenant, o.ID, o.Workspace, o.Name, o.Key = e.Tenant, id.Of[id.Event](e.Subject), body.Workspace, body.Name, body.Key
		o.Parameters, o.Reason, o.Listeners, o.SentBy, o.ReceivedAt = body.Parameters, body.Reason, body.Listeners, e.Meta.Actor, e.At
	case EventHandled:
		o.Runs, o.Skipped, o.DoneAt = body.Runs, body.Skipped, e.At
	default:
		return o, e.Unexpected()
	}
	return o, nil
}

// Skip counts a config that got no run.
func (o *OutsideEvent) Skip(outcome Outcome) {
	skipped := maps.Clone(o.Skipped)
	if skipped == nil {
		skipped = map[string]int32{}
	}
	skipped[outcome.String()]++
	o.Skipped = skipped
}

// The limits of an external event.
const (
	MaxEventName = 100
	MaxDedupeKey = 200
	// KeepEvents is the minimum time that a key is remembered.
	KeepEvents = 7 * 24 * time.Hour
)

// ValidateEvent checks an external event, but not whether the listening configs accept its
// parameters.
func ValidateEvent(name, key string, parameters json.RawMessage) error {
	if name == "" || len(name) > MaxEventName || !plainText(name) {
		return fault.Invalid("name", fmt.Sprintf("%.110q is not a valid event name", name), "use up to 100 bytes of text, such as billing.exported")
	}
	if strings.TrimSpace(key) == "" || len(key) > MaxDedupeKey || !plainText(key) {
		return fault.Invalid("dedupe_key", "is missing, longer than 200 bytes, or not plain text",
			"send a key that identifies this event and stays the same when you send it again, such as its id at the source")
	}
	return Spec{Parameters: parameters}.checkObject()
}

// With returns the parameters of a config, overridden by those of an event.
func With(own, over json.RawMessage) (json.RawMessage, error) {
	merged := map[string]json.RawMessage{}
	for _, part := range []json.RawMessage{own, over} {
		if len(part) == 0 {
			continue
		}
		if err := json.Unmarshal(part, &merged); err != nil {
			return nil, err
		}
	}
	return json.Marshal(merged)
}
