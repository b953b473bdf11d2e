package loop_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/loop"
)

func TestLoop(t *testing.T) {
	t.Parallel()

	t.Run("it keeps its interval, and continues at once while there is more", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var runs atomic.Int32
			l := loop.Start(loop.Config{Name: "test", Every: time.Minute, RunOnce: func(context.Context) (bool, error) {
				return runs.Add(1) < 5, nil
			}})
			synctest.Wait()
			require.EqualValues(t, 5, runs.Load(), "no pause while there is more")
			time.Sleep(59 * time.Second)
			synctest.Wait()
			require.EqualValues(t, 5, runs.Load())
			time.Sleep(2 * time.Second)
			synctest.Wait()
			require.EqualValues(t, 6, runs.Load())
			l.Stop()
		})
	})

	t.Run("a signal that comes during the work is not lost", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			wake := make(chan struct{})
			var runs atomic.Int32
			l := loop.Start(loop.Config{
				Name: "test", Every: time.Hour,
				Wake: func() <-chan struct{} { return wake },
				RunOnce: func(context.Context) (bool, error) {
					if runs.Add(1) == 1 {
						close(wake) // while the loop is looking
						wake = make(chan struct{})
					}
					return false, nil
				},
			})
			time.Sleep(time.Second)
			synctest.Wait()
			require.EqualValues(t, 2, runs.Load())
			l.Stop()
		})
	})

	t.Run("errors slow it down and do not end it; success restores its pace", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var runs atomic.Int32
			l := loop.Start(loop.Config{Name: "test", Every: time.Second, RunOnce: func(context.Context) (bool, error) {
				if runs.Add(1) <= 10 {
					return true, errors.New("boom")
				}
				return false, nil
			}})
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			require.Greater(t, runs.Load(), int32(50))
			l.Stop()
		})
	})

	t.Run("the first error is followed by a try at once, whatever the pace", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var runs atomic.Int32
			l := loop.Start(loop.Config{Name: "test", Every: time.Hour, RunOnce: func(context.Context) (bool, error) {
				if runs.Add(1) == 1 {
					return false, errors.New("a connection was cut")
				}
				return false, nil
			}})
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			require.EqualValues(t, 2, runs.Load())
			l.Stop()
		})
	})

	t.Run("however long the trouble was, its end is noticed within two rounds", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			over := time.Now().Add(time.Minute)
			var first atomic.Pointer[time.Time]
			l := loop.Start(loop.Config{Name: "test", Every: time.Second, RunOnce: func(context.Context) (bool, error) {
				now := time.Now()
				if now.Before(over) {
					return false, errors.New("the database does not answer")
				}
				first.CompareAndSwap(nil, &now)
				return false, nil
			}})
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			l.Stop()
			require.NotNil(t, first.Load())
			require.LessOrEqual(t, first.Load().Sub(over), 2*time.Second)
		})
	})

	t.Run("work whose context has ended is abandoned and started again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var runs atomic.Int32
			l := loop.Start(loop.Config{Name: "test", Every: time.Second, RunOnce: func(ctx context.Context) (bool, error) {
				if runs.Add(1) == 1 {
					<-ctx.Done() // a connection whose other end is gone without a word
					return false, ctx.Err()
				}
				return false, nil
			}})
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			require.Greater(t, runs.Load(), int32(50))
			l.Stop()
		})
	})

	t.Run("stop cancels the work in hand and waits for it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ended := false
			l := loop.Start(loop.Config{Name: "test", Every: time.Second, RunOnce: func(ctx context.Context) (bool, error) {
				<-ctx.Done()
				time.Sleep(time.Second)
				ended = true
				return false, ctx.Err()
			}})
			synctest.Wait()
			l.Stop()
			require.True(t, ended)
		})
	})
}
