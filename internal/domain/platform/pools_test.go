package platform_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/platform"
)

func pushPool() platform.PoolSettings {
	return platform.PoolSettings{Kind: platform.Push, URL: "https://workers.example.com/servo", MaxConcurrency: platform.NoLimit, TimeoutSeconds: 30}
}

func TestPoolSettings(t *testing.T) {
	t.Parallel()
	require.NoError(t, pushPool().Validate())
	require.NoError(t, platform.PoolSettings{Kind: platform.Pull, MaxConcurrency: 5, TimeoutSeconds: 30}.Validate())

	for field, spoil := range map[string]func(*platform.PoolSettings){
		"kind":            func(s *platform.PoolSettings) { s.Kind = "poll" },
		"max_concurrency": func(s *platform.PoolSettings) { s.MaxConcurrency = -2 },
		"rate_per_second": func(s *platform.PoolSettings) { s.RatePerSecond = float32(math.NaN()) },
		"timeout":         func(s *platform.PoolSettings) { s.TimeoutSeconds = 0 },
	} {
		t.Run("a wrong "+field+" is refused by its name, with what helps", func(t *testing.T) {
			t.Parallel()
			s := pushPool()
			spoil(&s)
			refused, ok := fault.As(s.Validate())
			require.True(t, ok)
			require.Equal(t, field, refused.Field)
			require.NotEmpty(t, refused.Remedy)
		})
	}

	t.Run("an address that cannot be called, or that would show a secret, is refused", func(t *testing.T) {
		t.Parallel()
		for _, address := range []string{
			"", "workers.example.com", "ftp://workers.example.com", "https://", "https://:80/x", "https://ann:secret@workers.example.com",
			"https://workers.example.com/#x", "http://[::1", "https://workers.example.com/" + strings.Repeat("x", 2000),
		} {
			s := pushPool()
			s.URL = address
			refused, ok := fault.As(s.Validate())
			require.True(t, ok, address)
			require.Equal(t, "url", refused.Field, address)
		}
	})

	t.Run("what is for push pools is refused on a pull pool, all of it at once", func(t *testing.T) {
		t.Parallel()
		s := pushPool()
		s.Kind, s.RatePerSecond = platform.Pull, 1
		refused, ok := fault.As(s.Validate())
		require.True(t, ok)
		require.Len(t, refused.Violations(), 2)
	})

	t.Run("a pool is named as manifests name it", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, platform.ValidatePoolName("name", "gpu-1.large_a"))
		for _, name := range []string{"", "GPU", "-a", "a b", " ready", strings.Repeat("a", 101)} {
			require.Error(t, platform.ValidatePoolName("name", name), name)
		}
	})
}

// TestPoolLife generates histories: a command succeeds if the row allows it, versions never
// restart, and the settings are the last ones saved, through JSON and back.
func TestPoolLife(t *testing.T) {
	t.Parallel()
	codec := event.NewCodec(platform.Events()...)
	rapid.Check(t, func(t *rapid.T) {
		var en platform.Entity
		at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
		live := false
		for i := range rapid.IntRange(1, 20).Draw(t, "events") {
			settings := pushPool()
			settings.MaxConcurrency, settings.RatePerSecond = int32(i), rapid.Float32Range(0, 1000).Draw(t, "rate")
			body := rapid.SampledFrom([]event.Body{
				platform.PoolCreated{PoolSettings: settings}, platform.PoolUpdated{PoolSettings: settings}, platform.PoolDeleted{},
			}).Draw(t, "body")
			schema, data, err := codec.Encode(body)
			require.NoError(t, err)
			read, err := codec.Decode(body.EventType(), schema, json.RawMessage(data))
			require.NoError(t, err)
			require.Equal(t, body, read)

			at = at.Add(time.Second)
			next, err := en.Evolve(platform.Event{Subject: "pool/gpu", Version: en.Version + 1, At: at, Body: read})
			_, creates := body.(platform.PoolCreated)
			if creates == live {
				require.Error(t, err)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, en.Version+1, next.Version)
			_, deletes := body.(platform.PoolDeleted)
			live = !deletes
			require.Equal(t, live, next.Pool.Live)
			if live {
				require.Equal(t, settings, next.Pool.PoolSettings)
				require.Equal(t, creates, next.Pool.CreatedAt.Equal(at))
			}
			en = next
		}
	})
}

func TestKeyLife(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	evolve := func(t *testing.T, en platform.Entity, body event.Body) (platform.Entity, error) {
		t.Helper()
		return en.Evolve(platform.Event{Subject: "signing_key/sk-1", Version: en.Version + 1, At: at, Body: body})
	}

	t.Run("a key waits, signs, retires and expires", func(t *testing.T) {
		t.Parallel()
		en, err := evolve(t, platform.Entity{}, platform.KeyCreated{SignsFrom: at.Add(time.Minute)})
		require.NoError(t, err)
		require.Equal(t, platform.KeyPending, en.Key.StateAt(at))
		require.Equal(t, platform.KeyActive, en.Key.StateAt(at.Add(time.Minute)))
		en, err = evolve(t, en, platform.KeyRetired{ExpiresAt: at.Add(time.Hour)})
		require.NoError(t, err)
		require.Equal(t, platform.KeyRetiring, en.Key.StateAt(at.Add(time.Minute)))
		require.Equal(t, platform.KeyExpired, en.Key.StateAt(at.Add(time.Hour)))
		en, err = evolve(t, en, platform.KeyRevoked{Reason: "leaked"})
		require.NoError(t, err, "an expired key may have leaked too")
		require.Equal(t, platform.KeyGone, en.Key.StateAt(at))
	})

	t.Run("what cannot happen is refused", func(t *testing.T) {
		t.Parallel()
		created, retired, revoked := platform.KeyCreated{SignsFrom: at}, platform.KeyRetired{ExpiresAt: at}, platform.KeyRevoked{}
		for _, life := range [][]event.Body{
			{retired},
			{revoked},
			{created, created},
			{created, retired, retired},
			{created, revoked, revoked},
			{created, revoked, retired},
			{platform.PoolDeleted{}},
		} {
			var en platform.Entity
			var err error
			for _, body := range life {
				require.NoError(t, err)
				en, err = evolve(t, en, body)
			}
			require.Error(t, err, "%v", life)
		}
	})

	t.Run("a rotation that would refuse good signatures is refused", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, platform.CheckRotation(platform.DefaultKeyLead, platform.DefaultKeyOverlap))
		require.NoError(t, platform.CheckRotation(0, platform.MinKeyOverlap))
		require.Error(t, platform.CheckRotation(-time.Second, time.Hour))
		require.Error(t, platform.CheckRotation(0, time.Second))
		require.Error(t, platform.CheckRotation(0, 31*24*time.Hour))
	})
}
