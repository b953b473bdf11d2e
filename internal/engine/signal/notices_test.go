package signal

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
	"go.arco.dev/servo/internal/store"
)

func decodeNotice(t require.TestingT, text string) notice {
	var n notice
	require.NoError(t, json.Unmarshal([]byte(text), &n))
	return n
}

// pair returns the notices that a server sends, decoded as another receives them.
func pair(t *testing.T) (sent *[]notice, sender *Signals) {
	t.Helper()
	sent = &[]notice{}
	sender = New(func(_ context.Context, text string) error {
		*sent = append(*sent, decodeNotice(t, text))
		return nil
	}, slog.New(slog.DiscardHandler))
	return sent, sender
}

func TestNotices(t *testing.T) {
	t.Parallel()

	t.Run("notices within milliseconds are sent together, the first at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			sent, s := pair(t)
			s.SetOthers(true)
			s.Publish("first")
			synctest.Wait()
			require.Len(t, *sent, 1)
			for range 10 {
				s.Publish("a")
				s.Publish("b", Ready)
			}
			synctest.Wait()
			require.Len(t, *sent, 1)
			time.Sleep(sendEvery)
			synctest.Wait()
			require.Len(t, *sent, 2)
			require.ElementsMatch(t, []string{"a", "b", Ready}, (*sent)[1].Work)
			time.Sleep(time.Hour)
			require.Len(t, *sent, 2)
			s.Publish("last")
			s.Stop()
			require.Len(t, *sent, 3, "the end sends what is left")
		})
	})

	t.Run("a single server sends no notices", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			sent, s := pair(t)
			s.Publish("a")
			s.All()
			s.notices.watch()
			time.Sleep(time.Minute)
			s.Stop()
			require.Empty(t, *sent)
		})
	})

	t.Run("a lost notice becomes a notice to all servers", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var sent []notice
			var broken atomic.Bool
			broken.Store(true)
			w := newNotices(func(_ context.Context, text string) error {
				if broken.Load() {
					return errors.New("away")
				}
				sent = append(sent, decodeNotice(t, text))
				return nil
			}, slog.New(slog.DiscardHandler))
			w.others.Store(true)
			w.send([]string{"a"}, nil)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			broken.Store(false)
			time.Sleep(2 * sendAgain)
			w.stop()
			require.Equal(t, []notice{{From: w.self, All: true}}, sent)
		})
	})

	t.Run("runs are announced while another server waits for any, or may", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			sent, s := pair(t)
			n := s.notices
			n.others.Store(true)
			require.True(t, n.watched(), "who does not listen has to think so")
			n.listening.Store(true)
			require.False(t, n.watched())
			require.False(t, s.Receive(`{"from": "other", "watching": true}`))
			require.True(t, n.watched())
			time.Sleep(watchingLasts)
			require.False(t, n.watched())

			for range 10 {
				n.watch()
			}
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, []notice{{From: n.self, Watching: true}}, *sent, "it is sent at intervals")
			time.Sleep(watchingAgain)
			n.watch()
			n.stop()
			require.Len(t, *sent, 2)
		})
	})

	t.Run("a notice wakes whom it names, and its own teller not at all", func(t *testing.T) {
		t.Parallel()
		_, s := pair(t)
		defer s.Stop()
		mint := id.NewMinter(epoch)
		mine, other := id.New[id.Run](mint), id.New[id.Run](mint)
		watch := func() (work, ready, run, idle <-chan struct{}) {
			run, _ = s.runs.Wait(mine)
			idle, _ = s.runs.Wait(other)
			return s.Wait("a"), s.Wait(Ready), run, idle
		}
		receive := func(n notice) bool {
			text, err := json.Marshal(n)
			require.NoError(t, err)
			return s.Receive(string(text))
		}
		work, ready, run, idle := watch()
		require.True(t, receive(notice{From: s.notices.self, All: true}))
		require.False(t, isClosed(work))
		require.False(t, receive(notice{From: "x", Work: []string{"a", Room}, Runs: []id.Run{mine}}))
		require.Equal(t, []bool{true, false, true, false}, []bool{isClosed(work), isClosed(ready), isClosed(run), isClosed(idle)})
		require.True(t, s.notices.others.Load(), "another server exists")

		s.SetFull(true)
		require.False(t, receive(notice{From: "x", Work: []string{Room}, AllRuns: true}))
		require.Equal(t, []bool{true, true}, []bool{isClosed(ready), isClosed(idle)})

		for _, text := range []string{`{"from": "x", "all": true}`, `what is this`} {
			work, ready, run, idle = watch()
			require.False(t, s.Receive(text))
			require.Equal(t, []bool{true, true, true, true}, []bool{isClosed(work), isClosed(ready), isClosed(run), isClosed(idle)})
		}
	})
}

// TestNoticesFit: whatever is sent fits into a notice, and is complete.
func TestNoticesFit(t *testing.T) {
	t.Parallel()
	mint := id.NewMinter(epoch)
	rapid.Check(t, func(t *rapid.T) {
		n := notice{From: "self", Work: rapid.SliceOfN(rapid.StringN(1, 100, 100), 0, 200).Draw(t, "work")}
		for range rapid.IntRange(0, 2*maxRuns).Draw(t, "runs") {
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
