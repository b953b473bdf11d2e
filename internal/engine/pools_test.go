package engine_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/engine"
)

func pushPool() platform.PoolSettings {
	return platform.PoolSettings{Kind: platform.Push, URL: "https://workers.example.com/servo", MaxConcurrency: 3, RatePerSecond: 0.1, TimeoutSeconds: 30}
}

func bare(t testing.TB) (*engine.Engine, *servotest.Database) {
	t.Helper()
	db := servotest.DB(t)
	e := engine.New(db.Store, engine.Config{}, nil)
	t.Cleanup(e.Stop)
	return e, db
}

func TestPools(t *testing.T) {
	t.Parallel()

	t.Run("a pool is created, changed, deleted and created again, and its events contain all of it", func(t *testing.T) {
		t.Parallel()
		e, db := bare(t)
		made, err := e.CreatePool(t.Context(), "gpu", pushPool(), engineMeta)
		require.NoError(t, err)
		require.Equal(t, int32(1), made.Version)

		_, err = e.CreatePool(t.Context(), "gpu", pushPool(), engineMeta)
		require.True(t, fault.Is(err, fault.AlreadyExists), err)

		changed, err := e.ChangePool(t.Context(), "gpu", 1, func(s *platform.PoolSettings) { s.MaxConcurrency = 7 }, engineMeta)
		require.NoError(t, err)
		require.Equal(t, int32(2), changed.Version)
		same, err := e.ChangePool(t.Context(), "gpu", 2, func(*platform.PoolSettings) {}, engineMeta)
		require.NoError(t, err)
		require.Equal(t, int32(2), same.Version, "what changes nothing is no event")

		pools, err := db.Pools(t.Context())
		require.NoError(t, err)
		require.Len(t, pools, 1)
		require.Equal(t, changed.PoolSettings, pools[0].PoolSettings)

		require.NoError(t, e.DeletePool(t.Context(), "gpu", 2, engineMeta))
		verifytest.Clean(t, db)
		again, err := e.CreatePool(t.Context(), "gpu", platform.PoolSettings{Kind: platform.Pull, MaxConcurrency: platform.NoLimit, TimeoutSeconds: 30}, engineMeta)
		require.NoError(t, err)
		require.Equal(t, int32(4), again.Version, "versions continue where they were")
		verifytest.Clean(t, db)
	})

	t.Run("who has read an older version is refused, and so is another kind", func(t *testing.T) {
		t.Parallel()
		e, _ := bare(t)
		_, err := e.CreatePool(t.Context(), "gpu", pushPool(), engineMeta)
		require.NoError(t, err)
		_, err = e.ChangePool(t.Context(), "gpu", 9, func(s *platform.PoolSettings) { s.MaxConcurrency = 7 }, engineMeta)
		require.True(t, fault.Is(err, fault.Conflict), err)
		require.True(t, fault.Is(e.DeletePool(t.Context(), "gpu", 9, engineMeta), fault.Conflict))
		_, err = e.ChangePool(t.Context(), "gpu", 0, func(s *platform.PoolSettings) { s.Kind, s.URL = platform.Pull, "" }, engineMeta)
		require.True(t, fault.Is(err, fault.Conflict), err)
		_, err = e.ChangePool(t.Context(), "gpu", 0, func(s *platform.PoolSettings) { s.URL = "gopher://x" }, engineMeta)
		require.True(t, fault.Is(err, fault.InvalidArgument), err)
		require.True(t, fault.Is(e.DeletePool(t.Context(), "missing", 0, engineMeta), fault.NotFound))
	})

	t.Run("of many who make, change and delete one pool at once each version has one", func(t *testing.T) {
		t.Parallel()
		e, db := bare(t)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for range 10 {
					switch i % 3 {
					case 0:
						_, _ = e.CreatePool(t.Context(), "gpu", pushPool(), engineMeta)
					case 1:
						_, _ = e.ChangePool(t.Context(), "gpu", 0, func(s *platform.PoolSettings) { s.MaxConcurrency++ }, engineMeta)
					default:
						_ = e.DeletePool(t.Context(), "gpu", 0, engineMeta)
					}
				}
			})
		}
		all.Wait()
		verifytest.Clean(t, db)
		require.Equal(t, 1, db.Count(t, `SELECT count(*) FROM servo.signing_keys`), "the first push pool creates one key, however many calls create it")
	})

	t.Run("a pull pool needs no key", func(t *testing.T) {
		t.Parallel()
		e, db := bare(t)
		_, err := e.CreatePool(t.Context(), "cpu", platform.PoolSettings{Kind: platform.Pull, MaxConcurrency: 5, TimeoutSeconds: 30}, engineMeta)
		require.NoError(t, err)
		require.Zero(t, db.Count(t, `SELECT count(*) FROM servo.signing_keys`))
	})
}
