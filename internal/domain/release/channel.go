// Package release is the life of releases and of the channels that point at them: which commands a channel
// accepts, when a rollout advances, stops or asks, and which release a tenant uses. It is pure: time, counts
// and ids are arguments.
package release

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
)

// State is the state of a channel's last rollout.
type State string

// The states of a rollout. None is the state of a channel that was never rolled.
const (
	None       State = ""
	Rolling    State = "ROLLING"
	Paused     State = "PAUSED"
	Completed  State = "COMPLETED"
	RolledBack State = "ROLLED_BACK"
)

// Active reports whether two releases are in use.
func (s State) Active() bool { return s == Rolling || s == Paused }

// Rollout moves the tenants of a channel from one release to another, in waves. The rows of tenants do not
// change: Wave decides which of them use the new release.
type Rollout struct {
	ID    uuid.UUID  `json:"id"`
	From  id.Release `json:"from"`
	To    id.Release `json:"to"`
	State State      `json:"state"`
	// Waves are the shares of tenants on the new release after each wave, in hundredths of a percent.
	Waves []int32       `json:"waves"`
	First string        `json:"first,omitempty"` // label of the tenants of the first wave, such as tier=internal
	Soak  time.Duration `json:"soak"`
	// Skipped tenants keep the old release, in the order of their ids: their configs would break.
	Skipped []id.Tenant `json:"skipped,omitempty"`

	Wave      int       `json:"wave"`
	WaveAt    time.Time `json:"wave_at"` // when the wave began, or was resumed
	Base      int64     `json:"base"`    // runs that had ended on the new release by then
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	Reason    string    `json:"reason,omitempty"`    // why it was paused or rolled back
	Automatic bool      `json:"automatic,omitempty"` // the rule has paused it or rolled it back, not a person
}

// Channel is a named pointer to a release.
type Channel struct {
	Live    bool // it was created, and not deleted
	Current id.Release
	Default bool // new tenants follow it
	Rollout *Rollout
}

// State is the state of the last rollout.
func (c Channel) State() State {
	if c.Rollout == nil {
		return None
	}
	return c.Rollout.State
}

type (
	// Created stores a release.
	Created struct {
		Name   string `json:"name"`
		Digest string `json:"digest"`
		Note   string `json:"note,omitempty"`
	}
	// Deleted hides a release. Its manifest is kept for the runs that used it.
	Deleted struct{}

	// ChannelCreated creates a channel, also after it was deleted.
	ChannelCreated struct {
		Release id.Release `json:"release"`
		Default bool       `json:"default,omitempty"`
	}
	// ChannelUpdated sets whether new tenants follow the channel.
	ChannelUpdated struct {
		Default bool `json:"default"`
	}
	// ChannelDeleted deletes a channel.
	ChannelDeleted struct{}
	// RolloutStarted starts a rollout.
	RolloutStarted struct {
		Rollout uuid.UUID     `json:"rollout"`
		From    id.Release    `json:"from"`
		To      id.Release    `json:"to"`
		Waves   []int32       `json:"waves"`
		Wave    int           `json:"wave"`
		First   string        `json:"first,omitempty"`
		Soak    time.Duration `json:"soak"`
		Skipped []id.Tenant   `json:"skipped,omitempty"`
	}
	// WaveAdvanced moves the rollout to its next wave.
	WaveAdvanced struct {
		Wave     int      `json:"wave"`
		Evidence Evidence `json:"evidence"`
		Reason   string   `json:"reason,omitempty"`
	}
	// RolloutPaused stops a rollout at its wave.
	RolloutPaused struct {
		Reason    string   `json:"reason,omitempty"`
		Automatic bool     `json:"automatic,omitempty"`
		Evidence  Evidence `json:"evidence"`
	}
	// RolloutResumed continues it; the soak of the wave begins again.
	RolloutResumed struct {
		Reason   string   `json:"reason,omitempty"`
		Evidence Evidence `json:"evidence"`
	}
	// RolloutCompleted makes the new release the channel's.
	RolloutCompleted struct {
		Evidence Evidence `json:"evidence"`
		Reason   string   `json:"reason,omitempty"`
	}
	// RolloutRolledBack returns all tenants to the old release.
	RolloutRolledBack struct {
		Reason    string   `json:"reason,omitempty"`
		Automatic bool     `json:"automatic,omitempty"`
		Evidence  Evidence `json:"evidence"`
	}
)

// EventType implements event.Body.
func (Created) EventType() event.Type           { return "release.created" }
func (Deleted) EventType() event.Type           { return "release.deleted" }
func (ChannelCreated) EventType() event.Type    { return "channel.created" }
func (ChannelUpdated) EventType() event.Type    { return "channel.updated" }
func (ChannelDeleted) EventType() event.Type    { return "channel.deleted" }
func (RolloutStarted) EventType() event.Type    { return "channel.rollout_started" }
func (WaveAdvanced) EventType() event.Type      { return "channel.wave_advanced" }
func (RolloutPaused) EventType() event.Type     { return "channel.rollout_paused" }
func (RolloutResumed) EventType() event.Type    { return "channel.rollout_resumed" }
func (RolloutCompleted) EventType() event.Type  { return "channel.rollout_completed" }
func (RolloutRolledBack) EventType() event.Type { return "channel.rolled_back" }

// Events declares every event of this package.
func Events() []event.Definition {
	return []event.Definition{
		event.Define[Created](), event.Define[Deleted](),
		event.Define[ChannelCreated](), event.Define[ChannelUpdated](), event.Define[ChannelDeleted](),
		event.Define[RolloutStarted](), event.Define[WaveAdvanced](), event.Define[RolloutPaused](),
		event.Define[RolloutResumed](), event.Define[RolloutCompleted](), event.Define[RolloutRolledBack](),
	}
}

// Release is a manifest of the installation.
type Release struct {
	Name      string
	Digest    string
	Note      string
	DeletedAt time.Time
}

// Evolve applies one event to the release.
func (r Release) Evolve(body event.Body, at time.Time) (Release, error) {
	switch b := body.(type) {
	case Created:
		if r.Name == "" {
			return Release{Name: b.Name, Digest: b.Digest, Note: b.Note}, nil
		}
	case Deleted:
		if r.Name != "" && r.DeletedAt.IsZero() {
			r.DeletedAt = at
			return r, nil
		}
	}
	return r, fmt.Errorf("unexpected event %s of release %q", body.EventType(), r.Name)
}

// Evolve applies one event to the channel. Live writes and verify both use it.
func (c Channel) Evolve(body event.Body, at time.Time) (Channel, error) {
	if _, isNew := body.(ChannelCreated); isNew == c.Live {
		return c, fmt.Errorf("unexpected event %s", body.EventType())
	}
	switch b := body.(type) {
	case ChannelCreated:
		return Channel{Live: true, Current: b.Release, Default: b.Default}, nil
	case ChannelUpdated:
		c.Default = b.Default
		return c, nil
	case ChannelDeleted:
		return Channel{}, nil
	case RolloutStarted:
		if c.State().Active() {
			return c, fmt.Errorf("unexpected event %s during a rollout", body.EventType())
		}
		c.Rollout = &Rollout{
			ID: b.Rollout, From: b.From, To: b.To, State: Rolling, Waves: b.Waves, Wave: b.Wave, First: b.First, Soak: b.Soak, Skipped: b.Skipped,
			WaveAt: at, StartedAt: at,
		}
		return c, nil
	}
	return c.evolveRollout(body, at)
}

func (c Channel) evolveRollout(body event.Body, at time.Time) (Channel, error) {
	if c.Rollout == nil {
		return c, fmt.Errorf("unexpected event %s without a rollout", body.EventType())
	}
	r := *c.Rollout
	c.Rollout = &r
	to, known := stateAfter(r.State, body)
	if !known {
		return c, fmt.Errorf("unexpected event %s of a rollout that is %s", body.EventType(), r.State)
	}
	r.State = to
	switch b := body.(type) {
	case WaveAdvanced:
		r.Wave, r.WaveAt, r.Base, r.Reason, r.Automatic = b.Wave, at, b.Evidence.New.Ended, "", false
	case RolloutPaused:
		r.Reason, r.Automatic = b.Reason, b.Automatic
	case RolloutResumed:
		r.WaveAt, r.Base, r.Reason, r.Automatic = at, b.Evidence.New.Ended, "", false
	case RolloutCompleted:
		c.Current, r.EndedAt, r.Reason, r.Automatic = r.To, at, "", false
	case RolloutRolledBack:
		c.Current, r.EndedAt, r.Reason, r.Automatic = r.From, at, b.Reason, b.Automatic
	}
	return c, nil
}

// transitions is the whole machine of a rollout.
var transitions = []struct {
	From []State
	On   event.Type
	To   State
}{
	{[]State{None, Completed, RolledBack}, RolloutStarted{}.EventType(), Rolling},
	{[]State{Rolling, Paused}, WaveAdvanced{}.EventType(), Rolling},
	{[]State{Rolling}, RolloutPaused{}.EventType(), Paused},
	{[]State{Paused}, RolloutResumed{}.EventType(), Rolling},
	{[]State{Rolling, Paused}, RolloutCompleted{}.EventType(), Completed},
	{[]State{Rolling, Paused, Completed}, RolloutRolledBack{}.EventType(), RolledBack},
}

func stateAfter(from State, body event.Body) (to State, known bool) {
	for _, t := range transitions {
		if t.On != body.EventType() {
			continue
		}
		for _, s := range t.From {
			if s == from {
				return t.To, true
			}
		}
	}
	return "", false
}
