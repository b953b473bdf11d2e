package signal

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/id"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// TestBoard holds a board to what a list of waiters would do, whatever comes in which order.
func TestBoard(t *testing.T) {
	t.Parallel()
	type waiting struct {
		key       int
		ch        <-chan struct{}
		stop      func()
		signalled bool
		stopped   bool
	}
	rapid.Check(t, func(t *rapid.T) {
		var (
			b   Board[int]
			all []*waiting
		)
		key := rapid.IntRange(0, 2)
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				w := &waiting{key: key.Draw(t, "key")}
				w.ch, w.stop = b.Wait(w.key)
				all = append(all, w)
			},
			"stop": func(t *rapid.T) {
				if len(all) > 0 { // once or twice, signalled or not
					w := rapid.SampledFrom(all).Draw(t, "waiter")
					w.stop()
					w.stopped = true
				}
			},
			"signal": func(t *rapid.T) {
				k := key.Draw(t, "key")
				b.Signal(k)
				for _, w := range all {
					w.signalled = w.signalled || w.key == k && !w.stopped
				}
			},
			"all topics": func(*rapid.T) {
				b.All()
				for _, w := range all {
					w.signalled = w.signalled || !w.stopped
				}
			},
			"": func(t *rapid.T) {
				topics, count := map[int]bool{}, 0
				for _, w := range all {
					if !w.stopped { // who has stopped may share a channel that is closed later
						require.Equal(t, w.signalled, isClosed(w.ch))
					}
					if !w.stopped && !w.signalled {
						topics[w.key] = true
						count++
					}
				}
				require.Len(t, b.topics, len(topics), "a topic without waiters is forgotten")
				require.EqualValues(t, count, b.waiting.Load())
			},
		})
	})
}

func TestSignals(t *testing.T) {
	t.Parallel()

	t.Run("claims that come and go leave no pools behind", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, claimsLeaveNothing)
	})

	t.Run("any of several pools wakes", func(t *testing.T) {
		t.Parallel()
		s := &Signals{}
		w := s.WaitAny([]string{"a", "b"})
		defer w.Stop()
		s.topics.Signal("b")
		<-w.C
	})

	t.Run("a commit signals the runs it has recorded something of, and no others", func(t *testing.T) {
		t.Parallel()
		s := &Signals{}
		mint := id.NewMinter(epoch)
		mine, other := id.New[id.Run](mint), id.New[id.Run](mint)
		changed, stop := s.runs.Wait(mine)
		defer stop()
		idle, stopIdle := s.runs.Wait(other)
		defer stopIdle()
		s.Committed(Commit{Changed: func() []id.Run { return []id.Run{mine} }})
		require.True(t, isClosed(changed))
		require.False(t, isClosed(idle))
		s.All()
		require.True(t, isClosed(idle), "it is not known what an uncertain commit has changed")
	})

	t.Run("many waiters of one run are woken together and leave at once", func(t *testing.T) {
		t.Parallel()
		s := &Signals{}
		run := id.New[id.Run](id.NewMinter(epoch))
		var group, ready sync.WaitGroup
		for range 50 {
			ready.Add(1)
			group.Go(func() {
				changed, stop := s.runs.Wait(run)
				defer stop()
				ready.Done()
				<-changed
			})
		}
		ready.Wait()
		s.runs.Signal(run)
		group.Wait()
		require.Zero(t, s.runs.waiting.Load())
	})
}

func claimsLeaveNothing(t *testing.T) {
	t.Helper()
	s := &Signals{}
	for _, pools := range [][]string{{"a"}, {"a", "b"}, {"c", "d", "e"}} {
		w := s.WaitAny(pools)
		w.Stop()
	}
	synctest.Wait() // several pools are left by goroutines
	require.Empty(t, s.topics.topics)
}
