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

// Settings is what people say about a subscription.
type Settings struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	// Types are the events that it asks for, by name or by prefix (run.*). None is all.
	Types []string `json:"types,omitempty"`
	// Workspace and Pipeline, if set, leave only events of runs, of these.
	Workspace string `json:"workspace,omitempty"`
	Pipeline  string `json:"pipeline,omitempty"`
}

type (
	// Created begins a subscription. Its secret is in no event.
	Created struct {
		Settings
		From string `json:"from"` // the place after which it hears of everything
	}
	// Paused stops it. What happens meanwhile it hears of when it is resumed.
	Paused struct {
		Reason string `json:"reason,omitempty"`
	}
	// Resumed lets it go on where it was.
	Resumed struct{}
	// Replayed makes it hear of everything after a place, once more or no more.
	Replayed struct {
		From string `json:"from"`
	}
	// Deleted ends it. Its name is free again.
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
	// Max is how many a tenant may have.
	Max = 20

	maxTypes  = 50
	maxType   = 100
	maxFilter = 100
)

// When a call that failed is repeated, and when nobody expects that it ever goes well.
const (
	firstWait = 5 * time.Second
	maxWait   = 5 * time.Minute
	// PauseAfter is how long a receiver may fail before its subscription is paused.
	PauseAfter = 72 * time.Hour
)

// Subscription sends the events of its tenant, or of everybody if it belongs to the
// installation, to a URL.
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

// Evolve folds one event into the subscription.
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
	case Replayed: // where it stands is in no event but this
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
		return fault.Invalid("types", fmt.Sprintf("has %d entries", len(s.Types)), fmt.Sprintf("use up to %d, or prefixes such as run.*", maxTypes))
	}
	for _, pattern := range s.Types {
		if len(pattern) > maxType || !slices.ContainsFunc(known, func(t string) bool { return matches(pattern, t) }) {
			return fault.Invalid("types", fmt.Sprintf("no event has the type %.100q", pattern), "use the type of an event such as run.ended, or a prefix such as run.*")
		}
	}
	if len(s.Workspace) > maxFilter || len(s.Pipeline) > maxFilter {
		return fault.Invalid("pipeline", "is too long", "use the name of a workspace and of a pipeline")
	}
	return nil
}

// matches reports whether a type is the one that a pattern asks for, or begins with it.
func matches(pattern, of string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasSuffix(prefix, ".") && strings.HasPrefix(of, prefix)
	}
	return pattern == of
}

// Again is how long to wait after so many failed calls.
func Again(tries int) time.Duration { return webhook.Wait(tries, firstWait, maxWait) }
