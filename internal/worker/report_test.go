package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
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

func TestReport(t *testing.T) {
	t.Parallel()

	t.Run("what a function returns is the task's result", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": returns(`{"rows":3,"ok":true,"names":["x",null]}`)})
			id := b.add(1, "gold/a")[0]
			b.ended(t, id)
			require.Equal(t, "Complete", b.lease(id).state)
			require.Equal(t, map[string]any{"rows": 3.0, "ok": true, "names": []any{"x", nil}}, b.lease(id).result.AsInterface())
			require.Equal(t, []string{"Complete"}, b.lease(id).actions, "it was claimed and started in one step")
		})
	})

	t.Run("a thousand short tasks need few calls, and no lease is in two at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": nothing}, func(c *worker.Options) { c.Concurrency = 200; c.Ahead = 100 })
			b.do(func() { b.before = func(proto.Message) error { time.Sleep(5 * time.Millisecond); return nil } })
			ids := b.add(1000, "gold/a")
			b.ended(t, ids...)
			require.Less(t, b.count(isReport), 100)
			require.Zero(t, b.overlaps)
		})
	})

	t.Run("a report whose answer is lost is sent again, and applied once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": returns(`1`)})
			var losses atomic.Int32
			b.do(func() {
				b.after = func(m proto.Message) error {
					if isReport(m) && losses.Add(1) < 4 {
						return status.Error(codes.Unavailable, "connection reset")
					}
					return nil
				}
			})
			id := b.add(1, "gold/a")[0]
			b.wait(t, func() bool { return b.counted(isReport) >= 4 })
			synctest.Wait()
			require.Equal(t, []string{"Complete"}, b.lease(id).actions)
			require.Equal(t, 4, b.count(isReport))
			require.NoError(t, b.stopped())
		})
	})

	t.Run("a result survives a server that does not answer for an hour", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": func(ctx context.Context, _ *worker.Task) (worker.Result, error) {
				time.Sleep(time.Minute)
				return worker.Result{JSON: []byte(`"done"`)}, nil
			}})
			id := b.add(1, "gold/a")[0]
			b.wait(t, func() bool { return b.leases[id] != nil })
			synctest.Wait() // until it has begun
			b.do(func() { b.before = func(proto.Message) error { return status.Error(codes.Unavailable, "away") } })
			time.Sleep(time.Hour)
			require.Equal(t, "RUNNING", b.lease(id).state)
			b.do(func() { b.before = nil })
			b.ended(t, id)
			require.Equal(t, "done", b.lease(id).result.GetStringValue())
		})
	})

	t.Run("a start and its end keep their order when the server is too busy for the start", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			b := start(t, handlers{
				"gold/a":    nothing,
				"gold/slow": func(context.Context, *worker.Task) (worker.Result, error) { <-release; return worker.Result{}, nil },
			}, func(c *worker.Options) { c.Concurrency = 1; c.Ahead = 1 })
			slow := b.add(1, "gold/slow")[0]
			b.wait(t, func() bool { return b.leases[slow] != nil })
			synctest.Wait() // until it has begun
			id := b.add(1, "gold/a")[0]
			b.wait(t, func() bool { return b.leases[id] != nil })
			synctest.Wait() // until it has begun
			busy := 3
			b.do(func() {
				b.refuse = func(it *servov1.ReportItem) *servov1.Problem {
					if it.GetStart() != nil && busy > 0 {
						busy--
						return &servov1.Problem{Code: string(fault.Unavailable), Message: "too much to do"}
					}
					return nil
				}
			})
			close(release)
			b.ended(t, slow, id)
			require.Equal(t, "Complete", b.lease(id).state)
			require.Equal(t, []string{"Start", "Complete"}, b.lease(id).actions[len(b.lease(id).actions)-2:])
		})
	})

	t.Run("a result that the server refuses fails the task with the reason", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": returns(`"\u0000"`)})
			b.do(func() {
				b.refuse = func(it *servov1.ReportItem) *servov1.Problem {
					if it.GetComplete() != nil {
						return &servov1.Problem{Code: string(fault.InvalidArgument), Message: "contains a zero byte", Field: "result"}
					}
					return nil
				}
			})
			id := b.add(1, "gold/a")[0]
			b.ended(t, id)
			require.Equal(t, "USER_CODE_EXCEPTION", b.lease(id).failure.GetCode())
			require.Equal(t, "the server refuses the result: result: contains a zero byte", b.lease(id).failure.GetMessage())
		})
	})

	t.Run("a call that is refused as a whole is split, and only the item to blame suffers", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": nothing, "gold/big": returns(`"big"`)}, func(c *worker.Options) { c.Concurrency = 50 })
			var open atomic.Bool
			b.do(func() {
				b.before = func(m proto.Message) error {
					if r, ok := m.(*servov1.ReportRequest); ok {
						if !open.Load() {
							return status.Error(codes.Unavailable, "not yet")
						}
						for _, it := range r.GetItems() {
							if it.GetComplete().GetResult() != nil {
								return status.Error(codes.ResourceExhausted, "received message larger than max")
							}
						}
					}
					return nil
				}
			})
			ids := b.add(20, "gold/a")
			ids = append(ids, b.add(1, "gold/big")...)
			ids = append(ids, b.add(20, "gold/a")...)
			time.Sleep(10 * time.Second) // all have ended and wait for the server
			open.Store(true)
			b.ended(t, ids...)
			for i, id := range ids {
				if i == 20 {
					require.Equal(t, "Fail", b.lease(id).state)
					require.Contains(t, b.lease(id).failure.GetMessage(), "larger than max")
				} else {
					require.Equal(t, "Complete", b.lease(id).state)
				}
			}
		})
	})

	t.Run("an item that breaks the server repeatedly is dropped, and delays no other", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": nothing, "gold/bad": returns(`"bad"`)})
			b.do(func() {
				b.refuse = func(it *servov1.ReportItem) *servov1.Problem {
					if it.GetComplete().GetResult() != nil {
						return &servov1.Problem{Code: string(fault.Internal), Message: "something went wrong on our side"}
					}
					return nil
				}
			})
			bad := b.add(2, "gold/bad")
			good := b.add(100, "gold/a")
			b.ended(t, good...)
			b.ended(t, bad...)
			require.Equal(t, "Fail", b.lease(bad[0]).state)
			require.Contains(t, b.lease(bad[1]).failure.GetMessage(), "something went wrong on our side")
		})
	})

	t.Run("a parked claim holds no report back", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": nothing})
			id := b.add(1, "gold/a")[0]
			before := time.Now()
			b.ended(t, id)
			synctest.Wait()
			require.Zero(t, time.Since(before))
			require.Equal(t, 2, b.count(isClaim), "the second is parked")
		})
	})

	t.Run("nothing more is claimed while too many reports wait", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": nothing}, func(c *worker.Options) { c.Concurrency = 1000 })
			stuck := make(chan struct{})
			b.do(func() { b.delay = func(proto.Message) <-chan struct{} { return stuck } })
			ids := b.add(10_000, "gold/a")
			synctest.Wait()
			b.do(func() { require.InDelta(t, 5000, len(b.leases), 1001) })
			close(stuck)
			b.ended(t, ids...)
		})
	})
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		handler       worker.Handler
		code, message string
	}{
		"an error is the user's": {
			func(context.Context, *worker.Task) (worker.Result, error) { return worker.Result{}, boom }, "USER_CODE_EXCEPTION", "boom",
		},
		"a coded error has its code": {
			func(context.Context, *worker.Task) (worker.Result, error) {
				return worker.Result{}, &worker.Error{Code: "RATE_LIMITED", Cause: boom}
			}, "RATE_LIMITED", "boom",
		},
		"a panic is reported with its value": {
			func(context.Context, *worker.Task) (worker.Result, error) { panic("at the disco") }, "USER_CODE_EXCEPTION", "panic: at the disco",
		},
		"a result that is no JSON is reported": {returns(`{`), "USER_CODE_EXCEPTION", "the result is not JSON: unexpected EOF"},
		"a result that is too large is reported": {
			returns(`"` + strings.Repeat("x", 64<<10) + `"`), "USER_CODE_EXCEPTION", "the result has 65538 bytes, the limit is 65536",
		},
		"an integer that would arrive as another is reported": {
			returns(`{"id":9007199254740993}`), "USER_CODE_EXCEPTION",
			`the result has an inexact number at id: "9007199254740993" cannot be kept exactly: ` +
				`numbers have the range and precision of an IEEE double (send it as a string)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := start(t, handlers{"gold/a": c.handler})
				id := b.add(1, "gold/a")[0]
				b.ended(t, id)
				require.Equal(t, c.code, b.lease(id).failure.GetCode())
				require.Equal(t, c.message, b.lease(id).failure.GetMessage())
			})
		})
	}
}
