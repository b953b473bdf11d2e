package platform

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
)

// Dispatch is the switch that lets workers have tasks. While it is off nothing new is given
// to anybody; what runs goes on.
const Dispatch = "dispatch"

type (
	// SwitchTurnedOff stops something for everybody.
	SwitchTurnedOff struct {
		Reason string `json:"reason,omitempty"`
		By     string `json:"by,omitempty"` // for people; the actor if not said
	}
	// SwitchTurnedOn lets it go on.
	SwitchTurnedOn struct {
		Reason string `json:"reason,omitempty"`
		By     string `json:"by,omitempty"`
	}
)

// EventType implements event.Body.
func (SwitchTurnedOff) EventType() event.Type { return "switch.turned_off" }
func (SwitchTurnedOn) EventType() event.Type  { return "switch.turned_on" }

// Switch is something that an operator can turn off. One that nobody has touched is on.
type Switch struct {
	Off       bool
	Reason    string
	ChangedBy string
	ChangedAt time.Time
}

// Turn says what happens when somebody wants the switch off or on: an event, or nil if that
// is how it stands already.
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

// evolve folds the events of switches; others leave it as it is.
func (s Switch) evolve(e Event) Switch {
	switch body := e.Body.(type) {
	case SwitchTurnedOff:
		return Switch{Off: true, Reason: body.Reason, ChangedBy: orActor(body.By, e.Meta), ChangedAt: e.At}
	case SwitchTurnedOn:
		return Switch{Reason: body.Reason, ChangedBy: orActor(body.By, e.Meta), ChangedAt: e.At}
	}
	return s
}

// orActor is who did something: whom the request names, else whom the server knows.
func orActor(by string, meta event.Meta) string {
	if by != "" {
		return by
	}
	return meta.Actor
}

// Limits of what people may write about a change.
const (
	MaxReasonLength = 1000
	MaxByLength     = 200
)

// CheckNote refuses a note that is too long or that cannot be kept.
func CheckNote(field, text string, limit int) error {
	if len(text) > limit {
		return fault.New(fault.LimitExceeded, fmt.Sprintf("has %d bytes, the limit is %d", len(text), limit), fault.Field(field),
			fault.Remedy("use a shorter text"), fault.Value("limit", limit), fault.Value("current", len(text)))
	}
	if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
		return fault.Invalid(field, "is not text that can be kept", "send UTF-8 without zero characters")
	}
	return nil
}
