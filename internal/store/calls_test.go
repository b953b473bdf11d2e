package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

func callOf(key string) store.Call {
	return store.Call{Key: key, Method: "Test/Call", Digest: make([]byte, 32)}
}

// make is an effect that is easily checked: a tenant.
func (w *world) make(ctx context.Context, name string) error {
	return w.Engine(ctx, func(ctx context.Context, tx *Tx) error {
		return tx.InsertTenant(ctx, id.New[id.Tenant](w.mint), name, 1, tenant.DefaultQuotas(), w.now)
	})
}

func TestCallTx(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.account(t, "acme").tenant
	there := func(name string) int {
		return w.Count(t, `SELECT count(*) FROM servo.tenants WHERE name = $1`, name)
	}
	kept := func(t *testing.T, key string) bool {
		t.Helper()
		_, _, known, err := w.AnsweredCall(t.Context(), callOf(key))
		require.NoError(t, err)
		return known
	}

	t.Run("the effect is seen by its call alone until the answer is kept", func(t *testing.T) { //nolint:paralleltest // connections are counted
		claim := w.CallTx(callOf("one"))
		ctx := claim.With(t.Context())
		require.True(t, store.InCall(ctx))
		require.False(t, store.Uncommitted(ctx))
		done := 0
		store.AfterCommit(ctx, func() { done++ })
		require.Equal(t, 1, done, "nothing waits for a commit yet")
		require.NoError(t, w.make(ctx, "one"))
		require.True(t, store.Uncommitted(ctx))
		store.AfterCommit(ctx, func() { done++ })

		require.Zero(t, there("one"))
		found, err := w.TenantByName(ctx, "one") // as the engine
		require.NoError(t, err)
		view, err := w.GetTenant(ctx, found) // as a tenant
		require.NoError(t, err)
		require.Equal(t, "one", view.Name)
		_, err = w.GetTenant(ctx, owner)
		require.NoError(t, err, "and as another one, whose rows it sees then")
		require.NoError(t, w.Snapshot(ctx, func(ctx context.Context, tx *Tx) error {
			_, err := tx.Clock(ctx)
			return err
		}))
		require.Equal(t, 1, done)

		ok, err := claim.Keep(t.Context(), []byte("answer"))
		require.NoError(t, err)
		require.True(t, ok)
		claim.Done()
		require.Equal(t, 2, done)
		claim.Abandon(t.Context())
		require.Equal(t, 1, there("one"))
		answer, same, known, err := w.AnsweredCall(t.Context(), callOf("one"))
		require.NoError(t, err)
		require.True(t, same && known)
		require.Equal(t, "answer", string(answer))
		other := callOf("one")
		other.Digest[0]++
		_, same, known, err = w.AnsweredCall(t.Context(), other)
		require.NoError(t, err)
		require.True(t, known && !same)
	})

	t.Run("tenants stay apart in it", func(t *testing.T) { //nolint:paralleltest // connections are counted
		claim := w.CallTx(callOf("apart"))
		defer claim.Abandon(t.Context())
		ctx := claim.With(t.Context())
		require.NoError(t, w.make(ctx, "apart"))
		require.NoError(t, w.Tenant(ctx, owner.String(), func(ctx context.Context, tx *Tx) error {
			var role string
			var seen int
			require.NoError(t, tx.Raw().QueryRow(ctx, `SELECT current_user, (SELECT count(*) FROM servo.tenants)`).Scan(&role, &seen))
			require.Equal(t, "servo_tenant", role)
			require.Equal(t, 1, seen)
			return nil
		}))
		require.NoError(t, w.Engine(ctx, func(ctx context.Context, tx *Tx) error {
			var role string
			require.NoError(t, tx.Raw().QueryRow(ctx, `SELECT current_user`).Scan(&role))
			require.Equal(t, "servo_engine", role)
			return nil
		}))
	})

	t.Run("a further effect is a part of it, and one that fails leaves the first", func(t *testing.T) { //nolint:paralleltest // connections are counted
		claim := w.CallTx(callOf("further"))
		defer claim.Abandon(t.Context())
		ctx := claim.With(t.Context())
		require.NoError(t, w.make(ctx, "further-1"))
		require.Error(t, w.make(ctx, "further-1"), "there is one of this name")
		require.NoError(t, w.make(ctx, "further-2"))
		require.Zero(t, there("further-2"))
		ok, err := claim.Keep(t.Context(), nil)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, []int{1, 1}, []int{there("further-1"), there("further-2")})
	})

	t.Run("an effect that fails can be tried again", func(t *testing.T) { //nolint:paralleltest // connections are counted
		claim := w.CallTx(callOf("tried"))
		defer claim.Abandon(t.Context())
		ctx := claim.With(t.Context())
		require.Error(t, w.make(ctx, "acme"))
		require.False(t, store.Uncommitted(ctx))
		require.NoError(t, w.make(ctx, "tried"))
		ok, err := claim.Keep(t.Context(), nil)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, 1, there("tried"))
	})

	t.Run("what is abandoned never was", func(t *testing.T) { //nolint:paralleltest // connections are counted
		claim := w.CallTx(callOf("abandoned"))
		ctx := claim.With(t.Context())
		require.NoError(t, w.make(ctx, "abandoned"))
		store.AfterCommit(ctx, func() { t.Error("it was not committed") })
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		claim.Abandon(gone)
		claim.Done()
		require.Zero(t, there("abandoned"))
		require.False(t, kept(t, "abandoned"))
		require.Zero(t, w.PoolStats().Acquired)
	})

	t.Run("of two at once one has the effect, and the other gets its answer", func(t *testing.T) { //nolint:paralleltest // connections are counted
		first, twin := w.CallTx(callOf("both")), w.CallTx(callOf("both"))
		defer first.Abandon(t.Context())
		defer twin.Abandon(t.Context())
		require.NoError(t, w.make(first.With(t.Context()), "both-1"))
		require.Error(t, w.make(twin.With(t.Context()), "both-2"))
		require.True(t, twin.Duplicate())
		require.False(t, first.Duplicate())
		ok, err := first.Keep(t.Context(), nil)
		require.NoError(t, err)
		require.True(t, ok)
		later := w.CallTx(callOf("both"))
		defer later.Abandon(t.Context())
		require.Error(t, w.make(later.With(t.Context()), "both-2"))
		require.False(t, later.Duplicate(), "it was answered")
		require.Zero(t, there("both-2"))
	})

	t.Run("an answer without an effect of its own is kept, unless there is one", func(t *testing.T) { //nolint:paralleltest // connections are counted
		for i, want := range []bool{true, false} {
			claim := w.CallTx(callOf("without"))
			ok, err := claim.Keep(t.Context(), []byte{byte(i)})
			require.NoError(t, err)
			require.Equal(t, want, ok)
			claim.Abandon(t.Context())
		}
	})

	t.Run("an effect whose key was taken by a call without one is taken back", func(t *testing.T) { //nolint:paralleltest // connections are counted
		claim := w.CallTx(callOf("taken"))
		defer claim.Abandon(t.Context())
		require.NoError(t, w.make(claim.With(t.Context()), "taken"))
		ok, err := w.CallTx(callOf("taken")).Keep(t.Context(), nil)
		require.NoError(t, err)
		require.True(t, ok)
		ok, err = claim.Keep(t.Context(), nil)
		require.NoError(t, err)
		require.False(t, ok)
		require.Zero(t, there("taken"))
	})

	t.Run("two concurrent uses are reported", func(t *testing.T) { //nolint:paralleltest // connections are counted
		claim := w.CallTx(callOf("busy"))
		defer claim.Abandon(t.Context())
		ctx := claim.With(t.Context())
		require.NoError(t, w.make(ctx, "busy"))
		require.ErrorContains(t, w.Tenant(ctx, owner.String(), func(ctx context.Context, _ *Tx) error {
			_, err := w.GetTenant(ctx, owner)
			return err
		}), "used concurrently")
	})

	t.Run("a read that breaks the transaction lets nothing be kept", func(t *testing.T) { //nolint:paralleltest // connections are counted
		claim := w.CallTx(callOf("broken"))
		defer claim.Abandon(t.Context())
		ctx := claim.With(t.Context())
		require.NoError(t, w.make(ctx, "broken"))
		require.Error(t, w.Tenant(ctx, owner.String(), func(ctx context.Context, tx *Tx) error {
			_, err := tx.Raw().Exec(ctx, `SELECT 1/0`)
			return err
		}))
		_, err := claim.Keep(t.Context(), nil)
		require.Error(t, err)
		require.Zero(t, there("broken"))
		require.Zero(t, w.PoolStats().Acquired)
	})

	t.Run("an effect that panics gives its connection back", func(t *testing.T) { //nolint:paralleltest // connections are counted
		claim := w.CallTx(callOf("panics"))
		defer claim.Abandon(t.Context())
		require.Panics(t, func() {
			_ = w.Engine(claim.With(t.Context()), func(context.Context, *Tx) error { panic("lost") })
		})
		require.Zero(t, w.PoolStats().Acquired)
	})
	require.Zero(t, w.PoolStats().Acquired)
}

func TestAnsweredCallsAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	w.SetClock(t, noon)
	keep := func(key string) bool { return must(w.CallTx(callOf(key)).Keep(t.Context(), nil))(t) }
	require.True(t, keep("old"))
	require.True(t, keep("used"))
	w.SetClock(t, noon.Add(store.CallsKept-time.Microsecond))
	require.True(t, keep("new"))
	require.False(t, keep("used"))
	n, more, err := w.ForgetAnsweredCalls(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	require.False(t, more)
	w.SetClock(t, noon.Add(store.CallsKept))
	require.True(t, keep("used"), "its time was over")
	w.SetClock(t, noon.Add(store.CallsKept+time.Microsecond))
	n, _, err = w.ForgetAnsweredCalls(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Equal(t, []string{"new", "used"}, w.Texts(t, `SELECT key FROM servo.answered_calls ORDER BY key`))

	other := callOf("new")
	other.Tenant = id.New[id.Tenant](w.mint)
	_, _, known, err := w.AnsweredCall(t.Context(), other)
	require.NoError(t, err)
	require.False(t, known, "another tenant's key")
}
