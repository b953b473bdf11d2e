package subscription

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/webhook"
)

// Settings are the user-defined properties of a subscription.
type Settings struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	// Types are the types of the events to send, by name or by prefix (run.*). Empty is all.
	Types []string `json:"types,omitempty"`
	// Workspace and Pipeline, if set, restrict the events to those of matching runs.
	Workspace string `json:"workspace,omitempty"`
	Pipeline  string `json:"pipeline,omitempty"`
}

type (
	// Created creates a subscription. No event contains its secret.
	Created struct {
		Settings
		From string `json:"from"` // the position after which events are sent
	}
	// Paused stops it. Events of the meantime are sent when it is resumed.
	Paused struct {
		Reason string `json:"reason,omitempty"`
	}
	// Resumed continues where it stopped.
	Resumed struct{}
	// Replayed moves the subscription to another position: events are sent again or skipped.
	Replayed struct {
		From string `json:"from"`
	}
	// Deleted deletes it. Its name is free again.
	Deleted struct{}
)

// EventType implements event.Body.
func (Created) EventType() event.Type  { return "subscription.created" }
func (Paused) EventType() event.Type   { return "subscription.paused" }
func (Resumed) EventType() event.Type  { return "subscription.resumed" }
func (Replayed) EventType() event.Type { return "subscription.replayed" }
func (Deleted) EventType() event.Type  { return "subscription.deleted" }

// Events declares every event of this package.
func Events() []event.Definition {
	return []event.Definition{
		event.Define[Created](), event.Define[Paused](), event.Define[Resumed](), event.Define[Replayed](), event.Define[Deleted](),
	}
}

// The limits of subscriptions.
const (
	// Max is the maximum number of a tenant's subscriptions.
	Max = 20

	maxTypes  = 50
	maxType   = 100
	maxFilter = 100
)

// When a failed call is repeated, and when the subscription is paused.
const (
	firstWait = 5 * time.Second
	maxWait   = 5 * time.Minute
	// PauseAfter is how long a receiver may fail before its subscription is paused.
	PauseAfter = 72 * time.Hour
)

// Subscription sends the events of its tenant, or of all tenants if it belongs to the installation,
// to a URL.
type Subscription struct {
	Tenant  id.Tenant // zero for the installation
	ID      id.Subscription
	Version int32
	Settings

	PausedAt    time.Time
	PauseReason string
	CreatedBy   string
	CreatedAt   time.Time
	DeletedAt   time.Time
}

// Evolve applies one event to the subscription.
func (s Subscription) Evolve(e event.Event) (Subscription, error) {
	if err := event.Check[Created](e, s.Version, !s.DeletedAt.IsZero()); err != nil {
		return s, err
	}
	switch body := e.Body.(type) {
	case Created:
		s = Subscription{Tenant: e.Tenant, ID: id.Of[id.Subscription](e.Subject), Settings: body.Settings, CreatedBy: e.Meta.Actor, CreatedAt: e.At}
	case Paused:
		if !s.PausedAt.IsZero() {
			return s, e.Unexpected()
		}
		s.PausedAt, s.PauseReason = e.At, body.Reason
	case Resumed:
		if s.PausedAt.IsZero() {
			return s, e.Unexpected()
		}
		s.PausedAt, s.PauseReason = time.Time{}, ""
	case Replayed: // the position itself is not part of this state
	case Deleted:
		s.DeletedAt = e.At
	default:
		return s, e.Unexpected()
	}
	s.Version = e.Version
	return s, nil
}

// Validate checks the settings; known are the types of all events.
func (s Settings) Validate(known []string) error {
	if err := fault.CheckName(s.Name, "on-call"); err != nil {
		return err
	}
	if err := webhook.ValidateURL(s.URL); err != nil {
		return err
	}
	if len(s.Types) > maxTypes {
		return fault.Invalid("types", fmt.Sprintf("has %d entries, the limit is %d", len(s.Types), maxTypes), "use prefixes such as run.*")
	}
	for _, pattern := range s.Types {
		if len(pattern) > maxType || !slices.ContainsFunc(known, func(t string) bool { return matches(pattern, t) }) {
			return fault.Invalid("types", fmt.Sprintf("unknown event type %.100q", pattern), "use the type of an event such as run.ended, or a prefix such as run.*")
		}
	}
	if len(s.Workspace) > maxFilter || len(s.Pipeline) > maxFilter {
		return fault.Invalid("pipeline", "workspace or pipeline is too long", "use the name of a workspace and of a pipeline")
	}
	return nil
}

// matches reports whether a type equals a pattern or has its prefix.
func matches(pattern, of string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasSuffix(prefix, ".") && strings.HasPrefix(of, prefix)
	}
	return pattern == of
}

// Again returns the backoff after a number of failed calls.
func Again(tries int) time.Duration { return webhook.Wait(tries, firstWait, maxWait) }
