package alert

import (
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/webhook"
)

// Channel is a URL that receives alerts: those of its tenant, or all if it belongs to the
// installation.
type Channel struct {
	Tenant  id.Tenant // zero for the installation
	ID      id.Channel
	Version int32
	ChannelSettings

	CreatedBy string
	CreatedAt time.Time
	DeletedAt time.Time
}

// ChannelSettings are the user-defined properties of a channel.
type ChannelSettings struct {
	Name     string   `json:"name"`
	URL      string   `json:"url"`
	Severity Severity `json:"severity"` // the lowest that is sent
}

type (
	// ChannelCreated creates a channel. No event contains its secret.
	ChannelCreated struct{ ChannelSettings }
	// ChannelDeleted deletes it. Its name is free again.
	ChannelDeleted struct{}
)

// EventType implements event.Body.
func (ChannelCreated) EventType() event.Type { return "alert_channel.created" }
func (ChannelDeleted) EventType() event.Type { return "alert_channel.deleted" }

// MaxChannels is the maximum number of a tenant's channels.
const MaxChannels = 20

// Evolve applies one event to the channel.
func (c Channel) Evolve(e event.Event) (Channel, error) {
	if err := event.Check[ChannelCreated](e, c.Version, !c.DeletedAt.IsZero()); err != nil {
		return c, err
	}
	switch body := e.Body.(type) {
	case ChannelCreated:
		c = Channel{Tenant: e.Tenant, ID: id.Of[id.Channel](e.Subject), ChannelSettings: body.ChannelSettings, CreatedBy: e.Meta.Actor, CreatedAt: e.At}
	case ChannelDeleted:
		c.DeletedAt = e.At
	default:
		return c, e.Unexpected()
	}
	c.Version = e.Version
	return c, nil
}

// Receives reports whether a channel receives an alert.
func (c Channel) Receives(a Alert) bool {
	allTenants := c.Tenant == (id.Tenant{})
	return c.DeletedAt.IsZero() && a.Severity >= c.Severity && (allTenants || c.Tenant == a.Tenant)
}

// Validate checks the settings.
func (s ChannelSettings) Validate() error {
	if err := fault.CheckName(s.Name, "on-call"); err != nil {
		return err
	}
	if err := webhook.ValidateURL(s.URL); err != nil {
		return err
	}
	if s.Severity < Low || s.Severity > Critical {
		return fault.Invalid("severity", fmt.Sprintf("unknown severity %d", s.Severity), "use LOW, MEDIUM, HIGH or CRITICAL")
	}
	return nil
}
