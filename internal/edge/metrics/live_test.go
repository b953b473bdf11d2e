package metrics

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// moment is a source of one look, which counts how often it is asked.
type moment struct {
	book

	live  store.Live
	err   error
	asked int
}

func (m *moment) Live(context.Context, int) (store.Live, error) {
	m.asked++
	return m.live, m.err
}

func TestLiveCollector(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, m *moment) (look func() served, clock *time.Time) {
		t.Helper()
		now := noon
		c := NewLiveCollector(m, "server-1", 0, nil)
		c.now = func() time.Time { return now }
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(c)
		return func() served { return gathered(t, registry) }, &now
	}
	busy := store.Live{
		At: noon,
		Depths: []store.TenantDepth{
			{Tenant: tenantID(1), Tasks: map[run.TaskState]int{run.Ready: 5, run.Running: 1}},
			{Tenant: tenantID(2), Tasks: map[run.TaskState]int{run.Ready: 2}},
		},
		All:    map[run.TaskState]int{run.Ready: 10, run.Running: 1, run.Pending: 4},
		Quotas: []store.QuotaUsage{{Tenant: tenantID(1), Quota: "max_queued_tasks", Used: 5, Limit: 20}},
		Duties: []store.DutyView{
			{Duty: store.Duty{Name: "admission", Holder: "server-1"}, ExpiresAt: noon.Add(time.Second)},
			{Duty: store.Duty{Name: "alerts", Holder: "server-2"}, ExpiresAt: noon.Add(time.Second)},
			{Duty: store.Duty{Name: "retention", Holder: "server-1"}, ExpiresAt: noon},
		},
		RunningRuns: 3, PendingRuns: 2, Locks: 1, Messages: 7,
		Alerts:      map[alert.Kind]int{alert.PipelineFailing: 4},
		NearestLock: &store.LockAge{LockedAt: noon.Add(-time.Minute), DueAt: noon.Add(9 * time.Minute)},
	}

	t.Run("live values are collected, with one label for all tenants without their own", func(t *testing.T) {
		t.Parallel()
		look, _ := setup(t, &moment{live: busy})
		s := look()
		require.Equal(t, served{
			"state=READY,tenant=t1": 5, "state=RUNNING,tenant=t1": 1, "state=READY,tenant=t2": 2,
			"state=PENDING,tenant=_other": 4, "state=READY,tenant=_other": 3, "state=QUEUED,tenant=_other": 0,
			"state=DISPATCHED,tenant=_other": 0, "state=RUNNING,tenant=_other": 0, "state=RETRY_WAIT,tenant=_other": 0,
		}, s.of("servo_queue_depth"))
		require.Equal(t, served{"quota=max_queued_tasks,tenant=t1": 0.25}, s.of("servo_quota_usage_ratio"))
		require.Equal(t, served{"duty=admission": 1, "duty=alerts": 0, "duty=retention": 0}, s.of("servo_duty_held"))
		for name, want := range map[string]float64{
			"pipeline_running_count{}": 3, "pipeline_pending_count{}": 2, "pipeline_active_locks{}": 1,
			"pipeline_lock_age_seconds{}": 60, "pipeline_lock_timeout_seconds{}": 600, "servo_live_up{}": 1,
			"servo_alerts_open{kind=PIPELINE_FAILING}": 4, "servo_alerts_open{kind=SCHEDULE_LAG}": 0, "servo_alert_messages_waiting{}": 7,
		} {
			require.InDelta(t, want, s[name], 0, name)
		}
	})

	t.Run("scrapes share a look for some seconds", func(t *testing.T) {
		t.Parallel()
		m := &moment{live: busy}
		look, now := setup(t, m)
		look()
		*now = noon.Add(freshness - 1)
		look()
		require.Equal(t, 1, m.asked)
		*now = noon.Add(freshness)
		look()
		require.Equal(t, 2, m.asked)
	})

	t.Run("without a database nothing else is collected", func(t *testing.T) {
		t.Parallel()
		m := &moment{err: errors.New("away")}
		look, now := setup(t, m)
		require.Equal(t, served{"servo_live_up{}": 0}, look())
		require.Equal(t, served{"servo_live_up{}": 0}, look())
		require.Equal(t, 1, m.asked, "nor is it asked by each scrape")
		m.err, *now = nil, noon.Add(freshness)
		require.InDelta(t, 1, look()["servo_live_up{}"], 0)
	})
}
