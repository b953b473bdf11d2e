package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/store"
)

func TestPresence(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	setup := func(t *testing.T) *world {
		t.Helper()
		w := newWorld(t)
		w.SetClock(t, noon)
		return w
	}
	renew := func(t *testing.T, w *world, p store.Presence) (others bool) {
		t.Helper()
		p.StartedAt = noon.Add(-time.Hour)
		return must(w.RenewPresence(t.Context(), p))(t)
	}

	t.Run("a server learns that others live, until they stop or fall silent", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		require.False(t, renew(t, w, store.Presence{Name: "a", Version: "1"}))
		require.False(t, renew(t, w, store.Presence{Name: "a", Version: "1"}), "it is not its own other")
		require.True(t, renew(t, w, store.Presence{Name: "b", Version: "2"}))
		require.True(t, renew(t, w, store.Presence{Name: "a", Version: "1"}))
		require.Equal(t, []store.Server{
			{Name: "a", Version: "1", StartedAt: noon.Add(-time.Hour), SeenAt: noon},
			{Name: "b", Version: "2", StartedAt: noon.Add(-time.Hour), SeenAt: noon},
		}, must(w.Servers(t.Context()))(t))

		require.NoError(t, w.RemoveServer(t.Context(), "b"))
		require.False(t, renew(t, w, store.Presence{Name: "a"}))
		w.SetClock(t, noon.Add(store.ServerLives))
		require.False(t, renew(t, w, store.Presence{Name: "c"}), "a was not seen for too long")
		require.Len(t, must(w.Servers(t.Context()))(t), 1)
	})

	t.Run("the capacity of a pool is what its live workers can hold", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		require.Empty(t, must(w.PoolCapacities(t.Context()))(t))
		renew(t, w, store.Presence{Name: "a", Workers: []store.SeenWorker{{Name: "w1", Pool: "default", Slots: 4}, {Name: "w1", Pool: "big", Slots: 4}, {Name: "w2", Pool: "default", Slots: 10}}})
		require.Equal(t, map[string]store.Capacity{"default": {2, 14}, "big": {1, 4}}, must(w.PoolCapacities(t.Context()))(t))

		w.SetClock(t, noon.Add(time.Minute))
		renew(t, w, store.Presence{Name: "b", Workers: []store.SeenWorker{{Name: "w2", Pool: "default", Slots: 3}}, Alive: []string{"missing"}})
		require.Equal(t, map[string]store.Capacity{"default": {2, 7}, "big": {1, 4}}, must(w.PoolCapacities(t.Context()))(t))
		w.SetClock(t, noon.Add(store.WorkerLives))
		require.Equal(t, map[string]store.Capacity{"default": {1, 3}}, must(w.PoolCapacities(t.Context()))(t), "w1 fell silent")
		renew(t, w, store.Presence{Name: "c", Alive: []string{"w1"}})
		require.Equal(t, map[string]store.Capacity{"default": {2, 7}, "big": {1, 4}}, must(w.PoolCapacities(t.Context()))(t),
			"a heartbeat is enough, to whichever server")
	})

	t.Run("workers are listed by name, page by page, with what they hold", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		renew(t, w, store.Presence{Name: "a", Workers: []store.SeenWorker{{Name: "w1", Pool: "default", Slots: 4}, {Name: "w1", Pool: "big", Slots: 4}, {Name: "w2", Pool: "default", Slots: 10}, {Name: "w3", Pool: "big", Slots: 1}}})
		list := func(pool, after string, most int) (names []string) {
			for _, worker := range must(w.ListWorkers(t.Context(), pool, after, most))(t) {
				names = append(names, worker.Name)
			}
			return names
		}
		require.Equal(t, []string{"w1", "w2"}, list("", "", 2))
		require.Equal(t, []string{"w3"}, list("", "w2", 2))
		require.Equal(t, []string{"w1", "w3"}, list("big", "", 10))
		view := store.WorkerView{Name: "w1", Pools: []string{"big", "default"}, Slots: 4, FirstSeen: noon, SeenAt: noon, LeasesEndAt: time.Time{}.UTC(), Capabilities: []string{}}
		require.Equal(t, view, must(w.ListWorkers(t.Context(), "", "", 1))(t)[0])
		w.SetClock(t, noon.Add(30*time.Second))
		view.Silent = true
		require.Equal(t, view, must(w.ListWorkers(t.Context(), "", "", 1))(t)[0])
		w.SetClock(t, noon.Add(store.WorkerLives))
		require.Empty(t, list("", "", 10))
	})

	t.Run("who has not been seen for long is forgotten", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		renew(t, w, store.Presence{Name: "a", Workers: []store.SeenWorker{{Name: "w1", Pool: "default", Slots: 4}}})
		w.SetClock(t, noon.Add(5*time.Minute))
		renew(t, w, store.Presence{Name: "b", Workers: []store.SeenWorker{{Name: "w2", Pool: "default", Slots: 4}}})
		servers, workers, err := w.ForgetPresence(t.Context())
		require.NoError(t, err)
		require.Zero(t, servers+workers)
		w.SetClock(t, noon.Add(10*time.Minute))
		servers, workers, err = w.ForgetPresence(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int64{1, 1}, []int64{servers, workers})
		require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.workers WHERE name = 'w2'`))
	})
}

func TestListen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := servotest.Proxy(t, w.URL)
	ctx, cancel := context.WithCancel(t.Context())
	listening, notices, ended := make(chan struct{}), make(chan string, 10), make(chan error, 1)
	listen := func() {
		ended <- store.Listen(ctx, proxy.URL, func() { listening <- struct{}{} }, func(notice string) { notices <- notice })
	}

	go listen()
	<-listening
	require.NoError(t, w.Notify(t.Context(), "one"))
	require.NoError(t, w.Notify(t.Context(), "two"))
	require.Equal(t, []string{"one", "two"}, []string{<-notices, <-notices})

	proxy.CutAll()
	require.Error(t, <-ended, "the listener is notified that the connection is lost")

	go listen()
	<-listening
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
