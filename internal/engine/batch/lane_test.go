package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/store"
)

// fakeLane is a lane of numbers whose transactions are recorded, and end as a test defines.
type fakeLane struct {
	*Lane[int, struct{}]

	mu      sync.Mutex
	batches [][]int // that were committed
	tries   int
	settles int
}

// newFakeLane makes a lane. Transact, if set, stands for the transaction: it may wait, and
// what it returns is its trouble.
func newFakeLane(t testing.TB, limits Limits, inFlight int, transact func(batch []int) error) *fakeLane {
	t.Helper()
	f := &fakeLane{}
	if limits.Batch == 0 {
		limits.Batch = 500
	}
	if limits.Waiting == 0 {
		limits.Waiting = 1000
	}
	if limits.Timeout == 0 {
		limits.Timeout = 30 * time.Second
	}
	limits.InFlight = inFlight
	apply := func(_ context.Context, calls []*Call[int, struct{}]) error {
		var batch []int
		for _, c := range calls {
			batch = append(batch, c.Request)
		}
		f.mu.Lock()
		f.tries++
		f.mu.Unlock()
		if transact != nil {
			if err := transact(batch); err != nil {
				return err
			}
		}
		f.mu.Lock()
		f.batches = append(f.batches, batch)
		f.mu.Unlock()
		return nil
	}
	f.Lane = New("fake", Options[int, struct{}]{Limits: limits, Apply: apply, Recovered: func() {
		f.mu.Lock()
		f.settles++
		f.mu.Unlock()
	}}, slog.New(slog.DiscardHandler))
	t.Cleanup(f.Stop)
	return f
}

func (f *fakeLane) do(ctx context.Context, request int) error {
	_, err := f.Do(ctx, request)
	return err
}

func (f *fakeLane) doAll(ctx context.Context, requests []int) []error {
	_, errs := f.DoAll(ctx, requests)
	return errs
}

func (f *fakeLane) tried() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tries
}

func (f *fakeLane) queued() int {
	f.Lane.mu.Lock()
	defer f.Lane.mu.Unlock()
	return len(f.queue)
}

func (f *fakeLane) applied() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Concat(f.batches...)
}

// The errors of a transaction, as the store returns them.
var (
	errPoisoned = servotest.PgError("22P05")
	errMismatch = error(&store.MismatchError{})
	errCollided = servotest.PgError("40P01")
	errAway     = fmt.Errorf("commit: %w", io.ErrUnexpectedEOF)
	errBroken   = errors.New("nil map")
)

func requireUnavailable(t testing.TB, err error) {
	t.Helper()
	f, ok := fault.As(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, fault.Unavailable, f.Code)
	require.Positive(t, f.RetryAfter)
	require.NotEmpty(t, f.Violation.Remedy)
}

func TestLaneGroups(t *testing.T) {
	t.Parallel()

	t.Run("a command goes at once when the lane is idle", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l := newFakeLane(t, Limits{}, 1, nil)
			began := time.Now()
			require.NoError(t, l.do(t.Context(), 1))
			require.Equal(t, began, time.Now(), "it waited for company")
			require.Equal(t, [][]int{{1}}, l.batches)
			l.Stop()
		})
	})

	t.Run("what waits while a transaction is at work goes together, up to a batch", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			l := newFakeLane(t, Limits{Batch: 4}, 1, func(batch []int) error {
				if batch[0] == 0 {
					<-release
				}
				return nil
			})
			for i := range 10 {
				go func() { _ = l.do(t.Context(), i) }()
				synctest.Wait()
			}
			close(release)
			synctest.Wait()
			require.Equal(t, [][]int{{0}, {1, 2, 3, 4}, {5, 6, 7, 8}, {9}}, l.batches)
			l.Stop()
		})
	})

	t.Run("as many transactions are at work as the lane is wide, and no more", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			l := newFakeLane(t, Limits{}, 2, func([]int) error {
				<-release
				return nil
			})
			for i := range 5 {
				go func() { _ = l.do(t.Context(), i) }()
				synctest.Wait()
			}
			require.Equal(t, 2, l.tries)
			close(release)
			synctest.Wait()
			require.Equal(t, 3, l.tries, "the other three went together")
			l.Stop()
		})
	})

	t.Run("what is asked together is applied in its order, whatever else waits", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			sizes := rapid.SliceOfN(rapid.IntRange(1, 12), 1, 20).Draw(rt, "sizes")
			limit := rapid.IntRange(1, 8).Draw(rt, "limit")
			wide := rapid.IntRange(1, 3).Draw(rt, "wide")
			// the first transactions take their time, so that all others must wait
			var atWork atomic.Int64
			release := make(chan struct{})
			l := newFakeLane(t, Limits{Batch: limit}, wide, func(batch []int) error {
				atWork.Add(int64(len(batch)))
				<-release
				return nil
			})
			var callers sync.WaitGroup
			asked := 0
			for caller, size := range sizes {
				asked += min(size, limit)
				cmds := make([]int, size)
				for i := range cmds {
					cmds[i] = caller*100 + i
				}
				callers.Go(func() {
					for _, err := range l.doAll(context.Background(), cmds) {
						if err != nil {
							rt.Errorf("refused: %v", err)
						}
					}
				})
			}
			for l.queued()+int(atWork.Load()) < asked {
				runtime.Gosched()
			}
			close(release)
			callers.Wait()
			l.Stop()
			next := map[int]int{}
			for _, batch := range l.batches {
				if len(batch) > limit {
					rt.Fatalf("%d commands in one transaction", len(batch))
				}
				for _, cmd := range batch {
					caller, i := cmd/100, cmd%100
					if next[caller] != i {
						rt.Fatalf("command %d of caller %d came as number %d: %v", i, caller, next[caller], l.batches)
					}
					next[caller]++
				}
				for i, cmd := range batch[1:] { // who fits into a transaction is not torn apart
					if first := batch[i]; cmd/100 != first/100 && sizes[cmd/100] <= limit && cmd%100 != 0 {
						rt.Fatalf("caller %d was torn apart: %v", cmd/100, l.batches)
					}
				}
				if size := sizes[batch[0]/100]; size <= limit && batch[0]%100 != 0 {
					rt.Fatalf("caller %d was torn apart: %v", batch[0]/100, l.batches)
				}
			}
			for caller, size := range sizes {
				if next[caller] != size {
					rt.Fatalf("caller %d got %d of %d", caller, next[caller], size)
				}
			}
		})
	})

	t.Run("nothing asked is nothing answered", func(t *testing.T) {
		t.Parallel()
		l := newFakeLane(t, Limits{}, 1, nil)
		require.Empty(t, l.doAll(t.Context(), nil))
	})
}

func TestLaneBounds(t *testing.T) {
	t.Parallel()

	t.Run("a full lane refuses callers, with a time to retry", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			l := newFakeLane(t, Limits{Waiting: 3}, 1, func([]int) error {
				<-release
				return nil
			})
			go func() { _ = l.do(t.Context(), 0) }()
			synctest.Wait()
			for i := range 3 {
				go func() { _ = l.do(t.Context(), 1+i) }()
			}
			synctest.Wait()
			requireUnavailable(t, l.do(t.Context(), 9))
			for _, err := range l.doAll(t.Context(), []int{10, 11}) {
				requireUnavailable(t, err)
			}
			close(release)
			synctest.Wait()
			require.ElementsMatch(t, []int{0, 1, 2, 3}, l.applied())
			require.NoError(t, l.do(t.Context(), 12), "there is room again")
			l.Stop()
		})
	})

	t.Run("a caller whose deadline passes while it waits is answered then, and its command is never applied", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			l := newFakeLane(t, Limits{}, 1, func([]int) error {
				<-release
				return nil
			})
			go func() { _ = l.do(t.Context(), 1) }()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			err := l.do(ctx, 2)
			requireUnavailable(t, err)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Second, time.Since(began))
			close(release)
			require.NoError(t, l.do(t.Context(), 3))
			require.Equal(t, []int{1, 3}, l.applied())
			l.Stop()
		})
	})

	t.Run("a caller without a deadline gets the lane's", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			l := newFakeLane(t, Limits{Timeout: 7 * time.Second}, 1, func([]int) error {
				<-release
				return nil
			})
			began := time.Now()
			requireUnavailable(t, l.do(t.Context(), 1))
			require.Equal(t, 7*time.Second, time.Since(began))
			close(release)
			l.Stop()
		})
	})

	t.Run("stopping finishes what was accepted and turns away what comes after", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			l := newFakeLane(t, Limits{Batch: 2}, 2, func([]int) error {
				<-release
				return nil
			})
			answers := make(chan error, 20)
			for i := range 20 {
				go func() { answers <- l.do(t.Context(), i) }()
			}
			synctest.Wait()
			stopped := make(chan struct{})
			go func() {
				l.Stop()
				close(stopped)
			}()
			synctest.Wait()
			requireUnavailable(t, l.do(t.Context(), 99))
			select {
			case <-stopped:
				require.Fail(t, "it did not wait for its transactions")
			default:
			}
			close(release)
			<-stopped
			for range 20 {
				require.NoError(t, <-answers)
			}
			require.Len(t, l.applied(), 20)
		})
	})
}

func TestLaneTrouble(t *testing.T) {
	t.Parallel()
	upTo := func(n int) []int {
		cmds := make([]int, n)
		for i := range cmds {
			cmds[i] = i
		}
		return cmds
	}

	t.Run("a poisoned command fails alone, wherever it is in the batch", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			n := rapid.IntRange(1, 60).Draw(rt, "commands")
			poison := rapid.SliceOfDistinct(rapid.IntRange(0, n-1), rapid.ID[int]).Draw(rt, "poison")
			trouble := rapid.SampledFrom([]error{errPoisoned, errMismatch, errBroken}).Draw(rt, "trouble")
			l := newFakeLane(t, Limits{}, 1, func(batch []int) error {
				if slices.ContainsFunc(batch, func(cmd int) bool { return slices.Contains(poison, cmd) }) {
					return trouble
				}
				return nil
			})
			var want []int
			for i, err := range l.doAll(context.Background(), upTo(n)) {
				if slices.Contains(poison, i) != (err != nil) {
					rt.Fatalf("command %d got %v", i, err)
				}
				if err == nil {
					want = append(want, i)
				}
			}
			if got := l.applied(); !slices.Equal(want, got) {
				rt.Fatalf("applied %v instead of %v", got, want)
			}
		})
	})

	t.Run("a value that cannot be stored is an error of the caller", func(t *testing.T) {
		t.Parallel()
		l := newFakeLane(t, Limits{}, 1, func([]int) error { return errPoisoned })
		f, ok := fault.As(l.do(t.Context(), 1))
		require.True(t, ok)
		require.Equal(t, fault.InvalidArgument, f.Code)
		require.NotEmpty(t, f.Violation.Field)
		require.NotEmpty(t, f.Violation.Remedy)
	})

	t.Run("a mistake of ours is not put on the caller", func(t *testing.T) {
		t.Parallel()
		for _, trouble := range []error{errMismatch, errBroken} {
			l := newFakeLane(t, Limits{}, 1, func([]int) error { return trouble })
			require.Equal(t, fault.Internal, fault.CodeOf(l.do(t.Context(), 1)))
		}
	})

	t.Run("while the database does not answer, commands are retried until their callers' deadlines", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var away atomic.Bool
			away.Store(true)
			l := newFakeLane(t, Limits{}, 1, func([]int) error {
				if away.Load() {
					return errAway
				}
				return nil
			})
			short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			long := make(chan error, 1)
			go func() { long <- l.do(t.Context(), 1) }()
			began := time.Now()
			requireUnavailable(t, l.do(short, 2))
			require.Equal(t, 3*time.Second, time.Since(began))
			time.Sleep(5 * time.Second)
			synctest.Wait()
			require.Less(t, l.tried(), 50, "it does not hammer a database that does not answer")
			away.Store(false)
			require.NoError(t, <-long)
			require.Equal(t, []int{1}, l.applied())
			require.Equal(t, 1, l.settles, "an earlier try may have been committed")
			l.Stop()
		})
	})

	t.Run("collisions are tried again, with a bound", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var left atomic.Int64
			left.Store(5)
			l := newFakeLane(t, Limits{}, 1, func([]int) error {
				if left.Add(-1) >= 0 {
					return errCollided
				}
				return nil
			})
			require.NoError(t, l.do(t.Context(), 1))
			require.Equal(t, 6, l.tried())
			require.Zero(t, l.settles, "nothing was committed by a collision")
			left.Store(1000)
			require.Error(t, l.do(t.Context(), 2))
			require.Equal(t, 6+maxCollisions+1, l.tried())
			l.Stop()
		})
	})
}
