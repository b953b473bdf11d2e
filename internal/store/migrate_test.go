package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/store"
)

func TestMigrate(t *testing.T) {
	t.Parallel()

	open := func(t *testing.T) *store.Store {
		t.Helper()
		s, err := store.Open(t.Context(), store.Options{URL: servotest.Empty(t, "template0"), MaxConns: 20})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		return s
	}

	t.Run("ten servers that start at once migrate once", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		counts := make([]int, 10)
		group, ctx := errgroup.WithContext(t.Context())
		for i := range counts {
			group.Go(func() (err error) {
				counts[i], err = s.Migrate(ctx)
				return err
			})
		}
		require.NoError(t, group.Wait())
		total := 0
		for _, n := range counts {
			total += n
		}
		status, err := s.MigrationStatus(t.Context())
		require.NoError(t, err)
		require.Len(t, status, total)
		for _, m := range status {
			require.True(t, m.Applied && !m.Changed && !m.Unknown, m)
		}
	})

	t.Run("a changed file and a newer schema are refused", func(t *testing.T) {
		t.Parallel()
		db := servotest.DB(t)
		db.Exec(t, `UPDATE servo.migration_checksums SET sha256 = 'other' WHERE version = 2`)
		_, err := db.Migrate(t.Context())
		require.True(t, fault.Is(err, fault.Conflict), err)
		require.ErrorContains(t, err, "migration 2")

		newer := servotest.DB(t)
		newer.Exec(t, `INSERT INTO servo.migration_checksums (version, name, sha256) VALUES (9999, 'later', 'x')`)
		_, err = newer.Migrate(t.Context())
		require.True(t, fault.Is(err, fault.Conflict), err)
		require.ErrorContains(t, err, "newer version")
	})
}
