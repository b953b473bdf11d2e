package metrics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

func tenantID(n int) id.Tenant { return id.Of[id.Tenant](uuid.UUID{15: byte(n), 14: byte(n >> 8)}) }
func spaceID(n int) id.Workspace {
	return id.Of[id.Workspace](uuid.UUID{0: 1, 15: byte(n), 14: byte(n >> 8)})
}

// book names every tenant and workspace by its number.
type book struct{ away bool }

func (b book) GetTenant(_ context.Context, t id.Tenant) (store.TenantView, error) {
	if b.away {
		return store.TenantView{}, errors.New("away")
	}
	return store.TenantView{ID: t, Name: fmt.Sprintf("t%d", int(t.UUID[14])<<8|int(t.UUID[15]))}, nil
}

func (b book) ListWorkspaces(_ context.Context, t id.Tenant) ([]store.WorkspaceView, error) {
	if b.away {
		return nil, errors.New("away")
	}
	return []store.WorkspaceView{{Workspace: store.Workspace{Tenant: t, ID: spaceID(1), Name: "default"}}}, nil
}

// served is what a scrape gets: every series as name{label values}, with its value or count.
type served map[string]float64

func scraped(t require.TestingT, r *Recorder, lookup Lookup) served {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(NewCollector(r, lookup)))
	return gathered(t, registry)
}

func gathered(t require.TestingT, registry *prometheus.Registry) served {
	families, err := registry.Gather()
	require.NoError(t, err)
	all := served{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var pairs []string
			for _, l := range m.GetLabel() {
				pairs = append(pairs, l.GetName()+"="+l.GetValue())
			}
			all[f.GetName()+"{"+strings.Join(pairs, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// of are the series of one metric.
func (s served) of(metric string) served {
	some := served{}
	for name, value := range s {
		if rest, ok := strings.CutPrefix(name, metric+"{"); ok {
			some[strings.TrimSuffix(rest, "}")] = value
		}
	}
	return some
}

// values are the values of one label.
func (s served) values(label string) map[string]bool {
	found := map[string]bool{}
	for name := range s {
		for pair := range strings.FieldsFuncSeq(name, func(r rune) bool { return strings.ContainsRune("{},", r) }) {
			if value, ok := strings.CutPrefix(pair, label+"="); ok {
				found[value] = true
			}
		}
	}
	return found
}

// grown is what the series have grown by since an earlier scrape, as Prometheus adds it up.
func (s served) grown(t require.TestingT, since served) (sum float64) {
	for name, value := range s {
		require.GreaterOrEqual(t, value, since[name], name)
		sum += value - since[name]
	}
	return sum
}

func end(tenant int, asset string) engine.TaskMove {
	return engine.TaskMove{
		Tenant: tenantID(tenant), Workspace: spaceID(1), Asset: asset, From: run.Running, To: run.Succeeded, Outcome: run.Success,
		Since: noon, StartedAt: noon,
	}
}

func TestRecorder(t *testing.T) {
	t.Parallel()

	t.Run("a task's life is counted where its tenant looks for it", func(t *testing.T) {
		t.Parallel()
		r := NewRecorder(0, 0)
		life := engine.TaskMove{Tenant: tenantID(1), Workspace: spaceID(1), Asset: "raw/orders", Since: noon.Add(-time.Second), ReadyAt: noon.Add(-3 * time.Second), StartedAt: noon.Add(-2 * time.Second)}
		for _, step := range [][2]run.TaskState{
			{run.Ready, run.Queued},
			{run.Queued, run.Dispatched},
			{run.Dispatched, run.Running},
			{run.Running, run.RetryWait},
			{run.RetryWait, run.Ready},
			{run.Queued, run.Running},
			{run.Running, run.Succeeded},
		} {
			m := life
			m.From, m.To = step[0], step[1]
			if m.To == run.RetryWait {
				m.Failure = "TIMEOUT"
			}
			if m.To == run.Succeeded {
				m.Outcome = run.Success
			}
			r.Committed(&engine.Committed{At: noon, Tasks: []engine.TaskMove{m}})
		}
		s := scraped(t, r, book{})
		require.Equal(t, served{"asset=raw/orders,outcome=SUCCESS,state=SUCCEEDED,tenant=t1,workspace=default": 1}, s.of("servo_task_total"))
		require.Equal(t, served{"result=SUCCEEDED,tenant=t1": 1, "result=RETRIED,tenant=t1": 1}, s.of("servo_task_attempts_total"))
		require.Equal(t, served{"state=READY,tenant=t1": 1, "state=QUEUED,tenant=t1": 2}, s.of("servo_task_queue_wait_seconds"))
		require.Equal(t, served{"tenant=t1": 2}, s.of("servo_task_duration_seconds"))
		require.Equal(t, served{"": 2}, s.of("servo_scheduling_latency_seconds"))
		require.Equal(t, served{"code=TIMEOUT": 1}, s.of("servo_worker_errors_total"))
	})

	t.Run("a run is counted when it ends, and only then", func(t *testing.T) {
		t.Parallel()
		r := NewRecorder(0, 0)
		change := func(from, to run.State) {
			r.Committed(&engine.Committed{At: noon, Runs: []engine.RunChange{{From: from, Run: &run.Run{
				Tenant: tenantID(1), State: to, StartedAt: noon, FinishedAt: noon.Add(time.Minute),
			}}}})
		}
		change(0, run.RunRunning)
		change(run.RunRunning, run.RunRunning)
		require.Empty(t, scraped(t, r, book{}).of("servo_run_total"))
		change(run.RunRunning, run.RunFailed)
		change(run.RunCancelling, run.RunTimedOut)
		s := scraped(t, r, book{})
		require.Equal(t, served{"state=FAILED,tenant=t1": 1, "state=TIMED_OUT,tenant=t1": 1}, s.of("servo_run_total"))
		require.Equal(t, served{"tenant=t1": 2}, s.of("servo_run_duration_seconds"))
	})

	t.Run("refusals, locks and rounds are counted", func(t *testing.T) {
		t.Parallel()
		r := NewRecorder(0, 0)
		r.Refused("max_concurrent_runs")
		locked := &run.Run{Tenant: tenantID(1), State: run.RunRunning, Lock: "x", CreatedAt: noon}
		r.Committed(&engine.Committed{At: noon, Runs: []engine.RunChange{{Run: locked}, {Run: &run.Run{Tenant: tenantID(1), State: run.RunRunning}}}})
		done := *locked
		done.State, done.FinishedAt = run.RunSucceeded, noon.Add(time.Minute)
		r.Committed(&engine.Committed{At: noon, Runs: []engine.RunChange{{From: run.RunRunning, Run: &done}}})
		r.Contended(false, 0)
		r.Contended(true, time.Second)
		r.Admitted(engine.AdmissionRound{Admitted: 2, Took: time.Millisecond})
		queued := engine.TaskMove{Tenant: tenantID(1), From: run.Ready, To: run.Queued, Since: noon}
		r.Committed(&engine.Committed{At: noon, Tasks: []engine.TaskMove{queued, queued, queued}}) // one of them by a handoff
		r.Admitted(engine.AdmissionRound{Failed: true})
		r.Decided([]engine.SlotsDecided{{Outcome: config.Fired, Slots: 1, Lag: time.Second}, {Outcome: config.SkippedOverlap, Slots: 12}})
		r.Committed(&engine.Committed{At: noon, Breaches: []run.SLA{run.SLAStartDelay, run.SLAExecution, run.SLAStartDelay}})
		s := scraped(t, r, book{})
		require.Equal(t, served{"sla=start_delay": 2, "sla=execution": 1}, s.of("servo_run_breaches_total"))
		require.Equal(t, served{"quota=max_concurrent_runs": 1}, s.of("servo_quota_refusals_total"))
		require.Equal(t, served{"result=acquired": 1, "result=held": 1}, s.of("pipeline_lock_acquisitions_total"))
		require.Equal(t, served{"": 2}, s.of("pipeline_lock_wait_time_seconds"))
		require.Equal(t, served{"": 1}, s.of("pipeline_lock_duration_seconds"))
		require.Equal(t, served{"result=ok": 1, "result=failed": 1}, s.of("servo_admission_rounds_total"))
		require.Equal(t, served{"": 3}, s.of("servo_admission_admitted_total"))
		require.EqualValues(t, 1, s.of("servo_slot_total")["outcome=FIRED"])
		require.EqualValues(t, 12, s.of("servo_slot_total")["outcome=SKIPPED_OVERLAP"])
		require.Equal(t, served{"": 1}, s.of("servo_slot_lag_seconds"))
		require.Equal(t, served{"": 2}, s.of("servo_admission_round_duration_seconds"))
	})

	t.Run("a tenant without a known name is shown by its id", func(t *testing.T) {
		t.Parallel()
		r := NewRecorder(0, 0)
		r.Committed(&engine.Committed{At: noon, Tasks: []engine.TaskMove{end(1, "raw/orders")}})
		require.Equal(t, map[string]bool{tenantID(1).String(): true}, scraped(t, r, book{away: true}).values("tenant"))
	})

	t.Run("a task that was never queued has no asset of its own", func(t *testing.T) {
		t.Parallel()
		r := NewRecorder(0, 0)
		m := end(1, "")
		m.From, m.To, m.Outcome = run.Pending, run.Skipped, run.UpstreamFailed
		r.Committed(&engine.Committed{At: noon, Tasks: []engine.TaskMove{m}})
		require.Equal(t, served{"asset=_other,outcome=UPSTREAM_FAILED,state=SKIPPED,tenant=t1,workspace=_other": 1},
			scraped(t, r, book{}).of("servo_task_total"))
	})

	t.Run("whatever comes, labels stay under their caps, and everything is counted once", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			tenants, assets := rapid.IntRange(1, 5).Draw(t, "tenants"), rapid.IntRange(1, 8).Draw(t, "assets")
			r := NewRecorder(tenants, assets)
			before, tasks, attempts, total := scraped(t, r, book{}), 0.0, 0.0, 0.0
			for range rapid.IntRange(1, 8).Draw(t, "scrapes") {
				for range rapid.IntRange(0, 60).Draw(t, "tasks") {
					m := end(rapid.IntRange(0, 12).Draw(t, "tenant"), fmt.Sprintf("a/%d", rapid.IntRange(0, 6).Draw(t, "asset")))
					r.Committed(&engine.Committed{At: noon, Tasks: []engine.TaskMove{m}})
					total++
				}
				s := scraped(t, r, book{})
				require.LessOrEqual(t, len(s.values("tenant")), tenants+1)
				require.LessOrEqual(t, len(s.of("servo_task_total")), assets+tenants+1)
				tasks += s.of("servo_task_total").grown(t, before.of("servo_task_total"))
				attempts += s.of("servo_task_attempts_total").grown(t, before.of("servo_task_attempts_total"))
				before = s
			}
			require.InDelta(t, total, tasks, 0)
			require.InDelta(t, total, attempts, 0)
		})
	})
}

func TestCountingTakesNoMemory(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	r := NewRecorder(0, 0)
	batch := &engine.Committed{At: noon, Tasks: []engine.TaskMove{end(1, "raw/orders"), end(2, "raw/orders")}}
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Committed(batch) }), "once tenant and asset are known")
}

// constant is a collector of one metric.
type constant struct{ prometheus.Metric }

func (c constant) Describe(to chan<- *prometheus.Desc) { to <- c.Desc() }
func (c constant) Collect(to chan<- prometheus.Metric) { to <- c.Metric }

func TestHistogram(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var h histogram
		took := rapid.SliceOf(rapid.Int64Range(-1e9, 1e14)).Draw(t, "nanoseconds")
		for _, n := range took {
			h.observe(&waiting, time.Duration(n))
		}
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(constant{h.metric(prometheus.NewDesc("h", "h", nil, nil), &waiting)})
		families, err := registry.Gather()
		require.NoError(t, err)
		m := families[0].GetMetric()[0]
		require.EqualValues(t, len(took), m.GetHistogram().GetSampleCount())
		for _, bucket := range m.GetHistogram().GetBucket() {
			under := 0
			for _, n := range took {
				if max(0, time.Duration(n).Seconds()) <= bucket.GetUpperBound() {
					under++
				}
			}
			require.EqualValues(t, under, bucket.GetCumulativeCount(), bucket.GetUpperBound())
		}
	})
}

// BenchmarkRecorder is what observing costs a task: its three moves, in batches of 500, of
// 200 tenants with 20 assets each, which is beyond both caps.
func BenchmarkRecorder(b *testing.B) {
	r := NewRecorder(0, 0)
	batch := &engine.Committed{At: noon}
	for i := range 500 {
		m := end(i%200, fmt.Sprintf("a/%d", i%20))
		for _, step := range [][2]run.TaskState{{run.Ready, run.Queued}, {run.Queued, run.Running}, {run.Running, run.Succeeded}} {
			m.From, m.To = step[0], step[1]
			batch.Tasks = append(batch.Tasks, m)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Committed(batch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/task")
}
