// Package platform defines the entities of the installation, which belong to no tenant: switches,
// pools, signing keys, releases and channels. It is pure: it applies events, reads no clock and no database, and has no
// secrets.
package platform

import (
	"fmt"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/domain/release"
)

// Event is an event about the installation. Its subject is a kind and a name.
type Event struct {
	Subject string // such as switch/dispatch
	Version int32  // of the subject; its first event is 1
	At      time.Time
	Meta    event.Meta
	Body    event.Body
}

// Kind is the kind of a subject.
type Kind string

// The kinds of subjects.
const (
	KindSwitch Kind = "switch"      // a feature that an operator can turn off for all tenants
	KindPool   Kind = "pool"        // a queue with its workers
	KindKey    Kind = "signing_key" // a key that signs envelopes and callbacks

	KindRelease Kind = "release" // a manifest of the installation, by its id
	KindChannel Kind = "channel" // a pointer to a release that workspaces follow
)

// SubjectOf returns the subject of a stream.
func SubjectOf(kind Kind, name string) string { return string(kind) + "/" + name }

// Split splits a subject into kind and name. A name may contain a slash.
func Split(subject string) (Kind, string) {
	kind, name, _ := strings.Cut(subject, "/")
	return Kind(kind), name
}

// Events declares every event of this package.
func Events() []event.Definition {
	return append([]event.Definition{
		event.Define[SwitchTurnedOff](),
		event.Define[SwitchTurnedOn](),
		event.Define[PoolCreated](),
		event.Define[PoolUpdated](),
		event.Define[PoolDeleted](),
		event.Define[KeyCreated](),
		event.Define[KeyRetired](),
		event.Define[KeyRevoked](),
	}, release.Events()...)
}

// Entity is the state of a subject. Its kind decides which part is set.
type Entity struct {
	Kind      Kind
	Name      string
	Version   int32
	CreatedAt time.Time
	UpdatedAt time.Time

	Switch Switch
	Pool   Pool
	Key    Key

	Release release.Release
	Channel release.Channel
}

// Evolve applies one event to the entity.
func (en Entity) Evolve(e Event) (Entity, error) {
	if e.Version != en.Version+1 {
		return en, fmt.Errorf("%s: event %s has version %d, expected %d", e.Subject, e.Body.EventType(), e.Version, en.Version+1)
	}
	kind, name := Split(e.Subject)
	if en.Version == 0 {
		en.Kind, en.Name, en.CreatedAt = kind, name, e.At
	}
	en.Version, en.UpdatedAt = e.Version, e.At
	if wanted := kindOf(e.Body); wanted != kind {
		return en, fmt.Errorf("%s: %s is not an event of a %s", e.Subject, e.Body.EventType(), kind)
	}
	var err error
	switch kind {
	case KindPool:
		en.Pool, err = en.Pool.evolve(e)
	case KindKey:
		en.Key, err = en.Key.evolve(e)
	case KindRelease:
		en.Release, err = en.Release.Evolve(e.Body, e.At)
	case KindChannel:
		if _, created := e.Body.(release.ChannelCreated); created {
			en.CreatedAt = e.At
		}
		en.Channel, err = en.Channel.Evolve(e.Body, e.At)
	default:
		en.Switch = en.Switch.evolve(e)
	}
	return en, err
}

func unexpected(e Event) error {
	return fmt.Errorf("%s: unexpected event %s", e.Subject, e.Body.EventType())
}

// kindOf returns the kind of subject of an event, "" if the event is not one of this package.
func kindOf(body event.Body) Kind {
	switch body.(type) {
	case SwitchTurnedOff, SwitchTurnedOn:
		return KindSwitch
	case PoolCreated, PoolUpdated, PoolDeleted:
		return KindPool
	case KeyCreated, KeyRetired, KeyRevoked:
		return KindKey
	case release.Created, release.Deleted:
		return KindRelease
	case release.ChannelCreated, release.ChannelUpdated, release.ChannelDeleted, release.RolloutStarted, release.WaveAdvanced,
		release.RolloutPaused, release.RolloutResumed, release.RolloutCompleted, release.RolloutRolledBack:
		return KindChannel
	}
	return ""
}
