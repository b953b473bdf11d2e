package engine_test

import (
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/engine"
)

// signed is a callback as a server signs it now.
func signed(t testing.TB, e *engine.Engine) *url.URL {
	t.Helper()
	keys, now, err := e.Keyring(t.Context())
	require.NoError(t, err)
	key, err := keys.Signing(now)
	require.NoError(t, err)
	c := push.Callback{Task: id.Of[id.Task](uuid.New()), Attempt: 1, Action: push.ActionStatus, Token: 7}
	text, err := push.SignCallback("http://servo", push.CallbackMethod, c, key, now.Add(time.Hour))
	require.NoError(t, err)
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u
}

func verified(t testing.TB, e *engine.Engine, u *url.URL) error {
	t.Helper()
	keys, now, err := e.KeyringWith(t.Context(), u.Query().Get("key"))
	require.NoError(t, err)
	_, err = push.VerifyCallback(push.CallbackMethod, u, keys, now)
	return err
}

func TestKeys(t *testing.T) {
	t.Parallel()

	t.Run("a rotation leaves time to configure the workers, then the new key signs and the old one is accepted", func(t *testing.T) {
		t.Parallel()
		e, db := bare(t)
		now := time.Now().UTC().Truncate(time.Microsecond)
		db.SetClock(t, now)
		first, err := e.CreateKey(t.Context(), 0, engineMeta)
		require.NoError(t, err)
		now = now.Add(time.Minute) // of two keys of one moment neither is newer
		db.SetClock(t, now)
		second, err := e.RotateKeys(t.Context(), time.Hour, 24*time.Hour, engineMeta)
		require.NoError(t, err)

		keys, at, err := e.Keyring(t.Context())
		require.NoError(t, err)
		key, err := keys.Signing(at)
		require.NoError(t, err)
		require.Equal(t, first.ID, key.ID)
		key, err = keys.Signing(now.Add(time.Hour + time.Second))
		require.NoError(t, err)
		require.Equal(t, second.ID, key.ID)

		rows, _, err := db.SigningKeys(t.Context())
		require.NoError(t, err)
		require.Equal(t, now.Add(25*time.Hour), rows[0].ExpiresAt)
		require.Equal(t, platform.KeyRetiring, rows[0].StateAt(now))
		require.Equal(t, platform.KeyPending, rows[1].StateAt(now))
		verifytest.Clean(t, db)
	})

	t.Run("a revoked key is refused, by other servers when they look again; revoking again is nothing", func(t *testing.T) {
		t.Parallel()
		e, db := bare(t)
		other := engine.New(db.Store, engine.Config{}, nil)
		t.Cleanup(other.Stop)
		key, err := e.CreateKey(t.Context(), 0, engineMeta)
		require.NoError(t, err)
		u := signed(t, e)
		require.NoError(t, verified(t, e, u))
		require.NoError(t, verified(t, other, u))

		_, err = e.RevokeKey(t.Context(), key.ID, "leaked", engineMeta)
		require.NoError(t, err)
		require.ErrorIs(t, verified(t, e, u), push.ErrRefused, "here at once")
		require.Eventually(t, func() bool { return verified(t, other, u) != nil }, 30*time.Second, 10*time.Millisecond)

		again, err := e.RevokeKey(t.Context(), key.ID, "leaked", engineMeta)
		require.NoError(t, err)
		require.Equal(t, int32(2), again.Version)
		_, err = e.RevokeKey(t.Context(), "sk-missing", "", engineMeta)
		require.True(t, fault.Is(err, fault.NotFound), err)
		verifytest.Clean(t, db)
	})

	t.Run("rotations under load refuse no valid signature, whichever server signs and verifies", func(t *testing.T) {
		t.Parallel()
		e, db := bare(t)
		servers := []*engine.Engine{e, engine.New(db.Store, engine.Config{}, nil), engine.New(db.Store, engine.Config{}, nil)}
		t.Cleanup(servers[1].Stop)
		t.Cleanup(servers[2].Stop)
		_, err := e.CreateKey(t.Context(), 0, engineMeta)
		require.NoError(t, err)

		var stop atomic.Bool
		var load sync.WaitGroup
		refused := make(chan error, 100)
		for i := range 6 {
			load.Go(func() {
				for !stop.Load() {
					if err := verified(t, servers[(i+1)%3], signed(t, servers[i%3])); err != nil {
						refused <- err
						return
					}
				}
			})
		}
		for range 40 { // each key signs at once: no other server knows it yet
			_, err := e.RotateKeys(t.Context(), 0, time.Minute, engineMeta)
			require.NoError(t, err)
		}
		stop.Store(true)
		load.Wait()
		close(refused)
		require.NoError(t, <-refused)
		verifytest.Clean(t, db)
	})

	t.Run("the secret is written to its row only", func(t *testing.T) {
		t.Parallel()
		e, db := bare(t)
		key, err := e.CreateKey(t.Context(), 0, engineMeta)
		require.NoError(t, err)
		require.Equal(t, 1, db.Count(t, `SELECT count(*) FROM servo.signing_keys WHERE secret = $1`, []byte(key.Secret)))
		require.Zero(t, db.Count(t, `SELECT count(*) FROM servo.platform_events WHERE data ? 'secret'`))
		require.Equal(t, 1, db.Count(t, `SELECT count(*) FROM servo.platform_events WHERE data - 'signs_from' = '{}'`))
	})
}
