package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
)

// stands are where claims wait in this process: for a transaction that has something for them,
// or for a signal that makes them look themselves. The one that waits longest is served first.
type stands struct {
	mu      sync.Mutex
	waiting []*standing
}

// standing is a claim that waits.
type standing struct {
	*claimCommand

	// done is closed when a transaction that had taken it has ended: it has its leases, or must
	// look itself.
	done chan struct{}
}

func (s *standing) end() { close(s.done) }

func (b *stands) add(c *claimCommand) *standing {
	s := &standing{claimCommand: c, done: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, s)
	return s
}

// take gives claims that could take these tasks, as many as are needed for them, but none that
// asks in this very transaction, and none twice: a repeat may wait beside its first try. Nobody
// else gets them, and the wait of each must be ended.
func (b *stands) take(tasks []run.Task, asking []*claimCommand) []*standing {
	served := map[id.Claim]bool{}
	for _, c := range asking {
		served[c.Claim] = true
	}
	wanted := slices.Clone(tasks)
	b.mu.Lock()
	defer b.mu.Unlock()
	var taken []*standing
	b.waiting = slices.DeleteFunc(b.waiting, func(s *standing) bool {
		if served[s.Claim] {
			return false
		}
		room := s.Max
		wanted = slices.DeleteFunc(wanted, func(t run.Task) bool {
			taken := room > 0 && s.takes(t)
			if taken {
				room--
			}
			return taken
		})
		if room < s.Max {
			served[s.Claim] = true
			taken = append(taken, s)
		}
		return room < s.Max
	})
	return taken
}

// leave ends the wait of a claim. False says that a transaction has taken it: then it must wait
// for the end of that.
func (b *stands) leave(s *standing) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, s)
	if i < 0 {
		return false
	}
	b.waiting = slices.Delete(b.waiting, i, i+1)
	return true
}

// stand waits until a claim has leases, should look itself, or has waited long enough.
func (e *Engine) stand(ctx context.Context, cmd *claimCommand, woken <-chan struct{}, patience <-chan time.Time) (over bool) {
	s := e.short.stands.add(cmd)
	poll := time.NewTimer(e.config.PollEvery)
	defer poll.Stop()
	select {
	case <-s.done:
		cmd.unsure = true
		return false
	case <-woken:
	case <-poll.C:
	case <-patience:
		over = true
	case <-ctx.Done():
		over = true
	}
	if !e.short.stands.leave(s) {
		<-s.done // bounded by the deadline of the transaction
		cmd.unsure = true
	}
	return over
}
