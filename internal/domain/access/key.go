package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// The text of a key: sk_, its public id, and its secret.
const (
	prefix      = "sk_"
	idBytes     = 8
	secretBytes = 32
)

// Digest is the stored form of a secret. A secret has 256 random bits and cannot be guessed, so a fast
// digest is as good as a slow one.
type Digest [sha256.Size]byte

// Secret is an API key with its secret part, as its owner uses it.
type Secret struct {
	ID     string // 16 hex digits, not secret
	secret [secretBytes]byte
}

// NewSecret creates a key.
func NewSecret(random io.Reader) (Secret, error) {
	var raw [idBytes]byte
	var made Secret
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return Secret{}, fmt.Errorf("create a key: %w", err)
	}
	if _, err := io.ReadFull(random, made.secret[:]); err != nil {
		return Secret{}, fmt.Errorf("create a key: %w", err)
	}
	made.ID = hex.EncodeToString(raw[:])
	return made, nil
}

// Text returns the key as it is shown to its owner, once.
func (s Secret) Text() string {
	return prefix + s.ID + "_" + base64.RawURLEncoding.EncodeToString(s.secret[:])
}

// Digest returns the digest to store.
func (s Secret) Digest() Digest { return sha256.Sum256(s.secret[:]) }

// Is reports, in constant time, whether a digest is the digest of this secret.
func (s Secret) Is(d Digest) bool {
	own := s.Digest()
	return subtle.ConstantTimeCompare(own[:], d[:]) == 1
}

var keyID = regexp.MustCompile(`^[0-9a-f]{16}$`)

// ParseSecret parses a key. Each key has exactly one text.
func ParseSecret(text string) (s Secret, ok bool) {
	rest, found := strings.CutPrefix(text, prefix)
	name, secret, cut := strings.Cut(rest, "_")
	if !found || !cut || !keyID.MatchString(name) {
		return Secret{}, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	if err != nil || len(raw) != secretBytes || len(secret) != base64.RawURLEncoding.EncodedLen(secretBytes) { // the decoder skips line ends
		return Secret{}, false
	}
	return Secret{ID: name, secret: [secretBytes]byte(raw)}, true
}

// Settings are the properties of a new key.
type Settings struct {
	Name      string    `json:"name"`
	Role      Role      `json:"role"`
	Workspace string    `json:"workspace,omitempty"` // "" is the whole tenant
	Pools     []string  `json:"pools,omitempty"`     // of a worker key
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// The limits of keys.
const (
	maxPools = 100
	// MaxKeys is how many active keys a tenant, or the installation, may have.
	MaxKeys = 1000
	// MaxLife is the longest expiry of a key.
	MaxLife = 10 * 365 * 24 * time.Hour
	// DefaultOverlap is how long a key stays valid after it was rotated.
	DefaultOverlap = 24 * time.Hour
	// MaxOverlap is the longest overlap.
	MaxOverlap = 30 * 24 * time.Hour
)

var poolName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,99}$`)

// Validate checks the settings of a key of a tenant; the zero tenant is the installation.
func (s Settings) Validate(owner id.Tenant, now time.Time) error {
	if err := fault.CheckName(s.Name, "ci"); err != nil {
		return err
	}
	switch ofPlatform := owner == (id.Tenant{}); {
	case keyID.MatchString(s.Name):
		return fault.Invalid("name", fmt.Sprintf("%.110q looks like the id of a key", s.Name), "use a descriptive name, such as ci")
	case !s.Role.Known():
		return fault.Invalid("role", fmt.Sprintf("%.100q is not a role", s.Role), "use one of viewer, operator, developer, admin, worker, tick, platform")
	case ofPlatform && s.Role != Platform && s.Role != Worker && s.Role != Tick:
		return fault.Invalid("role", fmt.Sprintf("role %s requires a tenant", s.Role), "set the tenant; a key of the installation has the role platform, worker or tick")
	case !ofPlatform && (s.Role == Platform || s.Role == Tick):
		return fault.Invalid("role", fmt.Sprintf("role %s is not available to tenants", s.Role), "remove the tenant, or use admin")
	case s.Workspace != "" && (ofPlatform || s.Role == Worker):
		return fault.Invalid("workspace", "is set, but only keys of a tenant have a workspace", "remove it")
	case s.Role == Worker && len(s.Pools) == 0:
		return fault.Invalid("pools", "is missing", "list the pools that the worker serves")
	case s.Role != Worker && len(s.Pools) > 0:
		return fault.Invalid("pools", "is set, but only worker keys have pools", "remove it, or use the role worker")
	case len(s.Pools) > maxPools:
		return fault.Invalid("pools", fmt.Sprintf("has %d pools, the limit is 100", len(s.Pools)), "use several keys")
	case !s.ExpiresAt.IsZero() && !s.ExpiresAt.After(now):
		return fault.Invalid("expires_in", "is in the past", "use a time in the future, or remove it")
	case !s.ExpiresAt.IsZero() && s.ExpiresAt.After(now.Add(MaxLife)):
		return fault.Invalid("expires_in", "is more than ten years", "use a shorter time, or remove it")
	}
	for i, pool := range s.Pools {
		if !poolName.MatchString(pool) || slices.Contains(s.Pools[:i], pool) {
			return fault.Invalid(fmt.Sprintf("pools[%d]", i), fmt.Sprintf("%.110q is not a valid pool name or is listed twice", pool), "use lower-case letters, digits and - _ . such as default")
		}
	}
	return nil
}

type (
	// KeyCreated creates a key. No event contains its secret or the digest of it.
	KeyCreated struct {
		Key      string `json:"key"` // its public id
		Replaces string `json:"replaces,omitempty"`
		Settings
	}
	// KeyRotated replaces a key by another; the replaced key stays valid until it expires.
	KeyRotated struct {
		By        string    `json:"by"` // the public id of the new key
		ExpiresAt time.Time `json:"expires_at"`
	}
	// KeyRevoked revokes a key immediately.
	KeyRevoked struct {
		Reason string `json:"reason,omitempty"`
	}
)

// EventType implements event.Body.
func (KeyCreated) EventType() event.Type { return "key.created" }
func (KeyRotated) EventType() event.Type { return "key.rotated" }
func (KeyRevoked) EventType() event.Type { return "key.revoked" }

// Events declares every event of this package.
func Events() []event.Definition {
	return []event.Definition{event.Define[KeyCreated](), event.Define[KeyRotated](), event.Define[KeyRevoked]()}
}

// Key is an API key without its secret.
type Key struct {
	Tenant  id.Tenant // zero for the installation
	ID      id.Key
	Version int32
	Public  string // 16 hex digits, in the text of the key
	Settings

	CreatedBy  string
	CreatedAt  time.Time
	ReplacedBy string // the public id of the new key
	RevokedAt  time.Time
}

// Evolve applies one event to the key.
func (k Key) Evolve(e event.Event) (Key, error) {
	if err := event.Check[KeyCreated](e, k.Version, !k.RevokedAt.IsZero()); err != nil {
		return k, err
	}
	switch body := e.Body.(type) {
	case KeyCreated:
		k = Key{Tenant: e.Tenant, ID: id.Of[id.Key](e.Subject), Public: body.Key, Settings: body.Settings, CreatedBy: e.Meta.Actor, CreatedAt: e.At}
	case KeyRotated:
		if k.ReplacedBy != "" {
			return k, e.Unexpected()
		}
		k.ReplacedBy, k.ExpiresAt = body.By, body.ExpiresAt
	case KeyRevoked:
		k.RevokedAt = e.At
	default:
		return k, e.Unexpected()
	}
	k.Version = e.Version
	return k, nil
}

// State is the state of a key.
type State string

// The states of a key.
const (
	Active   State = "ACTIVE"
	Retiring State = "RETIRING" // replaced by another key, and still valid
	Expired  State = "EXPIRED"
	Revoked  State = "REVOKED"
)

// StateAt returns the state of the key at a time.
func (k Key) StateAt(now time.Time) State {
	switch {
	case !k.RevokedAt.IsZero():
		return Revoked
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return Expired
	case k.ReplacedBy != "":
		return Retiring
	}
	return Active
}

// Rotate returns when a key that is rotated now expires: after the overlap, or at its own expiry if
// that is earlier.
func (k Key) Rotate(now time.Time, overlap time.Duration) (time.Time, error) {
	if overlap < 0 || overlap > MaxOverlap {
		return time.Time{}, fault.Invalid("overlap", fmt.Sprintf("is %s, must be 0s to 720h", overlap), "use a duration such as 24h")
	}
	if state := k.StateAt(now); state != Active {
		return time.Time{}, fault.New(fault.Conflict, fmt.Sprintf("key %s is %s", k.Public, state), fault.Field("key"), fault.Remedy("rotate a key that is active, or create one"))
	}
	end := now.Add(overlap)
	if !k.ExpiresAt.IsZero() && k.ExpiresAt.Before(end) {
		end = k.ExpiresAt
	}
	return end, nil
}
