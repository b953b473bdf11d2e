package platform

import (
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
)

type (
	// KeyCreated creates a signing key. No event contains its secret.
	KeyCreated struct {
		SignsFrom time.Time `json:"signs_from"` // before that it is accepted, but does not sign
	}
	// KeyRetired sets until when a replaced key is accepted.
	KeyRetired struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
	// KeyRevoked revokes a key immediately: none of its signatures is accepted any more.
	KeyRevoked struct {
		Reason string `json:"reason,omitempty"`
	}
)

// EventType implements event.Body.
func (KeyCreated) EventType() event.Type { return "signing_key.created" }
func (KeyRetired) EventType() event.Type { return "signing_key.retired" }
func (KeyRevoked) EventType() event.Type { return "signing_key.revoked" }

// Key is a signing key without its secret.
type Key struct {
	SignsFrom time.Time
	ExpiresAt time.Time // zero until another key replaces it
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

// KeyState is the state of a signing key.
type KeyState string

// The states of a key, in the order of its life.
const (
	KeyPending  KeyState = "PENDING"  // accepted, does not sign yet
	KeyActive   KeyState = "ACTIVE"   // signs, unless a newer one does
	KeyRetiring KeyState = "RETIRING" // accepted, signs no more
	KeyExpired  KeyState = "EXPIRED"
	KeyGone     KeyState = "REVOKED"
)

// StateAt returns the state of the key at a time.
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

// The limits of a rotation.
const (
	// DefaultKeyLead is the time to distribute a new key to the workers before it signs.
	DefaultKeyLead = 15 * time.Minute
	// DefaultKeyOverlap is how long the earlier keys are accepted once the new one signs.
	DefaultKeyOverlap = 24 * time.Hour
	// MinKeyOverlap covers messages in transit: servers reload keys every few seconds, and the
	// callbacks of a running task are valid for hours.
	MinKeyOverlap = time.Minute
	maxKeyTime    = 30 * 24 * time.Hour
)

// CheckRotation refuses a rotation that would invalidate good signatures, or take too long.
func CheckRotation(lead, overlap time.Duration) error {
	if lead < 0 || lead > maxKeyTime {
		return fault.Invalid("lead", fmt.Sprintf("is %s, must be 0s to 720h", lead), "use a duration such as 24h")
	}
	if overlap < MinKeyOverlap || overlap > maxKeyTime {
		return fault.Invalid("overlap", fmt.Sprintf("is %s, must be 1m to 720h", overlap), "use a duration such as 24h; revoke a key that must not be accepted any more")
	}
	return nil
}
