package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/worker"
)

// does is a handler that does something with its task and succeeds.
func does(something func(ctx context.Context, task *worker.Task) error) worker.Handler {
	return func(ctx context.Context, task *worker.Task) (worker.Result, error) {
		return worker.Result{}, something(ctx, task)
	}
}

func TestTask(t *testing.T) {
	t.Parallel()

	t.Run("a cursor is moved step by step, and a moved one is found", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": does(func(ctx context.Context, task *worker.Task) error {
				if task.Cursor() != "0" {
					return fmt.Errorf("the cursor is %s", task.Cursor())
				}
				if err := errors.Join(task.Advance(ctx, "1"), task.Advance(ctx, "2")); err != nil {
					return err
				}
				task.Lease().Cursor = "" // what the server knows decides
				return nil
			})})
			id := b.add(1, "gold/a", func(l *servov1.Lease) { l.Cursor = "0" })[0]
			b.ended(t, id)
			require.Equal(t, "2", b.lease(id).cursor)
			require.Equal(t, []string{"Advance", "Advance", "Complete"}, b.lease(id).actions)
		})
	})

	t.Run("a cursor that another attempt has moved is reported, and taken over", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var found string
			b := start(t, handlers{"gold/a": does(func(ctx context.Context, task *worker.Task) error {
				time.Sleep(time.Second)
				if err := task.Advance(ctx, "2"); !errors.Is(err, worker.ErrCursorMoved) {
					return fmt.Errorf("not reported: %w", err)
				}
				found = task.Cursor()
				return task.Advance(ctx, "6")
			})})
			id := b.add(1, "gold/a")[0]
			b.wait(t, func() bool { return b.leases[id] != nil })
			synctest.Wait() // until it has begun
			b.do(func() { b.leases[id].cursor = "5" })
			b.ended(t, id)
			require.Equal(t, "Complete", b.lease(id).state)
			require.Equal(t, "5", found)
			require.Equal(t, "6", b.lease(id).cursor)
		})
	})

	t.Run("fan-outs are numbered from 0 in each attempt, and count on behind a cursor", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			fan := func(ctx context.Context, task *worker.Task) error {
				for range 2 {
					added, err := task.FanOut(ctx, worker.FanOut{Tasks: []*servov1.FanOutTask{{Asset: "silver/part", Partition: "eu"}}, Barrier: true})
					if err != nil || len(added) != 1 {
						return fmt.Errorf("added %v: %w", added, err)
					}
				}
				return nil
			}
			b := start(t, handlers{"gold/a": does(fan)})
			again := b.add(1, "gold/a", func(l *servov1.Lease) { l.FanOuts = 2 })[0]
			paged := b.add(1, "gold/a", func(l *servov1.Lease) { l.FanOuts = 2; l.Cursor = "page-2" })[0]
			b.ended(t, again, paged)
			ordinals := func(l *fakeLease) (n []int32) {
				for _, f := range l.fanned {
					n = append(n, f.GetOrdinal())
				}
				return n
			}
			require.Equal(t, []int32{0, 1}, ordinals(b.lease(again)))
			require.Equal(t, []int32{2, 3}, ordinals(b.lease(paged)))
			require.True(t, b.lease(again).fanned[0].GetBarrier())
		})
	})

	t.Run("a very large fan-out goes in several calls", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": does(func(ctx context.Context, task *worker.Task) error {
				tasks := make([]*servov1.FanOutTask, 25_000)
				for i := range tasks {
					tasks[i] = &servov1.FanOutTask{Asset: "silver/part", Partition: fmt.Sprint(i)}
				}
				added, err := task.FanOut(ctx, worker.FanOut{Tasks: tasks})
				if len(added) != len(tasks) {
					return fmt.Errorf("added %d: %w", len(added), err)
				}
				return err
			})})
			id := b.add(1, "gold/a")[0]
			b.ended(t, id)
			require.Equal(t, "Complete", b.lease(id).state)
			var sizes []int
			for _, f := range b.lease(id).fanned {
				sizes = append(sizes, len(f.GetTasks()))
			}
			require.Equal(t, []int{10_000, 10_000, 5_000}, sizes)
		})
	})

	t.Run("progress is sent at once, then the latest from time to time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": does(func(ctx context.Context, task *worker.Task) error {
				for i := range 100 {
					task.Progress(&servov1.Progress{Stage: fmt.Sprint(i), Fraction: float32(i) / 50, RecordsLoaded: -1})
					time.Sleep(50 * time.Millisecond)
				}
				return nil
			})})
			id := b.add(1, "gold/a")[0]
			b.ended(t, id)
			sent := b.lease(id).progress
			require.Equal(t, "0", sent[0].GetStage())
			require.Less(t, len(sent), 8, "at most one each second, and the last")
			require.GreaterOrEqual(t, len(sent), 4)
			last := sent[len(sent)-1]
			require.Equal(t, "99", last.GetStage(), "the last one is sent before the end")
			require.EqualValues(t, 1, last.GetFraction(), "more than all is all")
			require.Zero(t, last.GetRecordsLoaded())
		})
	})

	t.Run("progress keeps its pace beside a log, and repeats nothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": does(func(ctx context.Context, task *worker.Task) error {
				for i := range 30 {
					task.Logger().Info("line") // which is flushed at times of its own
					time.Sleep(70 * time.Millisecond)
					task.Progress(&servov1.Progress{Stage: fmt.Sprint(min(i, 20))})
				}
				return nil
			})})
			id := b.add(1, "gold/a")[0]
			b.ended(t, id)
			sent := b.lease(id).progress
			require.LessOrEqual(t, len(sent), 4, "2.1 s")
			require.Equal(t, "20", sent[len(sent)-1].GetStage())
			for i := range sent[1:] {
				require.NotEqual(t, sent[i].GetStage(), sent[i+1].GetStage())
			}
		})
	})

	t.Run("heartbeats carry no progress", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": does(func(ctx context.Context, task *worker.Task) error {
				task.Progress(&servov1.Progress{Stage: "long"})
				time.Sleep(time.Minute)
				return nil
			})})
			id := b.add(1, "gold/a")[0]
			b.ended(t, id)
			require.Len(t, b.lease(id).progress, 1)
			require.NotZero(t, b.lease(id).beats)
			require.Zero(t, b.lease(id).progressByBeats)
		})
	})

	t.Run("upstream results come along, and what was left out is read", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var got []string
			b := start(t, handlers{"gold/a": does(func(ctx context.Context, task *worker.Task) error {
				for _, asset := range []string{"bronze/small", "bronze/large", "bronze/earlier", "bronze/parts"} {
					result, err := task.Upstream(ctx, asset)
					if err != nil {
						return err
					}
					got = append(got, string(result))
				}
				_, err := task.Upstream(ctx, "bronze/smal")
				return err
			})})
			b.results["run 2/t2"] = structpb.NewStringValue("large")
			b.results["run 1/t5"] = structpb.NewStringValue("earlier")
			away := 2
			b.do(func() {
				b.before = func(m proto.Message) error {
					if _, reads := m.(*servov1.GetTaskRequest); reads && away > 0 {
						away--
						return status.Error(codes.Unavailable, "away")
					}
					return nil
				}
			})
			id := b.add(1, "gold/a", func(l *servov1.Lease) {
				l.Run, l.Partition = "run 2", "eu"
				l.Upstream = []*servov1.UpstreamResult{
					{Task: "t1", Asset: "bronze/small", Result: structpb.NewNumberValue(7)},
					{Task: "t2", Asset: "bronze/large", Omitted: true},
					{Run: "run 1", Task: "t5", Asset: "bronze/earlier", Omitted: true},
					{Task: "t3", Asset: "bronze/parts", Partition: "us", Result: structpb.NewStringValue("us")},
					{Task: "t4", Asset: "bronze/parts", Partition: "eu", Result: structpb.NewStringValue("eu")},
				}
			})[0]
			b.ended(t, id)
			require.Equal(t, []string{`7`, `"large"`, `"earlier"`, `"eu"`}, got)
			require.Equal(t, "INVALID_CONFIGURATION", b.lease(id).failure.GetCode())
			require.Equal(t, "gold/a has no upstream bronze/smal; did you mean bronze/small?", b.lease(id).failure.GetMessage())
		})
	})

	t.Run("mapped results are read page by page", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var partitions []string
			b := start(t, handlers{"gold/a": does(func(ctx context.Context, task *worker.Task) error {
				for part, err := range task.Mapped(ctx, "silver/part") {
					if err != nil {
						return err
					}
					partitions = append(partitions, part.Partition+"="+string(part.Result))
				}
				return nil
			})})
			b.upstream = append(b.upstream, &servov1.UpstreamTask{Asset: "silver/scan"})
			var want []string
			for i := range 250 {
				b.upstream = append(b.upstream, &servov1.UpstreamTask{Asset: "silver/part", Partition: fmt.Sprint(i), Result: structpb.NewNumberValue(float64(i))})
				want = append(want, fmt.Sprintf("%d=%d", i, i))
			}
			id := b.add(1, "gold/a")[0]
			b.ended(t, id)
			require.Equal(t, "Complete", b.lease(id).state)
			require.Equal(t, want, partitions)
		})
	})

	t.Run("a panic's stack begins at the author's code and leaves out the machinery", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": does(func(context.Context, *worker.Task) error {
				var none map[string]int
				return func(m map[string]int) error { m["x"] = 1; return nil }(none)
			})})
			id := b.add(1, "gold/a")[0]
			b.ended(t, id)
			require.Equal(t, "panic: assignment to entry in nil map", b.lease(id).failure.GetMessage())
			stack := b.lease(id).failure.GetDetails().GetFields()["stack"].GetStringValue()
			lines := strings.Split(stack, "\n")
			require.Contains(t, lines[0], "worker_test.TestTask.func")
			require.Contains(t, lines[1], "task_test.go:")
			require.NotContains(t, stack, "runtime.")
			require.NotContains(t, stack, "worker.(*Worker)")
		})
	})
}

func TestLogs(t *testing.T) {
	t.Parallel()

	t.Run("a record is one line with time, level, message and attributes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": does(func(_ context.Context, task *worker.Task) error {
				log := task.Logger().With("run", 7).WithGroup("http")
				log.Info("fetched\nall", "status", 200, slog.Group("body", "bytes", 12, "kind", "a b"), "error", errors.New(`no "body"`), "took", time.Second)
				task.Logger().Debug("not kept")
				task.Logger().Warn("\x1b[31mred\x00", "empty", "", "bad", "\xff")
				return nil
			})})
			id := b.add(1, "gold/a")[0]
			b.ended(t, id)
			require.Equal(t, []string{"Log", "Complete"}, b.lease(id).actions, "the lines come before the end, in one call")
			lines := strings.Split(strings.TrimSuffix(b.lease(id).log, "\n"), "\n")
			require.Len(t, lines, 2)
			stamp := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z `)
			for i := range lines {
				require.Regexp(t, stamp, lines[i])
				lines[i] = stamp.ReplaceAllString(lines[i], "")
			}
			require.Equal(t, `INFO fetched\nall run=7 http.status=200 http.body.bytes=12 http.body.kind="a b" http.error="no \"body\"" http.took=1s`, lines[0])
			require.Equal(t, `WARN \x1b[31mred\x00 empty="" bad="\xff"`, lines[1])
		})
	})

	t.Run("lines are sent together, before long", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": does(func(_ context.Context, task *worker.Task) error {
				for i := range 50 {
					task.Logger().Info("line", "i", i)
					time.Sleep(130 * time.Millisecond)
				}
				return nil
			})})
			id := b.add(1, "gold/a")[0]
			b.wait(t, func() bool { return b.leases[id] != nil && b.leases[id].log != "" })
			synctest.Wait() // until it has begun
			require.Equal(t, 8, strings.Count(b.lease(id).log, "\n"), "of the first second")
			b.ended(t, id)
			require.Equal(t, 50, strings.Count(b.lease(id).log, "\n"))
			require.LessOrEqual(t, len(b.lease(id).seqs), 8)
			require.True(t, slices.IsSorted(b.lease(id).seqs))
			require.EqualValues(t, 1, b.lease(id).seqs[0])
		})
	})

	t.Run("a flood keeps its order, its bounds, and reports the dropped lines", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			stuck := make(chan struct{})
			b := start(t, handlers{"gold/a": does(func(_ context.Context, task *worker.Task) error {
				for i := range 20_000 {
					task.Logger().Info("line", "i", i, "padding", strings.Repeat("x", 50))
				}
				close(stuck)
				return nil
			})})
			b.do(func() { b.delay = func(proto.Message) <-chan struct{} { return stuck } })
			id := b.add(1, "gold/a")[0]
			b.ended(t, id)
			text := b.lease(id).log
			require.Less(t, len(text), 512<<10)
			require.Regexp(t, `WARN servo dropped \d+ log lines of \d+ bytes`, text)
			require.Contains(t, text, "i=0 ")
			require.Contains(t, text, "i=19999 ")
			last := -1
			for _, match := range regexp.MustCompile(` i=(\d+) `).FindAllStringSubmatch(text, -1) {
				var i int
				_, err := fmt.Sscan(match[1], &i)
				require.NoError(t, err)
				require.Greater(t, i, last)
				last = i
			}
		})
	})

	t.Run("a flood that the server could take is trimmed to its head and its tail before it is sent", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": does(func(_ context.Context, task *worker.Task) error {
				for i := range 100_000 {
					task.Logger().Info("line", "i", i, "padding", strings.Repeat("x", 50))
					if i%100 == 0 {
						time.Sleep(time.Millisecond) // one second in all; the server answers meanwhile
					}
				}
				return nil
			})})
			id := b.add(1, "gold/a")[0]
			b.ended(t, id)
			text := b.lease(id).log
			require.Less(t, len(text), 900<<10)
			require.Greater(t, len(text), 512<<10)
			require.Regexp(t, `WARN servo dropped \d+ log lines of \d+ bytes`, text)
			require.Contains(t, text, "i=1000 ")
			require.Contains(t, text, "i=99999 ")
		})
	})

	t.Run("a line that is too long is cut", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, handlers{"gold/a": does(func(_ context.Context, task *worker.Task) error {
				task.Logger().Info(strings.Repeat("ä", 50_000))
				return nil
			})})
			id := b.add(1, "gold/a")[0]
			b.ended(t, id)
			require.Less(t, len(b.lease(id).log), 17<<10)
			require.True(t, strings.HasSuffix(b.lease(id).log, "ä … (line cut)\n"), b.lease(id).log[16<<10:])
		})
	})

	t.Run("what is logged after the end is dropped", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			late := make(chan struct{})
			b := start(t, handlers{"gold/a": does(func(_ context.Context, task *worker.Task) error {
				go func() {
					<-late
					task.Logger().Info("late")
				}()
				return nil
			})})
			id := b.add(1, "gold/a")[0]
			b.ended(t, id)
			close(late)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Empty(t, b.lease(id).log)
		})
	})
}
