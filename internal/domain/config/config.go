package config

import (
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/schedule"
)

type (
	// Created creates a config.
	Created struct {
		Workspace id.Workspace `json:"workspace"`
		Name      string       `json:"name"`
		Spec      Spec         `json:"spec"`
		Disabled  bool         `json:"disabled,omitempty"`
		Reason    string       `json:"reason,omitempty"`
	}
	// Changed replaces the spec of the config.
	Changed struct {
		Spec   Spec   `json:"spec"`
		Reason string `json:"reason,omitempty"`
	}
	// Paused stops the slots until the config is resumed.
	Paused struct {
		Note string `json:"note,omitempty"`
	}
	// Resumed lets the next slot fire.
	Resumed struct {
		Note string `json:"note,omitempty"`
	}
	// Disabled stops the slots because the spec disables the config or it has failed too often.
	Disabled struct {
		Reason   string `json:"reason,omitempty"`
		Failures int32  `json:"failures,omitempty"` // consecutive ones, if they are the cause
	}
	// Enabled lets the next slot fire.
	Enabled struct {
		Reason string `json:"reason,omitempty"`
	}
	// Moved sets another time for the next slot.
	Moved struct {
		To     time.Time `json:"to"`
		Reason string    `json:"reason,omitempty"`
	}
	// Deleted deletes a config. Its name is free again, its ledger stays.
	Deleted struct {
		Reason string `json:"reason,omitempty"`
	}
)

// EventType implements event.Body.
func (Created) EventType() event.Type  { return "config.created" }
func (Changed) EventType() event.Type  { return "config.changed" }
func (Paused) EventType() event.Type   { return "config.paused" }
func (Resumed) EventType() event.Type  { return "config.resumed" }
func (Disabled) EventType() event.Type { return "config.disabled" }
func (Enabled) EventType() event.Type  { return "config.enabled" }
func (Moved) EventType() event.Type    { return "config.moved" }
func (Deleted) EventType() event.Type  { return "config.deleted" }

// Events declares every event of this package.
func Events() []event.Definition {
	return []event.Definition{
		event.Define[Created](),
		event.Define[Changed](),
		event.Define[Paused](),
		event.Define[Resumed](),
		event.Define[Disabled](),
		event.Define[Enabled](),
		event.Define[Moved](),
		event.Define[Deleted](),
		event.Define[EventReceived](),
		event.Define[EventHandled](),
		event.Define[TemplateSet](),
		event.Define[TemplateDeleted](),
	}
}

// Config is the state of a config that its events define.
type Config struct {
	Tenant    id.Tenant
	ID        id.Config
	Workspace id.Workspace
	Name      string
	Version   int32
	Spec      Spec

	Enabled        bool
	DisabledReason string
	PausedAt       time.Time // zero if it is not paused
	PauseNote      string
	MovedTo        time.Time // the time of the next slot, if it was moved

	CreatedBy string
	CreatedAt time.Time
	UpdatedAt time.Time
	DeletedAt time.Time
}

// Evolve applies one event to the config.
func (c Config) Evolve(e event.Event) (Config, error) {
	if err := event.Check[Created](e, c.Version, !c.DeletedAt.IsZero()); err != nil {
		return c, err
	}
	c.Version, c.UpdatedAt = e.Version, e.At
	switch body := e.Body.(type) {
	case Created:
		c.Tenant, c.ID, c.Workspace, c.Name, c.Spec = e.Tenant, id.Of[id.Config](e.Subject), body.Workspace, body.Name, body.Spec
		c.Enabled, c.CreatedAt, c.CreatedBy = !body.Disabled, e.At, e.Meta.Actor
		if body.Disabled {
			c.DisabledReason = body.Reason
		}
	case Changed:
		c.Spec, c.MovedTo = body.Spec, time.Time{}
	case Paused:
		c.PausedAt, c.PauseNote = e.At, body.Note
	case Resumed:
		c.PausedAt, c.PauseNote = time.Time{}, ""
	case Disabled:
		c.Enabled, c.DisabledReason = false, body.Reason
	case Enabled:
		c.Enabled, c.DisabledReason = true, ""
	case Moved:
		c.MovedTo = body.To
	case Deleted:
		c.DeletedAt, c.MovedTo = e.At, time.Time{}
	default:
		return c, e.Unexpected()
	}
	return c, nil
}

// Fires reports whether the slots of the config fire now.
func (c Config) Fires() bool { return c.Enabled && c.PausedAt.IsZero() && c.DeletedAt.IsZero() }

// Delay returns how long after its slots the config is due.
func (c Config) Delay() time.Duration { return schedule.Jitter(c.ID.UUID, c.Spec.Jitter.Std()) }

// Times are the times of a config that its ledger and its runs define.
type Times struct {
	DecidedUntil time.Time // every slot up to here has its outcome in the ledger
	NextSlot     time.Time
	DueAt        time.Time // when the scheduler checks it next; zero without a next slot
	ZoneData     string    // the version of the zone data that NextSlot was computed with
	RangeFrom    time.Time // the range that the last decided slot is in, if it did not fire

	LastSlot      time.Time // that fired
	LastRun       *id.Run
	LastState     int16     // of that run, once it has ended
	LastRunAt     time.Time // when it ended
	LastSuccessAt time.Time
	Failures      int32 // consecutive ones
	// CoveredUntil is the end of the coverage of the slots that fired; zero until one has covered
	// partitions.
	CoveredUntil time.Time
}
