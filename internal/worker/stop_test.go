package worker_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/worker"
)

func TestStop(t *testing.T) {
	t.Parallel()

	t.Run("tasks continue for the grace, unstarted ones are returned at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": func(context.Context, *worker.Task) (worker.Result, error) {
				time.Sleep(20 * time.Second)
				return worker.Result{}, nil
			}}, func(c *worker.Options) { c.Concurrency = 1; c.Ahead = 1 })
			ids := b.add(2, "gold/a")
			b.wait(t, func() bool { return b.leases[ids[1]] != nil })
			synctest.Wait() // until it has begun
			b.stop()
			synctest.Wait()
			require.Equal(t, "INTERRUPTED", b.lease(ids[1]).failure.GetCode())
			require.Equal(t, "RUNNING", b.lease(ids[0]).state)
			require.NoError(t, b.stopped())
			require.Equal(t, "Complete", b.lease(ids[0]).state)
		})
	})

	t.Run("a task that outlasts the grace is interrupted, with the reason", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			causes := make(chan error, 1)
			b := start(t, handlers{"gold/a": func(ctx context.Context, _ *worker.Task) (worker.Result, error) {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return worker.Result{}, ctx.Err()
			}})
			id := b.add(1, "gold/a")[0]
			b.wait(t, func() bool { return b.leases[id] != nil })
			synctest.Wait() // until it has begun
			before := time.Now()
			require.NoError(t, b.stopped())
			require.Equal(t, 30*time.Second, time.Since(before))
			require.ErrorIs(t, <-causes, worker.ErrInterrupted)
			require.Equal(t, "INTERRUPTED", b.lease(id).failure.GetCode())
		})
	})

	t.Run("a task that is interrupted may yield instead", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": func(ctx context.Context, _ *worker.Task) (worker.Result, error) {
				<-ctx.Done()
				cursor := "page-7"
				return worker.Result{}, &worker.YieldError{Cursor: &cursor}
			}})
			id := b.add(1, "gold/a")[0]
			b.wait(t, func() bool { return b.leases[id] != nil })
			synctest.Wait() // until it has begun
			require.NoError(t, b.stopped())
			require.Equal(t, "Yield", b.lease(id).state)
			require.Equal(t, "page-7", b.lease(id).cursor)
		})
	})

	t.Run("a task that does not listen is abandoned, and reported as interrupted once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			b := start(t, handlers{"gold/a": func(context.Context, *worker.Task) (worker.Result, error) { <-release; return worker.Result{}, nil }})
			id := b.add(1, "gold/a")[0]
			b.wait(t, func() bool { return b.leases[id] != nil })
			synctest.Wait() // until it has begun
			require.NoError(t, b.stopped())
			require.Equal(t, []string{"Fail"}, b.lease(id).actions)
			require.Equal(t, "INTERRUPTED", b.lease(id).failure.GetCode())
			close(release)
			synctest.Wait()
			require.Equal(t, []string{"Fail"}, b.lease(id).actions)
		})
	})

	t.Run("an abort interrupts without grace", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": untilCancelled})
			id := b.add(1, "gold/a")[0]
			b.wait(t, func() bool { return b.leases[id] != nil })
			synctest.Wait() // until it has begun
			before := time.Now()
			b.worker.Abort()
			require.NoError(t, b.stopped())
			require.Zero(t, time.Since(before))
			require.Equal(t, "INTERRUPTED", b.lease(id).failure.GetCode())
		})
	})

	t.Run("what a claim was given while the worker stopped is given back", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": nothing})
			synctest.Wait()
			lost := false
			b.do(func() {
				b.after = func(m proto.Message) error {
					if isClaim(m) && !lost {
						lost = true
						b.stop()
						return status.Error(codes.Canceled, "the caller has gone")
					}
					return nil
				}
			})
			// The parked claim has taken its faults along already: let it end, and lose the next.
			time.Sleep(31 * time.Second)
			id := b.add(1, "gold/a")[0]
			require.NoError(t, b.stopped())
			require.True(t, lost)
			require.Equal(t, "INTERRUPTED", b.lease(id).failure.GetCode())
		})
	})

	t.Run("a worker that could not report everything logs how much", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": nothing})
			b.refuseCalls(isReport, codes.Unavailable, "away")
			id := b.add(1, "gold/a")[0]
			b.wait(t, func() bool { return b.leases[id] != nil })
			synctest.Wait() // until it has begun
			before := time.Now()
			err := b.stopped()
			require.True(t, fault.Is(err, fault.Unavailable), err)
			require.ErrorContains(t, err, "1 reports could not be delivered")
			require.Less(t, time.Since(before), time.Minute)
		})
	})

	t.Run("a function that ends its goroutine costs no slot", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{
				"gold/a": nothing,
				"gold/exit": func(context.Context, *worker.Task) (worker.Result, error) {
					runtime.Goexit()
					return worker.Result{}, nil
				},
			}, func(c *worker.Options) { c.Concurrency = 1; c.Ahead = 5 })
			exits := b.add(5, "gold/exit")
			rest := b.add(5, "gold/a")
			b.ended(t, exits...)
			b.ended(t, rest...)
			require.Contains(t, b.lease(exits[0]).failure.GetMessage(), "runtime.Goexit")
			require.Equal(t, "Complete", b.lease(rest[4]).state)
			require.NoError(t, b.stopped())
		})
	})

	t.Run("a worker runs once", func(t *testing.T) {
		t.Parallel()
		w, err := worker.New(worker.Options{Conn: newFake()})
		require.NoError(t, err)
		w.Abort()
		require.NoError(t, w.Run(t.Context()))
		require.True(t, fault.Is(w.Run(t.Context()), fault.Conflict))
	})

	t.Run("a configuration that cannot work is refused by the field", func(t *testing.T) {
		t.Parallel()
		for field, config := range map[string]worker.Options{
			"server":          {},
			"concurrency":     {Conn: newFake(), Concurrency: -1},
			"ahead":           {Conn: newFake(), Ahead: -2},
			"lease":           {Conn: newFake(), Lease: time.Millisecond},
			"grace":           {Conn: newFake(), Grace: -1},
			"heartbeat_every": {Conn: newFake(), Lease: time.Second, HeartbeatEvery: time.Second},
			"executors":       {Conn: newFake(), Executors: []worker.Executor{&worker.Exec{}, &worker.Exec{}}},
		} {
			_, err := worker.New(config)
			f, ok := fault.As(err)
			require.True(t, ok, field)
			require.Equal(t, field, f.Violation.Field)
		}
	})
}

func TestUnknownCode(t *testing.T) {
	t.Parallel()

	t.Run("a missing handler is reported with the existing ones", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/revenue": nothing, "gold/report": nothing})
			id := b.add(1, "gold/revenu")[0]
			b.ended(t, id)
			require.Equal(t, "NOT_IMPLEMENTED", b.lease(id).failure.GetCode())
			require.Equal(t, "this worker has no handler gold/revenu; did you mean gold/revenue? (it has: gold/report, gold/revenue)",
				b.lease(id).failure.GetMessage())
		})
	})

	t.Run("so is a kind of code", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{})
			id := b.add(1, "gold/a", func(l *servov1.Lease) {
				l.Code = &servov1.Code{Kind: &servov1.Code_Exec{Exec: &servov1.ExecCode{Command: []string{"true"}}}}
			})[0]
			b.ended(t, id)
			require.Equal(t, "NOT_IMPLEMENTED", b.lease(id).failure.GetCode())
			require.Equal(t, `this worker does not execute assets of kind "exec", only ["go"]`, b.lease(id).failure.GetMessage())
		})
	})
}
