package platform

import (
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
)

type (
	// KeyCreated begins a signing key. Its secret is in no event.
	KeyCreated struct {
		SignsFrom time.Time `json:"signs_from"` // before that it is only believed
	}
	// KeyRetired says until when a key is still believed, since another signs.
	KeyRetired struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
	// KeyRevoked ends a key at once: nothing that it has signed is believed any more.
	KeyRevoked struct {
		Reason string `json:"reason,omitempty"`
	}
)

// EventType implements event.Body.
func (KeyCreated) EventType() event.Type { return "signing_key.created" }
func (KeyRetired) EventType() event.Type { return "signing_key.retired" }
func (KeyRevoked) EventType() event.Type { return "signing_key.revoked" }

// Key is a signing key without its secret, as its events tell it.
type Key struct {
	SignsFrom time.Time
	ExpiresAt time.Time // zero while no other takes over
	RevokedAt time.Time
	Reason    string // why it was revoked
}

func (k Key) evolve(e Event) (Key, error) {
	made := !k.SignsFrom.IsZero()
	switch body := e.Body.(type) {
	case KeyCreated:
		if made {
			return k, unexpected(e)
		}
		return Key{SignsFrom: body.SignsFrom}, nil
	case KeyRetired:
		if !made || !k.ExpiresAt.IsZero() || !k.RevokedAt.IsZero() {
			return k, unexpected(e)
		}
		k.ExpiresAt = body.ExpiresAt
		return k, nil
	case KeyRevoked:
		if !made || !k.RevokedAt.IsZero() {
			return k, unexpected(e)
		}
		k.RevokedAt, k.Reason = e.At, body.Reason
		return k, nil
	}
	return k, unexpected(e)
}

// KeyState says what a key is good for.
type KeyState string

// The states of a key, in the order of its life.
const (
	KeyPending  KeyState = "PENDING"  // believed, and does not sign yet
	KeyActive   KeyState = "ACTIVE"   // signs, if no newer one does
	KeyRetiring KeyState = "RETIRING" // still believed
	KeyExpired  KeyState = "EXPIRED"
	KeyGone     KeyState = "REVOKED"
)

// StateAt is what the key is good for at a time.
func (k Key) StateAt(now time.Time) KeyState {
	switch {
	case !k.RevokedAt.IsZero():
		return KeyGone
	case k.ExpiresAt.IsZero() && now.Before(k.SignsFrom):
		return KeyPending
	case k.ExpiresAt.IsZero():
		return KeyActive
	case now.Before(k.ExpiresAt):
		return KeyRetiring
	}
	return KeyExpired
}

// Bounds of a rotation.
const (
	// DefaultKeyLead is what people have to give a new key to the workers before it signs.
	DefaultKeyLead = 15 * time.Minute
	// DefaultKeyOverlap is how long the keys before it are believed once it signs.
	DefaultKeyOverlap = 24 * time.Hour
	// MinKeyOverlap covers what is on its way: servers look for new keys every few seconds,
	// and the callbacks of a task that is being worked on live for hours.
	MinKeyOverlap = time.Minute
	maxKeyTime    = 30 * 24 * time.Hour
)

// CheckRotation refuses a rotation that would refuse good signatures, or go on for ever.
func CheckRotation(lead, overlap time.Duration) error {
	if lead < 0 || lead > maxKeyTime {
		return fault.Invalid("lead", fmt.Sprintf("is %s", lead), "use 0 s to 720 h")
	}
	if overlap < MinKeyOverlap || overlap > maxKeyTime {
		return fault.Invalid("overlap", fmt.Sprintf("is %s", overlap), "use 1 min to 720 h; revoke a key that must not be believed any more")
	}
	return nil
}
