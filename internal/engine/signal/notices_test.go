package engine

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

func decodeNotice(t require.TestingT, text string) notice {
	var n notice
	require.NoError(t, json.Unmarshal([]byte(text), &n))
	return n
}

// pair is what one engine tells and another hears, with nothing in between.
func pair(t *testing.T) (told *[]notice, teller *signals) {
	t.Helper()
	told = &[]notice{}
	teller = newSignals()
	teller.far = newWakeups(func(_ context.Context, text string) error {
		*told = append(*told, decodeNotice(t, text))
		return nil
	}, slog.New(slog.DiscardHandler))
	return told, teller
}

func TestWakeups(t *testing.T) {
	t.Parallel()

	t.Run("what comes within milliseconds is told together, the first at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			told, s := pair(t)
			s.far.others.Store(true)
			s.publish("first")
			synctest.Wait()
			require.Len(t, *told, 1)
			for range 10 {
				s.publish("a")
				s.publish("b", readyTopic)
			}
			synctest.Wait()
			require.Len(t, *told, 1)
			time.Sleep(tellEvery)
			synctest.Wait()
			require.Len(t, *told, 2)
			require.ElementsMatch(t, []string{"a", "b", readyTopic}, (*told)[1].Work)
			time.Sleep(time.Hour)
			require.Len(t, *told, 2)
			s.publish("last")
			s.far.stop()
			require.Len(t, *told, 3, "the end tells what is left")
		})
	})

	t.Run("who is alone tells nobody", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			told, s := pair(t)
			s.publish("a")
			s.everybody()
			s.far.watch()
			time.Sleep(time.Minute)
			s.far.stop()
			require.Empty(t, *told)
		})
	})

	t.Run("what did not go out becomes a call to everybody", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var told []notice
			var broken atomic.Bool
			broken.Store(true)
			w := newWakeups(func(_ context.Context, text string) error {
				if broken.Load() {
					return errors.New("away")
				}
				told = append(told, decodeNotice(t, text))
				return nil
			}, slog.New(slog.DiscardHandler))
			w.others.Store(true)
			w.tell([]string{"a"}, nil)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			broken.Store(false)
			time.Sleep(2 * tellAgain)
			w.stop()
			require.Equal(t, []notice{{From: w.self, All: true}}, told)
		})
	})

	t.Run("runs are told while somebody elsewhere waits for any, or may", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			told, s := pair(t)
			far := s.far
			far.others.Store(true)
			require.True(t, far.watched(), "who does not listen has to think so")
			far.listening.Store(true)
			require.False(t, far.watched())
			e := &Engine{signals: s}
			require.False(t, e.Hear(`{"from": "other", "watching": true}`))
			require.True(t, far.watched())
			time.Sleep(watchingLasts)
			require.False(t, far.watched())

			for range 10 {
				far.watch()
			}
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, []notice{{From: far.self, Watching: true}}, *told, "it is said once in a while")
			time.Sleep(watchingAgain)
			far.watch()
			far.stop()
			require.Len(t, *told, 2)
		})
	})

	t.Run("a notice wakes whom it names, and its own teller not at all", func(t *testing.T) {
		t.Parallel()
		_, s := pair(t)
		defer s.far.stop()
		e := &Engine{signals: s}
		mint := id.NewMinter(epoch)
		mine, other := id.New[id.Run](mint), id.New[id.Run](mint)
		watch := func() (work, ready, run, idle <-chan struct{}) {
			run, _ = s.runs.wait(mine)
			idle, _ = s.runs.wait(other)
			return s.wait("a"), s.wait(readyTopic), run, idle
		}
		hear := func(n notice) bool {
			text, err := json.Marshal(n)
			require.NoError(t, err)
			return e.Hear(string(text))
		}
		work, ready, run, idle := watch()
		require.True(t, hear(notice{From: s.far.self, All: true}))
		require.False(t, isClosed(work))
		require.False(t, hear(notice{From: "x", Work: []string{"a", roomTopic}, Runs: []id.Run{mine}}))
		require.Equal(t, []bool{true, false, true, false}, []bool{isClosed(work), isClosed(ready), isClosed(run), isClosed(idle)})
		require.True(t, s.far.others.Load(), "there is somebody")

		s.full.Store(true)
		require.False(t, hear(notice{From: "x", Work: []string{roomTopic}, AllRuns: true}))
		require.Equal(t, []bool{true, true}, []bool{isClosed(ready), isClosed(idle)})

		for _, text := range []string{`{"from": "x", "all": true}`, `what is this`} {
			work, ready, run, idle = watch()
			require.False(t, e.Hear(text))
			require.Equal(t, []bool{true, true, true, true}, []bool{isClosed(work), isClosed(ready), isClosed(run), isClosed(idle)})
		}
	})
}

// TestNoticesFit: whatever is told fits into a notice, and says no less than it should.
func TestNoticesFit(t *testing.T) {
	t.Parallel()
	mint := id.NewMinter(epoch)
	rapid.Check(t, func(t *rapid.T) {
		n := notice{From: "self", Work: rapid.SliceOfN(rapid.StringN(1, 100, 100), 0, 200).Draw(t, "work")}
		for range rapid.IntRange(0, 2*maxToldRuns).Draw(t, "runs") {
			n.Runs = append(n.Runs, id.New[id.Run](mint))
		}
		text := n.encode()
		require.LessOrEqual(t, len(text), store.MaxNotice)
		if text == "" {
			require.Empty(t, n.Work)
			require.Empty(t, n.Runs)
			return
		}
		got := decodeNotice(t, text)
		require.Equal(t, "self", got.From)
		if got.All {
			require.Greater(t, len(strings.Join(n.Work, ""))+40*len(n.Runs), store.MaxNotice/8, "it would have fitted")
			return
		}
		require.Len(t, got.Work, len(n.Work))
		require.True(t, got.AllRuns || len(got.Runs) == len(n.Runs))
	})
}

func TestMakesRoom(t *testing.T) {
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

	t.Run("claims say what a worker serves, heartbeats that it still does", func(t *testing.T) {
		t.Parallel()
		s := newSeenWorkers()
		require.True(t, s.claimed(ClaimRequest{Worker: "w", Pools: []string{"a", "b"}, Max: 2, Slots: 8}, nil))
		require.False(t, s.claimed(ClaimRequest{Worker: "w", Pools: []string{"a", "b"}, Max: 1, Slots: 8}, nil))
		workers, heard, news := s.take()
		require.ElementsMatch(t, []store.SeenWorker{{Name: "w", Pool: "a", Slots: 8}, {Name: "w", Pool: "b", Slots: 8}}, workers)
		require.Empty(t, heard)
		require.True(t, news)

		workers, heard, news = s.take()
		require.Empty(t, workers)
		require.Empty(t, heard)
		require.False(t, news)

		s.alive("w")
		s.alive("stranger")
		workers, heard, news = s.take()
		require.Len(t, workers, 2)
		require.Equal(t, []string{"stranger"}, heard)
		require.False(t, news)
	})

	t.Run("a worker that does not say its slots has the most that it asked for", func(t *testing.T) {
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
