package servo_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/push"
)

func TestPush(t *testing.T) {
	t.Parallel()

	t.Run("a pushed task has its parameters and upstreams, and reports progress", func(t *testing.T) {
		t.Parallel()
		p, _ := newPushPool(t, func(w *servo.Worker) {
			servo.Asset(w, "total", func(ctx context.Context, task *servo.Task, in struct{ Region string }) (Revenue, error) {
				orders, err := servo.Upstream[[]Order](ctx, task, "bronze/orders")
				if err != nil {
					return Revenue{}, err
				}
				task.Log().Info("summing", "orders", len(orders), "attempt", task.Attempt)
				task.Progress(servo.Progress{Fraction: 0.5})
				ids, err := task.FanOut(ctx, []servo.Mapped{{Asset: "gold/part", Partition: "a"}, {Asset: "gold/part", Partition: "b"}})
				if err != nil || len(ids) != 2 {
					return Revenue{}, fmt.Errorf("%v: %w", ids, err)
				}
				return Revenue{Region: in.Region + task.Cursor(), Total: orders[0].Amount}, task.Advance(ctx, "page 8")
			})
		})
		a := p.ended(p.push("gold/revenue", func(e *push.Envelope) {
			e.Entrypoint, e.Parameters, e.Cursor = "total", json.RawMessage(`{"Region":"eu"}`), "!"
			e.Upstream = []push.Upstream{{Run: e.Run, Task: e.Task, Asset: "bronze/orders", Result: json.RawMessage(`[{"amount":12.5}]`)}}
		}))
		require.Nil(t, a.fail)
		require.Equal(t, map[string]any{"region": "eu!", "total": 12.5}, a.complete.GetResult().AsInterface())
		require.Equal(t, 1, a.started)
		require.Contains(t, a.log, "summing orders=1 attempt=1")
		require.NotEmpty(t, a.progress)
		require.Equal(t, "page 8", a.cursor)
		require.Len(t, a.fanned, 2)
	})

	t.Run("an envelope that comes many times is executed once", func(t *testing.T) {
		t.Parallel()
		var ran atomic.Int64
		p, _ := newPushPool(t, func(w *servo.Worker) {
			servo.Asset(w, "gold/a", func(context.Context, *servo.Task, servo.None) (int, error) { return int(ran.Add(1)), nil })
		})
		a := p.sign("gold/a")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				status, _ := p.post(a.envelope)
				if status != http.StatusAccepted {
					t.Errorf("status %d", status)
				}
			})
		}
		all.Wait()
		p.ended(a)
		status, answer := p.post(a.envelope)
		require.Equal(t, http.StatusAccepted, status)
		require.Regexp(t, `^{"instance":"[-0-9a-f]{36}","repeat":true,"status":"ACCEPTED"}\s*$`, answer)
		p.ended(p.push("gold/a")) // what was to run twice would have by now
		require.EqualValues(t, 2, ran.Load())
	})

	t.Run("an invalid envelope gets one answer and is not executed", func(t *testing.T) {
		t.Parallel()
		p, _ := newPushPool(t, func(w *servo.Worker) {
			servo.Asset(w, "gold/a", func(context.Context, *servo.Task, servo.None) (int, error) { return 0, nil })
		})
		a := p.sign("gold/a")
		other, err := push.NewKey(rand.Reader, time.Now())
		require.NoError(t, err)
		foreign, err := push.Sign(push.Envelope{Pool: "gpu", Asset: "gold/a"}, other, time.Now(), time.Minute, rand.Reader)
		require.NoError(t, err)
		elsewhere, err := push.Sign(push.Envelope{Pool: "cpu", Asset: "gold/a"}, p.keys[0], time.Now(), time.Minute, rand.Reader)
		require.NoError(t, err)
		old, err := push.Sign(push.Envelope{Pool: "gpu", Asset: "gold/a"}, p.keys[0], time.Now().Add(-time.Hour), time.Minute, rand.Reader)
		require.NoError(t, err)
		for _, body := range [][]byte{
			nil, []byte("{}"), bytes.Replace(a.envelope, []byte("gold/a"), []byte("gold/b"), 1), append(a.envelope, ' '), foreign, elsewhere, old,
			bytes.Repeat([]byte("x"), push.MaxEnvelope+1),
		} {
			status, answer := p.post(body)
			require.Equal(t, http.StatusForbidden, status)
			require.JSONEq(t, `{"code":"FORBIDDEN","message":"the signature is not valid","status":403}`, answer)
		}
		response, err := p.worker.Client().Get(p.worker.URL)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusMethodNotAllowed, response.StatusCode)
		require.Zero(t, a.started)
	})

	t.Run("a failure carries its code, a yield its cursor", func(t *testing.T) {
		t.Parallel()
		p, _ := newPushPool(t, func(w *servo.Worker) {
			servo.Asset(w, "gold/fails", func(context.Context, *servo.Task, servo.None) (int, error) {
				return 0, servo.Fail(servo.RateLimited, errors.New("slow down"))
			})
			servo.Asset(w, "gold/yields", func(context.Context, *servo.Task, servo.None) (int, error) { return 0, servo.Yield("page 2") })
		})
		failed, yielded, unknown := p.ended(p.push("gold/fails")), p.ended(p.push("gold/yields")), p.ended(p.push("gold/unknown"))
		require.Equal(t, "RATE_LIMITED", failed.fail.GetError().GetCode())
		require.Equal(t, "slow down", failed.fail.GetError().GetMessage())
		require.Equal(t, "page 2", yielded.yield.GetCursor())
		require.Equal(t, "NOT_IMPLEMENTED", unknown.fail.GetError().GetCode())
	})
}

// until is a function that runs until its context ends, and returns the cause.
func until(why chan error) func(context.Context, *servo.Task, servo.None) (int, error) {
	return func(ctx context.Context, _ *servo.Task, _ servo.None) (int, error) {
		why <- nil // it runs
		<-ctx.Done()
		why <- context.Cause(ctx)
		return 0, ctx.Err()
	}
}

func TestPushedLife(t *testing.T) {
	t.Parallel()

	t.Run("a cancel comes with a heartbeat's answer", func(t *testing.T) {
		t.Parallel()
		why := make(chan error, 1)
		p, _ := newPushPool(t, func(w *servo.Worker) { servo.Asset(w, "gold/a", until(why)) })
		a := p.push("gold/a")
		require.NoError(t, <-why)
		p.wait(func() bool { return a.beats >= 2 })
		p.do(func() { a.cancel = true })
		p.ended(a)
		require.ErrorIs(t, <-why, servo.ErrCancelled)
		require.Equal(t, "CANCELLED", a.fail.GetError().GetCode())
	})

	t.Run("a task with a lost lease is abandoned without a report", func(t *testing.T) {
		t.Parallel()
		why := make(chan error, 1)
		p, _ := newPushPool(t, func(w *servo.Worker) { servo.Asset(w, "gold/a", until(why)) })
		a := p.push("gold/a")
		require.NoError(t, <-why)
		p.do(func() { a.lost = true })
		require.ErrorIs(t, <-why, servo.ErrLeaseLost)
		require.Nil(t, a.fail)
	})

	t.Run("URLs of a heartbeat answer replace the old ones", func(t *testing.T) {
		t.Parallel()
		release := make(chan struct{})
		p, _ := newPushPool(t, func(w *servo.Worker) {
			servo.Asset(w, "gold/a", func(context.Context, *servo.Task, servo.None) (int, error) { <-release; return 1, nil })
		})
		a := p.push("gold/a")
		p.wait(func() bool { return a.started == 1 })
		p.do(func() { p.renew = true })
		p.wait(func() bool { return a.callback.Token == 8 })
		beats := a.beats
		p.wait(func() bool { return a.beats > beats }) // at the new URL
		close(release)
		p.ended(a)
		require.Equal(t, []int64{7, 8}, a.tokens)
	})

	t.Run("an end is reported until it is answered", func(t *testing.T) {
		t.Parallel()
		p, _ := newPushPool(t, func(w *servo.Worker) {
			servo.Asset(w, "gold/a", func(context.Context, *servo.Task, servo.None) (string, error) { return "kept", nil })
		})
		refusals := []int{http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusTooManyRequests, http.StatusInternalServerError}
		p.do(func() {
			p.before = func(action push.Action) int {
				if action != push.ActionReport || len(refusals) == 0 {
					return 0
				}
				status := refusals[0]
				refusals = refusals[1:]
				return status
			}
		})
		a := p.ended(p.push("gold/a"))
		require.Empty(t, refusals)
		require.Equal(t, "kept", a.complete.GetResult().GetStringValue())
	})

	t.Run("results that were left out are read", func(t *testing.T) {
		t.Parallel()
		p, _ := newPushPool(t, func(w *servo.Worker) {
			servo.Asset(w, "gold/a", func(ctx context.Context, task *servo.Task, _ servo.None) (string, error) {
				large, err := servo.Upstream[string](ctx, task, "bronze/large")
				if err != nil {
					return "", err
				}
				var parts []string
				for part, err := range servo.MappedResults[string](ctx, task, "silver/part") {
					if err != nil {
						return "", err
					}
					parts = append(parts, part.Value)
				}
				return large + " " + strings.Join(parts, "+"), nil
			})
		})
		a := p.sign("gold/a", func(e *push.Envelope) {
			e.Upstream = []push.Upstream{{Run: e.Run, Task: e.Task, Asset: "bronze/large", Omitted: true}}
		})
		a.results = []*servov1.UpstreamTask{
			{Asset: "silver/part", Result: structpb.NewStringValue("one")}, {Asset: "silver/part", Result: structpb.NewStringValue("two")},
		}
		status, _ := p.post(a.envelope)
		require.Equal(t, http.StatusAccepted, status)
		require.Equal(t, "large one+two", p.ended(a).complete.GetResult().GetStringValue(), a.fail)
	})

	t.Run("a shutdown takes no more, interrupts, and reports", func(t *testing.T) {
		t.Parallel()
		why := make(chan error, 1)
		p, h := newPushPool(t, func(w *servo.Worker) { servo.Asset(w, "gold/a", until(why)) }, func(o *servo.WorkerOptions) { o.Grace = time.Millisecond })
		a := p.push("gold/a")
		require.NoError(t, <-why)
		require.NoError(t, h.Shutdown(t.Context()))
		require.ErrorIs(t, <-why, servo.ErrInterrupted)
		require.Equal(t, "INTERRUPTED", a.fail.GetError().GetCode())
		status, _ := p.post(p.sign("gold/a").envelope)
		require.Equal(t, http.StatusServiceUnavailable, status)
	})

	t.Run("a shutdown without time ends at once", func(t *testing.T) {
		t.Parallel()
		why := make(chan error, 1)
		p, h := newPushPool(t, func(w *servo.Worker) { servo.Asset(w, "gold/a", until(why)) })
		p.push("gold/a")
		require.NoError(t, <-why)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, h.Shutdown(ctx), context.Canceled)
		require.ErrorIs(t, <-why, servo.ErrInterrupted)
	})
}

func TestPushKeys(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]string{"no keys": nil, "a broken key": {"sk-1:hunter2"}} {
		t.Run(name+" are refused at the start", func(t *testing.T) {
			t.Parallel()
			_, err := servo.NewPushHandler(servo.NewWorker(servo.WorkerOptions{}), servo.PushOptions{Keys: keys})
			require.Error(t, err)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}
