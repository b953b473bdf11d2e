package verify_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/proof/verify"
)

// BenchmarkVerify shows that time grows with the database and memory does not:
// compare the peaks of the sizes.
func BenchmarkVerify(b *testing.B) {
	for _, runs := range []int{1_000, 4_000, 16_000} {
		b.Run(fmt.Sprintf("%d runs of one task", runs), func(b *testing.B) {
			w := newWorld(b)
			w.drained(b, "single", runs)
			measure(b, w)
		})
	}
	b.Run("a run of 10,000 tasks", func(b *testing.B) {
		w := newWorld(b)
		w.trigger(b, "fan")
		tasks := make([]engine.FanOutTask, 10_000)
		for i := range tasks {
			tasks[i] = engine.FanOutTask{Asset: "f/fetch", Partition: fmt.Sprint(i)}
		}
		w.report(b, w.one(b, "scan"), engine.FanOut{Barrier: true, Tasks: tasks})
		measure(b, w)
	})
}

// drained makes runs and lets their tasks succeed.
func (w *world) drained(t testing.TB, pipeline string, runs int) {
	t.Helper()
	const batch = 500
	for made := 0; made < runs; made += batch {
		triggers := make([]engine.Trigger, min(batch, runs-made))
		for i := range triggers {
			triggers[i] = engine.Trigger{Tenant: w.tenant, Pipeline: pipeline}
		}
		_, errs := w.TriggerRuns(t.Context(), triggers)
		for _, err := range errs {
			require.NoError(t, err)
		}
		for {
			leases := w.claim(t, pipeline, batch, true)
			if len(leases) == 0 {
				break
			}
			reports := make([]engine.Report, len(leases))
			for i, l := range leases {
				reports[i] = engine.Report{TaskKey: l.TaskKey, Token: l.Token, Action: engine.Complete{}}
			}
			_, errs := w.Report(t.Context(), reports)
			for _, err := range errs {
				require.NoError(t, err)
			}
		}
	}
}

func measure(b *testing.B, w *world) {
	b.Helper()
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	stop := make(chan struct{})
	go func() {
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				peak.Store(max(peak.Load(), now.HeapAlloc))
			}
		}
	}()
	events := 0
	for b.Loop() {
		report := look(b, w.db, verify.Options{})
		require.True(b, report.Clean(), text(report))
		events += report.Events
	}
	close(stop)
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric((float64(peak.Load())-float64(before.HeapAlloc))/(1<<20), "MB-peak")
}
