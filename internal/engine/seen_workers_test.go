package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

func TestFreesCapacity(t *testing.T) {
	t.Parallel()
	flying := func(s run.TaskState) bool { return s == run.Queued || s.Leased() }
	for _, from := range run.TaskStates() {
		for _, to := range run.TaskStates() {
			leavesQueue := from == run.Queued && to != run.Queued
			lands := flying(from) && !flying(to)
			requeued := from.Leased() && to == run.Queued // a lease less, and another may be taken for it
			require.Equal(t, leavesQueue || lands || requeued, makesRoom(from, to), "%s to %s", from, to)
		}
	}
}

func TestSeenWorkers(t *testing.T) {
	t.Parallel()

	t.Run("claims list what a worker serves, and heartbeats keep it", func(t *testing.T) {
		t.Parallel()
		s := newSeenWorkers()
		require.True(t, s.claimed(ClaimRequest{Worker: "w", Pools: []string{"a", "b"}, Max: 2, Slots: 8}, nil))
		require.False(t, s.claimed(ClaimRequest{Worker: "w", Pools: []string{"a", "b"}, Max: 1, Slots: 8}, nil))
		workers, alive, news := s.take()
		require.ElementsMatch(t, []store.SeenWorker{{Name: "w", Pool: "a", Slots: 8}, {Name: "w", Pool: "b", Slots: 8}}, workers)
		require.Empty(t, alive)
		require.True(t, news)

		workers, alive, news = s.take()
		require.Empty(t, workers)
		require.Empty(t, alive)
		require.False(t, news)

		s.alive("w")
		s.alive("unseen")
		workers, alive, news = s.take()
		require.Len(t, workers, 2)
		require.Equal(t, []string{"unseen"}, alive)
		require.False(t, news)
	})

	t.Run("a worker without a capacity has the largest number that it requested", func(t *testing.T) {
		t.Parallel()
		s := newSeenWorkers()
		for _, most := range []int{4, 10, 1} {
			s.claimed(ClaimRequest{Worker: "w", Pools: []string{"a"}, Max: most}, nil)
		}
		workers, _, _ := s.take()
		require.Equal(t, []store.SeenWorker{{Name: "w", Pool: "a", Slots: 10}}, workers)
	})

	t.Run("who falls silent is forgotten, and a crowd is bounded", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSeenWorkers()
			for i := range maxSeen + 10 {
				s.claimed(ClaimRequest{Worker: strings.Repeat("w", i%7) + time.Duration(i).String(), Pools: []string{"a", "b"}, Max: 1}, nil)
			}
			workers, _, _ := s.take()
			require.Len(t, workers, maxSeen)
			time.Sleep(store.WorkerLives + time.Second)
			s.take()
			require.Empty(t, s.known)
		})
	})
}
