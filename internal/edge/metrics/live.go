package metrics

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// freshness is how long a look at the database serves scrapes: several Prometheus servers
// cost no more than one.
const freshness = 5 * time.Second

// Source reads what is live; *store.Store does.
type Source interface {
	Lookup
	Live(ctx context.Context, tenants int) (store.Live, error)
}

// LiveCollector exports the waiting and running tasks of the whole installation. All servers export the
// same values, except for the duties that they hold: use max, not sum.
type LiveCollector struct {
	source  Source
	server  string
	tenants int
	names   *names
	log     *slog.Logger
	now     func() time.Time

	mu     sync.Mutex
	latest store.Live
	readAt time.Time
	failed bool

	depth, quota, duty                          *prometheus.Desc
	running, pending, locks, age, timeout, okay *prometheus.Desc
	alerts, messages                            *prometheus.Desc
	feedAge, lag, failing                       *prometheus.Desc
}

// NewLiveCollector makes a collector for a server; tenants is the cap of their label.
func NewLiveCollector(source Source, server string, tenants int, log *slog.Logger) *LiveCollector {
	if tenants == 0 {
		tenants = DefaultTenants
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &LiveCollector{
		source: source, server: server, tenants: tenants, names: newNames(source), log: log, now: time.Now,
		depth:    desc("servo_queue_depth", "Live tasks, counted up to 100,000 of each state.", "tenant", "state"),
		quota:    desc("servo_quota_usage_ratio", "Used share of quotas, of those that are nearest to their limit.", "tenant", "quota"),
		duty:     desc("servo_duty_held", "Whether this server holds a duty.", "duty"),
		running:  desc("pipeline_running_count", "Runs that have started and not ended."),
		pending:  desc("pipeline_pending_count", "Runs that wait for a quota."),
		locks:    desc("pipeline_active_locks", "Locks that runs hold."),
		age:      desc("pipeline_lock_age_seconds", "How long the lock is held whose run is timed out next."),
		timeout:  desc("pipeline_lock_timeout_seconds", "How long that lock can be held until its run is timed out."),
		alerts:   desc("servo_alerts_open", "Alerts that are open.", "kind"),
		messages: desc("servo_alert_messages_waiting", "Messages about alerts that no receiver has accepted yet."),
		feedAge:  desc("servo_feed_age_seconds", "Age of the oldest event that a running transaction holds back from followers of the log."),
		lag:      desc("servo_subscription_lag_seconds", "How long the next event of the active subscription waits that is farthest behind."),
		failing:  desc("servo_subscriptions_failing", "Active subscriptions whose receiver did not accept the last call."),
		okay:     desc("servo_live_up", "Whether what is live could be read from the database."),
	}
}

// Describe implements prometheus.Collector.
func (c *LiveCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.depth, c.quota, c.duty, c.running, c.pending, c.locks, c.age, c.timeout, c.alerts, c.messages, c.feedAge, c.lag, c.failing, c.okay} {
		to <- d
	}
}

// Collect implements prometheus.Collector. Without the database it exports only that it is unavailable.
func (c *LiveCollector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	live, ok := c.read(ctx)
	if !ok {
		gauge(c.okay, 0)
		return
	}
	gauge(c.okay, 1)
	rest := live.All
	for _, d := range live.Depths {
		name := c.names.tenant(ctx, d.Tenant)
		left := make(map[run.TaskState]int, len(rest))
		for state, n := range rest {
			left[state] = n - d.Tasks[state]
			if d.Tasks[state] > 0 {
				gauge(c.depth, float64(d.Tasks[state]), name, state.String())
			}
		}
		rest = left
	}
	for _, state := range liveStates() { // exported even if zero: a missing series is not zero
		gauge(c.depth, float64(rest[state]), Other, state.String())
	}
	for _, q := range live.Quotas {
		gauge(c.quota, float64(q.Used)/float64(q.Limit), c.names.tenant(ctx, q.Tenant), q.Quota)
	}
	for _, d := range live.Duties {
		held := 0.0
		if d.Holder == c.server && d.ExpiresAt.After(live.At) {
			held = 1
		}
		gauge(c.duty, held, d.Name)
	}
	gauge(c.running, float64(live.RunningRuns))
	gauge(c.pending, float64(live.PendingRuns))
	gauge(c.locks, float64(live.Locks))
	age, timeout := 0.0, 0.0
	if l := live.NearestLock; l != nil {
		age, timeout = live.At.Sub(l.LockedAt).Seconds(), l.DueAt.Sub(l.LockedAt).Seconds()
	}
	gauge(c.age, age)
	gauge(c.timeout, timeout)
	for _, kind := range alert.Kinds() {
		gauge(c.alerts, float64(live.Alerts[kind]), string(kind))
	}
	gauge(c.messages, float64(live.Messages))
	gauge(c.feedAge, live.Feed.Age.Seconds())
	gauge(c.lag, live.Feed.Lag.Seconds())
	gauge(c.failing, float64(live.Feed.Failing))
}

func liveStates() []run.TaskState {
	return []run.TaskState{run.Pending, run.Ready, run.Queued, run.Dispatched, run.Running, run.RetryWait}
}

// read is the latest look, or a new one if that is old. Scrapes that come together share it.
func (c *LiveCollector) read(ctx context.Context) (store.Live, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.readAt.IsZero() && c.now().Sub(c.readAt) < freshness {
		return c.latest, !c.failed
	}
	live, err := c.source.Live(ctx, c.tenants)
	c.latest, c.readAt, c.failed = live, c.now(), err != nil
	if err != nil {
		c.log.WarnContext(ctx, "what is live could not be read for metrics", slog.Any("error", err))
	}
	return live, err == nil
}
