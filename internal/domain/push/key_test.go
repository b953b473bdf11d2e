package push_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/push"
)

func hmacOf(secret, message []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write(message)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func TestKey(t *testing.T) {
	t.Parallel()
	key := keyAt(t, 1, start)

	t.Run("a secret is never printed, logged or encoded", func(t *testing.T) {
		t.Parallel()
		var log strings.Builder
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", key, "secret", key.Secret, "worker", key.Worker("gpu"))
		encoded, err := json.Marshal(key)
		require.NoError(t, err)
		for _, text := range []string{fmt.Sprint(key), fmt.Sprintf("%+v %#v %s", key, key, key.Secret), log.String(), string(encoded)} {
			require.Contains(t, text, "[secret]")
			require.NotContains(t, text, base64.StdEncoding.EncodeToString(key.Secret))
			require.NotContains(t, text, fmt.Sprintf("%d", []byte(key.Secret)[:4]))
		}
	})

	t.Run("a worker's key is read as it was shown", func(t *testing.T) {
		t.Parallel()
		worker := key.Worker("gpu")
		got, err := push.ParseWorkerKey(" " + worker.Text() + "\n")
		require.NoError(t, err)
		require.Equal(t, worker.ID, got.ID)
		require.True(t, hmac.Equal(worker.Secret, got.Secret))
		require.False(t, hmac.Equal(worker.Secret, key.Worker("cpu").Secret), "each pool has its own")
		require.False(t, hmac.Equal(worker.Secret, key.Secret))
	})

	t.Run("what is no key is refused without repeating it", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"", "sk-1", "sk-1:", ":" + strings.Repeat("A", 43), "sk-1:hunter2", "sk-1:" + strings.Repeat("A", 42) + "B"} {
			_, err := push.ParseWorkerKey(text)
			require.True(t, fault.Is(err, fault.InvalidArgument), text)
			require.NotContains(t, err.Error(), "hunter2")
		}
	})

	t.Run("keys are made of the randomness that is given", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, key, keyAt(t, 1, start))
		require.NotEqual(t, key.ID, keyAt(t, 2, start).ID)
		_, err := push.NewKey(strings.NewReader("short"), start)
		require.Error(t, err)
	})
}

func TestKeyring(t *testing.T) {
	t.Parallel()
	first, second := keyAt(t, 1, start), keyAt(t, 2, start.Add(time.Hour))

	signs := func(t *testing.T, now time.Time, keys ...push.Key) string {
		t.Helper()
		key, err := push.Keyring(keys).Signing(now)
		if err != nil {
			require.True(t, fault.Is(err, fault.Conflict))
		}
		return key.ID
	}

	t.Run("the newest signs, in whatever order they come", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, second.ID, signs(t, start.Add(2*time.Hour), first, second))
		require.Equal(t, second.ID, signs(t, start.Add(2*time.Hour), second, first))
	})
	t.Run("the retired one signs until the new one is active", func(t *testing.T) {
		t.Parallel()
		next := second
		next.ActiveAt = start.Add(3 * time.Hour)
		old := retired(first, start.Add(24*time.Hour))
		require.Equal(t, first.ID, signs(t, start.Add(3*time.Hour-time.Nanosecond), old, next))
		require.Equal(t, second.ID, signs(t, start.Add(3*time.Hour), old, next))
	})
	t.Run("a revoked or expired one does not sign, though it is the only one", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, signs(t, start, revoked(first, start.Add(time.Hour))), "revoked is revoked, at any time of the clock")
		require.Empty(t, signs(t, start, retired(first, start)))
		require.Empty(t, signs(t, start))
		require.Equal(t, first.ID, signs(t, start.Add(2*time.Hour), first, revoked(second, start)))
	})
	t.Run("it knows whom it knows", func(t *testing.T) {
		t.Parallel()
		ring := push.Keyring{revoked(first, start)}
		require.True(t, ring.Has(first.ID))
		require.False(t, ring.Has(second.ID))
	})
}

// TestRotation rotates keys while envelopes and callbacks are on their way.
func TestRotation(t *testing.T) {
	t.Parallel()
	const overlap, announce = 3 * time.Hour, 10 * time.Minute

	type sent struct {
		envelope []byte
		callback *url.URL
		until    time.Time // of the callback
		signed   time.Time
		key      string
	}

	rapid.Check(t, func(t *rapid.T) {
		now := start
		ring := push.Keyring{keyAt(t, 0, now)}
		known := []push.WorkerKey{ring[0].Worker("gpu")} // what the worker has been given
		var inFlight []sent
		revokedIDs := map[string]bool{}
		rotated := now

		verify := func(s sent) {
			_, err := push.Verify(s.envelope, push.WorkerKeys(known...), now)
			if now.Before(s.signed.Add(lifetime)) {
				require.NoError(t, err, push.ReasonOf(err))
			} else {
				refused(t, err)
			}
			_, err = push.VerifyCallback(http.MethodPost, s.callback, ring, now)
			if now.Before(s.until) && !revokedIDs[s.key] {
				require.NoError(t, err, push.ReasonOf(err))
			} else {
				refused(t, err)
			}
		}

		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				key, err := ring.Signing(now)
				require.NoError(t, err)
				s := sent{envelope: signed(t, push.Envelope{Pool: "gpu"}, key, now), signed: now.Truncate(time.Second), until: now.Add(push.CallbackLifetime).Truncate(time.Second), key: key.ID}
				text, err := push.SignCallback(base, http.MethodPost, callbackOf(now), key, s.until)
				require.NoError(t, err)
				s.callback, err = url.Parse(text)
				require.NoError(t, err)
				inFlight = append(inFlight, s)
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(30*time.Minute)).Draw(t, "for")))
			},
			"rotate": func(t *rapid.T) {
				if now.Sub(rotated) < announce {
					t.Skip("the last one is not active yet")
				}
				rotated = now
				for i := range ring {
					if ring[i].ExpiresAt.IsZero() {
						ring[i].ExpiresAt = now.Add(overlap)
					}
				}
				key := keyAt(t, byte(len(ring)), now)
				key.ActiveAt = now.Add(announce)
				ring = append(ring, key)
				known = append(known, key.Worker("gpu")) // some time before it signs
			},
			"revoke an old one": func(t *rapid.T) {
				at := rapid.IntRange(0, len(ring)-1).Draw(t, "which")
				if signing, err := ring.Signing(now); err != nil || signing.ID == ring[at].ID || now.Before(ring[at].ActiveAt) {
					t.Skip("it signs")
				}
				ring[at].RevokedAt = now
				revokedIDs[ring[at].ID] = true
			},
			"arrive": func(t *rapid.T) {
				if len(inFlight) == 0 {
					t.Skip("nothing is on its way")
				}
				verify(rapid.SampledFrom(inFlight).Draw(t, "which"))
			},
		})
	})
}
