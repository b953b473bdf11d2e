package alert

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.arco.dev/servo/internal/event"
	"go.arco.dev/servo/internal/fault"
	"go.arco.dev/servo/internal/id"
)

// Channel is a URL that hears of alerts: of its tenant's, or of all if it belongs to the
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

// ChannelSettings is what people say about a channel.
type ChannelSettings struct {
	Name         string   `json:"name"`
	URL          string   `json:"url"`
	Severity     Severity `json:"severity"`                // the least that it hears of
	AllowPrivate bool     `json:"allow_private,omitempty"` // loopback and link-local addresses may be called
}

type (
	// ChannelCreated begins a channel. Its secret is in no event.
	ChannelCreated struct{ ChannelSettings }
	// ChannelDeleted ends it. Its name is free again.
	ChannelDeleted struct{}
)

// EventType implements event.Body.
func (ChannelCreated) EventType() event.Type { return "alert_channel.created" }
func (ChannelDeleted) EventType() event.Type { return "alert_channel.deleted" }

// The limits of a channel.
const (
	maxChannelName = 100
	maxURL         = 2000
	// MaxChannels is how many a tenant may have.
	MaxChannels = 20
)

// Evolve folds one event into the channel.
func (c Channel) Evolve(e event.Event) (Channel, error) {
	if e.Version != c.Version+1 {
		return c, fmt.Errorf("alert channel %s: event %s has version %d after %d", e.Subject, e.Body.EventType(), e.Version, c.Version)
	}
	switch body := e.Body.(type) {
	case ChannelCreated:
		if c.Version != 0 {
			return c, misplaced(e)
		}
		c = Channel{Tenant: e.Tenant, ID: id.Of[id.Channel](e.Subject), ChannelSettings: body.ChannelSettings, CreatedBy: e.Meta.Actor, CreatedAt: e.At}
	case ChannelDeleted:
		if c.Version == 0 || !c.DeletedAt.IsZero() {
			return c, misplaced(e)
		}
		c.DeletedAt = e.At
	default:
		return c, misplaced(e)
	}
	c.Version = e.Version
	return c, nil
}

// Hears says whether a channel is told of an alert.
func (c Channel) Hears(a Alert) bool {
	everybody := c.Tenant == (id.Tenant{})
	return c.DeletedAt.IsZero() && a.Severity >= c.Severity && (everybody || c.Tenant == a.Tenant)
}

// Validate checks the settings.
func (s ChannelSettings) Validate() error {
	bad := func(field, message, remedy string) error {
		return fault.New(fault.InvalidArgument, message, fault.Field(field), fault.Remedy(remedy))
	}
	ok := s.Name != "" && len(s.Name) <= maxChannelName
	for i, r := range s.Name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		ok = ok && (letter || i > 0 && strings.ContainsRune("-_.", r))
	}
	if !ok {
		return bad("name", fmt.Sprintf("%.110q is not a name", s.Name), "use up to 100 letters, digits, - _ and ., such as on-call")
	}
	u, err := url.Parse(s.URL)
	if err != nil || len(s.URL) > maxURL || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.Fragment != "" {
		return bad("url", fmt.Sprintf("%.100q is not the URL of a webhook", s.URL), "use http or https, up to 2000 bytes, without user and fragment: https://hooks.example.com/servo")
	}
	if s.Severity < Low || s.Severity > Critical {
		return bad("severity", fmt.Sprintf("is %d", s.Severity), "use LOW, MEDIUM, HIGH or CRITICAL")
	}
	return nil
}
