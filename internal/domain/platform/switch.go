package platform

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
)

// Dispatch is the switch for dispatching tasks. While it is off, no worker gets new tasks; running
// tasks continue.
const Dispatch = "dispatch"

type (
	// SwitchTurnedOff turns a feature off for all tenants.
	SwitchTurnedOff struct {
		Reason string `json:"reason,omitempty"`
		By     string `json:"by,omitempty"` // display name; default: the actor
	}
	// SwitchTurnedOn turns it on again.
	SwitchTurnedOn struct {
		Reason string `json:"reason,omitempty"`
		By     string `json:"by,omitempty"`
	}
)

// EventType implements event.Body.
func (SwitchTurnedOff) EventType() event.Type { return "switch.turned_off" }
func (SwitchTurnedOn) EventType() event.Type  { return "switch.turned_on" }

// Switch is a feature that an operator can turn off. It is on by default.
type Switch struct {
	Off       bool
	Reason    string
	ChangedBy string
	ChangedAt time.Time
}

// Turn returns the event that turns the switch off or on, or nil if it is in that state already.
func (s Switch) Turn(off bool, reason, by string) (event.Body, error) {
	if err := CheckNote("reason", reason, MaxReasonLength); err != nil {
		return nil, err
	}
	if err := CheckNote("by", by, MaxByLength); err != nil {
		return nil, err
	}
	switch {
	case off == s.Off:
		return nil, nil
	case off:
		return SwitchTurnedOff{Reason: reason, By: by}, nil
	}
	return SwitchTurnedOn{Reason: reason, By: by}, nil
}

// evolve applies the events of switches and ignores others.
func (s Switch) evolve(e Event) Switch {
	switch body := e.Body.(type) {
	case SwitchTurnedOff:
		return Switch{Off: true, Reason: body.Reason, ChangedBy: orActor(body.By, e.Meta), ChangedAt: e.At}
	case SwitchTurnedOn:
		return Switch{Reason: body.Reason, ChangedBy: orActor(body.By, e.Meta), ChangedAt: e.At}
	}
	return s
}

// orActor returns the name in the request, or else the authenticated actor.
func orActor(by string, meta event.Meta) string {
	if by != "" {
		return by
	}
	return meta.Actor
}

// The limits of notes about a change.
const (
	MaxReasonLength = 1000
	MaxByLength     = 200
)

// CheckNote refuses a note that is too long or that PostgreSQL cannot store.
func CheckNote(field, text string, limit int) error {
	if len(text) > limit {
		return fault.New(fault.LimitExceeded, fmt.Sprintf("has %d bytes, the limit is %d", len(text), limit), fault.Field(field),
			fault.Remedy("use a shorter text"), fault.Value("limit", limit), fault.Value("current", len(text)))
	}
	if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
		return fault.Invalid(field, "is not valid text", "send UTF-8 without NUL characters")
	}
	return nil
}
