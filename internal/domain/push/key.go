package push

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

// secretBytes is the length of every secret: that of the hash it is used with.
const secretBytes = sha256.Size

// Secret is never printed, logged or encoded.
type Secret []byte

const redacted = "[secret]"

// String hides the secret.
func (Secret) String() string { return redacted }

// GoString hides the secret.
func (Secret) GoString() string { return redacted }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Key is a signing key of the servers. Its secret never leaves them: workers receive a key that is
// derived from it for their pool (Worker), and callbacks are signed with another derived key. So a
// worker can forge neither a callback of another task nor an envelope for another pool.
type Key struct {
	ID        string
	Secret    Secret
	CreatedAt time.Time
	// ActiveAt is when the key begins to sign: later than CreatedAt to leave time to distribute it
	// to the workers. Zero is immediately.
	ActiveAt time.Time
	// ExpiresAt is set when a newer key replaces it: until then the key is accepted.
	ExpiresAt time.Time
	// RevokedAt, once set, means that the key is no longer accepted.
	RevokedAt time.Time
}

// NewKey creates a key.
func NewKey(random io.Reader, now time.Time) (Key, error) {
	var raw [6 + secretBytes]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return Key{}, fmt.Errorf("read randomness for a signing key: %w", err)
	}
	return Key{ID: "sk-" + hex.EncodeToString(raw[:6]), Secret: Secret(raw[6:]), CreatedAt: now}, nil
}

// usable reports whether the key is accepted at a time.
func (k Key) usable(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt)) && len(k.Secret) >= secretBytes
}

// The names of derived keys. They are part of the contract.
const (
	infoEnvelope = "servo push envelope v1 "
	infoCallback = "servo push callback v1"
)

func (k Key) derive(info string) Secret {
	derived, err := hkdf.Key(sha256.New, k.Secret, nil, info, secretBytes)
	if err != nil { // only for lengths that a hash cannot produce
		panic(fmt.Sprintf("derive a key: %v", err))
	}
	return derived
}

// Worker returns the key for the workers of a pool.
func (k Key) Worker(pool string) WorkerKey {
	return WorkerKey{ID: k.ID, Secret: k.derive(infoEnvelope + pool)}
}

// WorkerKey is the key with which a worker verifies envelopes.
type WorkerKey struct {
	ID     string
	Secret Secret
}

// Text returns the key as operators configure it at a worker: id and secret.
func (k WorkerKey) Text() string { return k.ID + ":" + base64.RawURLEncoding.EncodeToString(k.Secret) }

// ParseWorkerKey parses a key that Text wrote. Its error does not contain the input.
func ParseWorkerKey(text string) (WorkerKey, error) {
	keyID, secret, found := strings.Cut(strings.TrimSpace(text), ":")
	raw, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	if !found || keyID == "" || err != nil || len(raw) != secretBytes {
		return WorkerKey{}, fault.Invalid("key", "is not a key of a push pool", "copy it as it was shown: id and secret, separated by a colon")
	}
	return WorkerKey{ID: keyID, Secret: raw}, nil
}

// Lookup returns the secret of a key that is accepted at a time.
type Lookup func(keyID string, now time.Time) (Secret, bool)

// WorkerKeys looks a key up among the keys of a worker.
func WorkerKeys(keys ...WorkerKey) Lookup {
	return func(keyID string, _ time.Time) (Secret, bool) {
		for _, k := range keys {
			if k.ID == keyID && len(k.Secret) >= secretBytes {
				return k.Secret, true
			}
		}
		return nil, false
	}
}

// Keyring has all keys of an installation, including those that are no longer accepted.
type Keyring []Key

// Signing returns the key to sign with: the newest active one. A retired key signs until its
// successor is active.
func (r Keyring) Signing(now time.Time) (Key, error) {
	var newest Key
	for _, k := range r {
		if !k.usable(now) || now.Before(k.ActiveAt) {
			continue
		}
		if newest.ID == "" || k.CreatedAt.After(newest.CreatedAt) || k.CreatedAt.Equal(newest.CreatedAt) && k.ID > newest.ID {
			newest = k
		}
	}
	if newest.ID == "" {
		return Key{}, fault.New(fault.Conflict, "no signing key exists",
			fault.Remedy("create one: servo signing-keys create"), fault.Value("keys", len(r)))
	}
	return newest, nil
}

// Has reports whether a key is in the keyring, accepted or not: an unknown one may be new.
func (r Keyring) Has(keyID string) bool {
	for _, k := range r {
		if k.ID == keyID {
			return true
		}
	}
	return false
}

// Envelopes looks up the keys of a pool's envelopes.
func (r Keyring) Envelopes(pool string) Lookup { return r.lookup(infoEnvelope + pool) }

func (r Keyring) lookup(info string) Lookup {
	return func(keyID string, now time.Time) (Secret, bool) {
		for _, k := range r {
			if k.ID == keyID && k.usable(now) {
				return k.derive(info), true
			}
		}
		return nil, false
	}
}
