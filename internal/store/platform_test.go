package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

func TestPools(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.account(t, "acme").tenant
	pool := store.Pool{
		PoolSettings: platform.PoolSettings{Kind: platform.Push, URL: "https://workers.example.com", MaxConcurrency: 3, RatePerSecond: 0.1, TimeoutSeconds: 30, Owner: owner},
		Name:         "remote", CreatedAt: w.now, UpdatedAt: w.now,
	}
	meta := event.Meta{Actor: "test", Trace: "trace"}
	w.engine(t, func(tx *Tx) {
		pool.Version = must(tx.InsertPool(t.Context(), pool))(t)
		require.Equal(t, int32(1), pool.Version)
		require.NoError(t, tx.AppendPlatformEvents(t.Context(), platform.Event{
			Subject: "pool/remote", Version: 1, At: w.now, Meta: meta, Body: platform.PoolCreated{PoolSettings: pool.PoolSettings},
		}))
	})
	require.Equal(t, []store.Pool{pool}, must(w.Pools(t.Context()))(t))
	pushed := must(w.PushPools(t.Context()))(t)
	require.Len(t, pushed, 1)
	require.False(t, pushed[0].Queued)

	w.engine(t, func(tx *Tx) {
		locked := must(tx.LockPool(t.Context(), "remote"))(t)
		require.Equal(t, pool, locked)
		_, err := tx.LockPool(t.Context(), "missing")
		require.True(t, fault.Is(err, fault.NotFound), err)
		locked.Owner, locked.Version = id.Tenant{}, 2
		require.NoError(t, tx.UpdatePool(t.Context(), locked))
		require.Error(t, tx.UpdatePool(t.Context(), locked), "a version that already exists")
		require.Error(t, tx.DeletePool(t.Context(), pool), "a version that is over")
		require.NoError(t, tx.DeletePool(t.Context(), locked))
	})
	w.engine(t, func(tx *Tx) {
		require.Equal(t, int32(2), must(tx.InsertPool(t.Context(), pool))(t), "after the last event of the name")
	})
}

func TestSigningKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := store.SigningKey{ID: "sk-1", Secret: make([]byte, 32), Version: 1, CreatedAt: w.now, Key: platform.Key{SignsFrom: w.now}}
	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.LockSigningKeys(t.Context()))
		require.NoError(t, tx.InsertSigningKey(t.Context(), key))
	})
	keys, now, err := w.SigningKeys(t.Context())
	require.NoError(t, err)
	require.False(t, now.Before(w.now))
	require.Equal(t, []store.SigningKey{key}, keys)
	key.ExpiresAt, key.RevokedAt, key.Version = w.now.Add(time.Hour), w.now, 2
	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.UpdateSigningKey(t.Context(), key))
		require.Error(t, tx.UpdateSigningKey(t.Context(), key), "a version that already exists")
	})
	keys, _, err = w.SigningKeys(t.Context())
	require.NoError(t, err)
	require.Equal(t, []store.SigningKey{key}, keys)
}

func TestPlatformRowsStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.AppendPlatformEvents(t.Context(), platform.Event{Subject: "pool/x", Version: 1, At: w.now, Body: platform.PoolDeleted{}}))
		seen := 0
		require.NoError(t, tx.EachPlatformRow(t.Context(), store.PlatformRows{
			Event: func(r store.PlatformEventRow) error { seen++; require.Equal(t, "pool/x", r.Subject); return nil },
			Pool:  func(store.PoolRow) error { return nil }, Key: func(store.SigningKeyRow) error { return nil },
			Switch: func(store.SwitchRow) error { return nil },
		}))
		require.Equal(t, 1, seen)
	})
}

func TestUpstreamOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	g := w.newRun(t, a, []run.TaskState{run.Succeeded, run.Running, run.Running}, nil, []int32{0}, nil)
	other := w.newRun(t, b, []run.TaskState{run.Succeeded, run.Running}, nil, []int32{0})
	of := func(task int) store.TaskKey {
		return store.TaskKey{Tenant: a.tenant, Run: g.run.ID, Task: g.tasks[task].ID}
	}
	found := must(w.UpstreamOf(t.Context(), of(1), g.run.ID, g.tasks[0].ID))(t)
	require.Equal(t, g.tasks[0].ID, found.Task)
	require.Equal(t, run.Succeeded, found.State)

	for claim, try := range map[string]func() (store.UpstreamTask, error){
		"a task that it does not wait for": func() (store.UpstreamTask, error) { return w.UpstreamOf(t.Context(), of(2), g.run.ID, g.tasks[0].ID) },
		"itself":                           func() (store.UpstreamTask, error) { return w.UpstreamOf(t.Context(), of(1), g.run.ID, g.tasks[1].ID) },
		"another tenant's": func() (store.UpstreamTask, error) {
			return w.UpstreamOf(t.Context(), store.TaskKey{Tenant: a.tenant, Run: other.run.ID, Task: other.tasks[1].ID}, other.run.ID, other.tasks[0].ID)
		},
	} {
		_, err := try()
		require.True(t, fault.Is(err, fault.NotFound), "%s: %v", claim, err)
	}
}
