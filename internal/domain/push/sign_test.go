package push_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/push"
)

func TestEnvelope(t *testing.T) {
	t.Parallel()
	key := keyAt(t, 1, start)
	keys := push.Keyring{key}.Envelopes("gpu")

	t.Run("what was signed is read by a worker of the pool", func(t *testing.T) {
		t.Parallel()
		e := full(t, key, start)
		e.Token = 7
		raw := signed(t, e, key, start)
		got, err := push.Verify(raw, push.WorkerKeys(key.Worker("gpu")), start.Add(time.Second))
		require.NoError(t, err)
		require.Equal(t, push.Contract, got.Contract)
		require.Equal(t, e.Task.String()+":3:7", got.IdempotencyKey, "a token never repeats, an attempt may after a restore")
		require.Equal(t, e.Callbacks, got.Callbacks)
		require.JSONEq(t, string(e.Parameters), string(got.Parameters))
		require.Equal(t, key.ID, got.Auth.KeyID)
		require.Equal(t, start.Add(lifetime), got.Auth.ExpiresAt)
		require.Len(t, got.Auth.Nonce, 22)
	})

	t.Run("it is in canonical form, and the signature is over it without the signature", func(t *testing.T) {
		t.Parallel()
		raw := signed(t, full(t, key, start), key, start)
		canonical, err := canon.JSON(raw)
		require.NoError(t, err)
		require.Equal(t, string(canonical), string(raw))
		require.Equal(t, 1, strings.Count(string(raw), `"signature":`))
	})

	t.Run("an empty one has an object of parameters and a list of upstreams", func(t *testing.T) {
		t.Parallel()
		raw := signed(t, push.Envelope{Pool: "gpu"}, key, start)
		require.Contains(t, string(raw), `"parameters":{}`)
		require.Contains(t, string(raw), `"upstream":[]`)
	})

	t.Run("the largest one is sent and accepted, and a larger one is refused", func(t *testing.T) {
		t.Parallel()
		least := len(signed(t, push.Envelope{Pool: "gpu"}, key, start))
		e := push.Envelope{Pool: "gpu", Cursor: strings.Repeat("x", push.MaxEnvelope-least)}
		raw := signed(t, e, key, start)
		require.Len(t, raw, push.MaxEnvelope)
		_, err := push.Verify(raw, keys, start)
		require.NoError(t, err)
		e.Cursor += "x"
		_, err = push.Sign(e, key, start, lifetime, counting(7))
		require.True(t, fault.Is(err, fault.LimitExceeded))
	})

	t.Run("another nonce makes another signature", func(t *testing.T) {
		t.Parallel()
		e := full(t, key, start)
		other, err := push.Sign(e, key, start, lifetime, counting(8))
		require.NoError(t, err)
		require.NotEqual(t, string(signed(t, e, key, start)), string(other))
	})

	for name, c := range map[string]struct {
		keys push.Lookup
		at   time.Time
	}{
		"expired to the second":         {keys, start.Add(lifetime)},
		"from the future":               {keys, start.Add(-push.MaxSkew - time.Second)},
		"of an unknown key":             {push.Keyring{keyAt(t, 2, start)}.Envelopes("gpu"), start},
		"of a revoked key":              {push.Keyring{revoked(key, start)}.Envelopes("gpu"), start},
		"of an expired key":             {push.Keyring{retired(key, start)}.Envelopes("gpu"), start},
		"for another pool":              {push.Keyring{key}.Envelopes("cpu"), start},
		"when there are no keys at all": {push.WorkerKeys(), start},
		"of a key without a secret":     {push.WorkerKeys(push.WorkerKey{ID: key.ID}), start},
	} {
		t.Run("refused "+name, func(t *testing.T) {
			t.Parallel()
			_, err := push.Verify(signed(t, full(t, key, start), key, start), c.keys, c.at)
			refused(t, err)
		})
	}

	t.Run("accepted at the edges of its time", func(t *testing.T) {
		t.Parallel()
		raw := signed(t, full(t, key, start), key, start)
		for _, at := range []time.Time{start.Add(lifetime - time.Nanosecond), start.Add(-push.MaxSkew)} {
			_, err := push.Verify(raw, keys, at)
			require.NoError(t, err)
		}
	})

	t.Run("bytes that are no envelope are refused alike", func(t *testing.T) {
		t.Parallel()
		for _, raw := range []string{"", "{}", "[]", "null", `{"auth":null}`, `{"auth":{}}`, `{"auth":[]}`, `{"auth":{"signature":""}}`, `{"auth":{"signature":7}}`, "{", "\xff", strings.Repeat(" ", push.MaxEnvelope+1)} {
			_, err := push.Verify([]byte(raw), keys, start)
			refused(t, err, raw)
		}
	})

	t.Run("a key that is not accepted does not sign, nor does one without randomness", func(t *testing.T) {
		t.Parallel()
		_, err := push.Sign(push.Envelope{}, revoked(key, start), start, lifetime, counting(1))
		require.True(t, fault.Is(err, fault.Conflict))
		_, err = push.Sign(push.Envelope{}, key, start, lifetime, strings.NewReader("short"))
		require.ErrorContains(t, err, "randomness")
	})

	t.Run("an unknown contract is reported to the holder of the key", func(t *testing.T) {
		t.Parallel()
		raw := resign(t, signed(t, full(t, key, start), key, start), key.Worker("gpu"), func(m map[string]any) { m["contract"] = 2 })
		_, err := push.Verify(raw, keys, start)
		require.ErrorContains(t, err, "unknown contract 2")
	})

	t.Run("the placeholder secret of an unknown key signs nothing", func(t *testing.T) {
		t.Parallel()
		raw := resign(t, signed(t, full(t, key, start), key, start), push.WorkerKey{Secret: make([]byte, 32)}, func(m map[string]any) {
			m["auth"].(map[string]any)["key_id"] = "sk-unknown"
		})
		_, err := push.Verify(raw, keys, start)
		refused(t, err)
	})

	t.Run("fields that are not known are covered, and no obstacle", func(t *testing.T) {
		t.Parallel()
		raw := resign(t, signed(t, full(t, key, start), key, start), key.Worker("gpu"), func(m map[string]any) { m["priority"] = 7 })
		_, err := push.Verify(raw, keys, start)
		require.NoError(t, err)
		_, err = push.Verify([]byte(strings.Replace(string(raw), `"priority":7`, `"priority":8`, 1)), keys, start)
		refused(t, err)
	})
}

func revoked(k push.Key, at time.Time) push.Key { k.RevokedAt = at; return k }
func retired(k push.Key, at time.Time) push.Key { k.ExpiresAt = at; return k }

// resign changes an envelope as one who has the key can. It is written apart from the code
// under test.
func resign(t require.TestingT, raw []byte, key push.WorkerKey, change func(map[string]any)) []byte {
	var m map[string]any
	require.NoError(t, json.Unmarshal(raw, &m))
	change(m)
	auth, ok := m["auth"].(map[string]any)
	require.True(t, ok)
	delete(auth, "signature")
	unsigned, err := canon.Marshal(m)
	require.NoError(t, err)
	auth["signature"] = hmacOf(key.Secret, unsigned)
	out, err := canon.Marshal(m)
	require.NoError(t, err)
	return out
}

// TestTampering changes an envelope at every place of its tree, one at a time.
func TestTampering(t *testing.T) {
	t.Parallel()
	key := keyAt(t, 1, start)
	keys := push.Keyring{key, keyAt(t, 9, start)}.Envelopes("gpu")
	raw := signed(t, full(t, key, start), key, start)
	_, err := push.Verify(raw, keys, start)
	require.NoError(t, err)
	var tree any
	require.NoError(t, json.Unmarshal(raw, &tree))

	t.Run("a field that is changed, removed or added is refused, wherever it is", func(t *testing.T) {
		t.Parallel()
		changes := 0
		for place, variant := range variants(tree) {
			changed, err := canon.Marshal(variant)
			require.NoError(t, err)
			require.NotEqual(t, string(raw), string(changed), place)
			_, err = push.Verify(changed, keys, start)
			refused(t, err, place)
			changes++
		}
		require.Greater(t, changes, 200)
	})

	t.Run("another valid key's id and another time are refused", func(t *testing.T) {
		t.Parallel()
		for field, value := range map[string]string{
			"key_id": keyAt(t, 9, start).ID, "expires_at": "2027-01-01T00:00:00Z", "issued_at": "2026-08-01T12:00:01Z", "nonce": "AAAAAAAAAAAAAAAAAAAAAA",
		} {
			var m map[string]any
			require.NoError(t, json.Unmarshal(raw, &m))
			auth, ok := m["auth"].(map[string]any)
			require.True(t, ok)
			auth[field] = value
			changed, err := canon.Marshal(m)
			require.NoError(t, err)
			_, err = push.Verify(changed, keys, start)
			refused(t, err, field)
		}
	})

	t.Run("the same value in another spelling is refused", func(t *testing.T) {
		t.Parallel()
		for from, to := range map[string]string{
			`"attempt":3`: `"attempt":3.0`, `{"asset"`: `{ "asset"`, `"contract":1`: `"contract":1,"contract":1`, `région`: `r\u00e9gion`, `"limit":2.5`: `"limit":2.50`,
		} {
			changed := strings.Replace(string(raw), from, to, 1)
			require.NotEqual(t, string(raw), changed, from)
			_, err := push.Verify([]byte(changed), keys, start)
			refused(t, err, from)
		}
	})

	t.Run("any changed byte is refused", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			changed := slices.Clone(raw)
			at := rapid.IntRange(0, len(raw)-1).Draw(t, "at")
			changed[at] ^= rapid.ByteRange(1, 255).Draw(t, "by")
			_, err := push.Verify(changed, keys, start)
			refused(t, err)
		})
	})
}

// variants are all trees that differ from a tree at one place, with the place.
func variants(tree any) map[string]any {
	out := map[string]any{}
	switch v := tree.(type) {
	case map[string]any:
		for key, element := range v {
			without := maps.Clone(v)
			delete(without, key)
			out[fmt.Sprintf(".%s removed", key)] = without
			renamed := maps.Clone(without)
			renamed[key+"_"] = element
			out[fmt.Sprintf(".%s renamed", key)] = renamed
			for place, variant := range variants(element) {
				with := maps.Clone(v)
				with[key] = variant
				out["."+key+place] = with
			}
		}
		more := maps.Clone(v)
		more["added"] = 1
		out[" added"] = more
		out[" replaced"] = nil
	case []any:
		for i, element := range v {
			out[fmt.Sprintf("[%d] removed", i)] = slices.Delete(slices.Clone(v), i, i+1)
			for place, variant := range variants(element) {
				with := slices.Clone(v)
				with[i] = variant
				out[fmt.Sprintf("[%d]%s", i, place)] = with
			}
		}
		out[" added"] = append(slices.Clone(v), 1)
		out[" replaced"] = nil
	case string:
		out[" longer"], out[" other"], out[" null"] = v+"x", "y"+v, nil
	case float64:
		out[" more"], out[" less"], out[" text"] = v+1, v-1, fmt.Sprint(v)
	case bool:
		out[" not"], out[" null"] = !v, nil
	case nil:
		out[" not null"] = 0
	}
	return out
}
