package worker_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/worker"
)

func TestClaim(t *testing.T) {
	t.Parallel()

	claimsOf := func(b *bundle) []*servov1.ClaimRequest {
		b.mu.Lock()
		defer b.mu.Unlock()
		var out []*servov1.ClaimRequest
		for _, r := range b.requests {
			if c, ok := r.(*servov1.ClaimRequest); ok {
				out = append(out, c)
			}
		}
		return out
	}

	t.Run("a claim whose answer is lost is repeated by its id, and strands nothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": nothing})
			var losses atomic.Int32
			b.do(func() {
				b.after = func(m proto.Message) error {
					if isClaim(m) && losses.Add(1) <= 3 {
						return status.Error(codes.Unavailable, "connection reset")
					}
					return nil
				}
			})
			ids := b.add(4, "gold/a")
			b.ended(t, ids...)
			synctest.Wait() // until the next claim is parked
			claims := claimsOf(b)
			require.GreaterOrEqual(t, len(claims), 5)
			for _, c := range claims[1:4] {
				require.Equal(t, claims[0].GetClaimId(), c.GetClaimId())
			}
			require.NotEqual(t, claims[0].GetClaimId(), claims[len(claims)-1].GetClaimId())
		})
	})

	t.Run("free slots are filled by claims that start, the rest is leased ahead", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			b := start(t, handlers{"gold/a": func(context.Context, *worker.Task) (worker.Result, error) { <-release; return worker.Result{}, nil }},
				func(c *worker.Options) { c.Concurrency = 4; c.Ahead = 2 })
			ids := b.add(10, "gold/a")
			synctest.Wait()
			claims := claimsOf(b)
			require.True(t, claims[0].GetStart())
			require.EqualValues(t, 4, claims[0].GetMax())
			require.False(t, claims[1].GetStart())
			require.EqualValues(t, 2, claims[1].GetMax())
			require.Len(t, claims, 2, "there is no room for more")
			b.do(func() { require.Len(t, b.queue, 4) })
			close(release)
			b.ended(t, ids...)
			require.Equal(t, []string{"Start", "Complete"}, b.lease(ids[4]).actions)
		})
	})

	t.Run("a lease that has expired before a slot was free is not begun", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var begun atomic.Int32
			b := start(t, handlers{"gold/a": func(context.Context, *worker.Task) (worker.Result, error) {
				if begun.Add(1) == 1 {
					time.Sleep(10 * time.Minute)
				}
				return worker.Result{}, nil
			}}, func(c *worker.Options) { c.Concurrency = 1; c.Ahead = 1 })
			ids := b.add(2, "gold/a")
			b.wait(t, func() bool { return b.leases[ids[1]] != nil })
			synctest.Wait() // until it has begun
			b.do(func() {
				b.before = func(m proto.Message) error {
					if _, beat := m.(*servov1.HeartbeatRequest); beat {
						return status.Error(codes.Unavailable, "no heartbeat arrives")
					}
					return nil
				}
			})
			b.ended(t, ids[0])
			synctest.Wait()
			require.EqualValues(t, 1, begun.Load())
			require.Equal(t, "DISPATCHED", b.lease(ids[1]).state)
		})
	})

	t.Run("heartbeats keep leased tasks that wait for a slot", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": func(context.Context, *worker.Task) (worker.Result, error) {
				time.Sleep(10 * time.Minute)
				return worker.Result{}, nil
			}}, func(c *worker.Options) { c.Concurrency = 1; c.Ahead = 1 })
			ids := b.add(2, "gold/a")
			b.ended(t, ids...)
			require.Equal(t, "Complete", b.lease(ids[1]).state)
			require.Greater(t, b.lease(ids[1]).beats, 60)
		})
	})

	t.Run("a server that answers claims at once with nothing is not asked without a pause", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{})
			b.do(func() {
				b.before = func(m proto.Message) error {
					if c, ok := m.(*servov1.ClaimRequest); ok {
						c.Wait = nil
					}
					return nil
				}
			})
			time.Sleep(5 * time.Minute)
			require.Less(t, b.count(isClaim), 400)
		})
	})

	t.Run("a claim that is refused is tried again, later", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": nothing})
			b.refuseCalls(isClaim, codes.FailedPrecondition, "the pool is being changed")
			id := b.add(1, "gold/a")[0]
			time.Sleep(time.Minute)
			b.do(func() { b.before = nil })
			b.ended(t, id)
		})
	})
}

// TestDenied checks that a worker whose key is refused ends, and reports what was refused.
// TestSettledClaims: a heartbeat names the claims that are over, and lists every lease that they have
// returned and that has not ended, so that the server knows which ones the worker has not received.
func TestSettledClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, handlers{"gold/a": untilCancelled})
		var beats []*servov1.HeartbeatRequest
		var claims []string
		b.do(func() {
			b.before = func(m proto.Message) error {
				switch m := m.(type) {
				case *servov1.HeartbeatRequest:
					beats = append(beats, m)
				case *servov1.ClaimRequest:
					if n := len(claims); n == 0 || claims[n-1] != m.GetClaimId() {
						claims = append(claims, m.GetClaimId())
					}
				}
				return nil
			}
		})
		time.Sleep(time.Minute) // no lease is held: it nevertheless beats
		ids := b.add(2, "gold/a")
		time.Sleep(time.Minute)
		b.do(func() {
			require.True(t, slices.IsSorted(claims), "ids ascend")
			require.NotEmpty(t, beats)
			last := beats[len(beats)-1]
			require.Len(t, last.GetLeases(), len(ids))
			settled := last.GetSettled()
			require.Equal(t, settled.GetFirst()[:18], settled.GetLast()[:18], "one process")
			require.LessOrEqual(t, settled.GetFirst(), claims[0])
			require.Less(t, settled.GetLast(), claims[len(claims)-1], "the claim that waits is not over")
			for _, id := range claims {
				_, err := uuid.Parse(id)
				require.NoError(t, err)
			}
			for _, beat := range beats {
				require.NotNil(t, beat.GetSettled())
			}
		})
	})
}

func TestDenied(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]fault.Code{codes.Unauthenticated: fault.Unauthenticated, codes.PermissionDenied: fault.Forbidden} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := start(t, handlers{"gold/a": nothing})
				b.do(func() {
					b.before = func(m proto.Message) error {
						if isClaim(m) {
							return status.Error(code, "the key was revoked")
						}
						return nil
					}
				})
				time.Sleep(time.Minute)
				claims := b.count(isClaim)
				time.Sleep(time.Minute)
				require.Equal(t, claims, b.count(isClaim), "it asks no more")
				err := b.stopped()
				require.True(t, fault.Is(err, want), "%v", err)
				require.ErrorContains(t, err, "the key was revoked")
			})
		})
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()

	t.Run("a cancelled task's context ends with the cause, and the task is reported as cancelled", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			causes := make(chan error, 1)
			b := start(t, handlers{"gold/a": func(ctx context.Context, task *worker.Task) (worker.Result, error) {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return worker.Result{}, ctx.Err()
			}})
			id := b.add(1, "gold/a")[0]
			b.wait(t, func() bool { return b.leases[id] != nil })
			synctest.Wait() // until it has begun
			b.do(func() { b.leases[id].cancel = true })
			b.ended(t, id)
			require.ErrorIs(t, <-causes, worker.ErrCancelled)
			require.Equal(t, "CANCELLED", b.lease(id).failure.GetCode())
		})
	})

	t.Run("a lost lease ends the context, and nothing is reported any more", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			causes, asked := make(chan error, 1), make(chan error, 1)
			b := start(t, handlers{"gold/a": func(ctx context.Context, task *worker.Task) (worker.Result, error) {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				task.Logger().Info("too late")
				asked <- task.Advance(context.WithoutCancel(ctx), "1")
				return worker.Result{JSON: []byte(`1`)}, nil
			}})
			id := b.add(1, "gold/a")[0]
			b.wait(t, func() bool { return b.leases[id] != nil })
			synctest.Wait() // until it has begun
			b.do(func() { b.leases[id].lost = true })
			require.ErrorIs(t, <-causes, worker.ErrLeaseLost)
			require.ErrorIs(t, <-asked, worker.ErrLeaseLost)
			require.NoError(t, b.stopped())
			require.Zero(t, b.count(isReport))
		})
	})

	t.Run("a leased task whose run is cancelled before it began is given up", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": untilCancelled}, func(c *worker.Options) { c.Concurrency = 1; c.Ahead = 1 })
			ids := b.add(2, "gold/a")
			b.wait(t, func() bool { return b.leases[ids[1]] != nil })
			synctest.Wait() // until it has begun
			b.do(func() { b.leases[ids[1]].cancel = true })
			b.ended(t, ids[1])
			require.Equal(t, "CANCELLED", b.lease(ids[1]).failure.GetCode())
			require.Equal(t, "RUNNING", b.lease(ids[0]).state)
		})
	})

	t.Run("a task that began while its run was being cancelled is stopped by the answer to its start", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			for _, quick := range []bool{false, true} {
				release := make(chan struct{})
				b := start(t, handlers{
					"gold/slow": func(context.Context, *worker.Task) (worker.Result, error) { <-release; return worker.Result{}, nil },
					"gold/a": func(ctx context.Context, task *worker.Task) (worker.Result, error) {
						if quick {
							return worker.Result{}, nil
						}
						return untilCancelled(ctx, task)
					},
				}, func(c *worker.Options) {
					c.Concurrency = 1
					c.Ahead = 1
					c.Lease = 5 * time.Minute
					c.HeartbeatEvery = 4 * time.Minute
				})
				slow := b.add(1, "gold/slow")[0]
				b.wait(t, func() bool { return b.leases[slow] != nil })
				synctest.Wait() // until it has begun
				id := b.add(1, "gold/a")[0]
				b.wait(t, func() bool { return b.leases[id] != nil })
				synctest.Wait() // until it has begun
				b.do(func() { b.leases[id].cancel = true })
				before := time.Now()
				close(release)
				b.ended(t, id)
				require.Equal(t, "CANCELLED", b.lease(id).failure.GetCode())
				require.Less(t, time.Since(before), time.Minute, "no heartbeat was needed")
			}
		})
	})

	t.Run("a result is not repeated endlessly once its lease is lost", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": nothing})
			b.refuseCalls(isReport, codes.Unavailable, "busy")
			id := b.add(1, "gold/a")[0]
			b.wait(t, func() bool { return b.counted(isReport) > 1 })
			b.do(func() { b.leases[id].lost = true })
			time.Sleep(time.Minute)
			reports := b.count(isReport)
			time.Sleep(time.Minute)
			require.Equal(t, reports, b.count(isReport))
			require.NoError(t, b.stopped(), "nothing is left to report")
		})
	})

	t.Run("a lease that the server does not understand takes no other with it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": untilCancelled})
			ids := b.add(4, "gold/a")
			b.do(func() {
				b.before = func(m proto.Message) error {
					if beat, ok := m.(*servov1.HeartbeatRequest); ok {
						for _, l := range beat.GetLeases() {
							if l.GetLease() == ids[2] {
								return status.Error(codes.InvalidArgument, "what is this?")
							}
						}
					}
					return nil
				}
			})
			time.Sleep(time.Minute)
			for i, id := range ids {
				require.Equal(t, i != 2, b.lease(id).beats > 0)
			}
		})
	})

	t.Run("a task that runs past its timeout gets the reason", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": untilCancelled})
			id := b.add(1, "gold/a")[0]
			before := time.Now()
			b.ended(t, id)
			require.Equal(t, time.Hour, time.Since(before))
			require.Equal(t, "TIMEOUT", b.lease(id).failure.GetCode())
			require.Equal(t, "ran longer than its timeout of 1h0m0s: context deadline exceeded", b.lease(id).failure.GetMessage())
		})
	})
}
