package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/loops/dispatcher"
	"go.arco.dev/servo/internal/store"
)

// inside reads the counters that the store and the engine keep anyway, when Prometheus asks.
type inside struct {
	store  *store.Store
	engine *engine.Engine
	push   func() []dispatcher.Status

	connections, maxConnections                *prometheus.Desc
	acquires, acquireSeconds, acquiresThatWait *prometheus.Desc
	statements, transactions                   *prometheus.Desc
	deadlocks, repeated                        *prometheus.Desc

	waiting                                              *prometheus.Desc
	batches, commands, retries, failures, refused, spent *prometheus.Desc

	notices, listening        *prometheus.Desc
	breakers, pushing, pushed *prometheus.Desc
}

func newInside(s *store.Store, e *engine.Engine, push func() []dispatcher.Status) *inside {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &inside{
		store: s, engine: e, push: push,
		connections:      desc("servo_db_pool_connections", "Connections to the database by state.", "state"),
		maxConnections:   desc("servo_db_pool_max_connections", "How many connections there may be."),
		acquires:         desc("servo_db_pool_acquires_total", "How often a connection was taken."),
		acquireSeconds:   desc("servo_db_pool_acquire_seconds_total", "Time spent in taking connections."),
		acquiresThatWait: desc("servo_db_pool_empty_acquires_total", "How often no connection was free."),
		statements:       desc("servo_db_statements_total", "Statements sent to the database."),
		transactions:     desc("servo_db_transactions_total", "Transactions committed."),
		deadlocks:        desc("servo_db_deadlocks_total", "Statements that PostgreSQL ended because they waited for each other."),
		repeated:         desc("servo_db_retries_total", "Transactions repeated after a transient error."),

		waiting:  desc("servo_batcher_waiting", "Commands that wait for a transaction.", "lane"),
		batches:  desc("servo_batcher_batches_total", "Batches that went through.", "lane"),
		commands: desc("servo_batcher_commands_total", "Commands in these batches.", "lane"),
		retries:  desc("servo_batcher_retries_total", "Batches that were tried again, whole or in part.", "lane"),
		failures: desc("servo_batcher_failures_total", "Tries that ended in trouble.", "lane"),
		refused:  desc("servo_batcher_refused_total", "Commands that were turned away: too many waited, or the server stops.", "lane"),
		spent:    desc("servo_batcher_seconds_total", "Time spent on batches.", "lane"),

		notices:   desc("servo_wakeups_total", "Notices between this server and the others.", "result"),
		listening: desc("servo_wakeups_listening", "Whether this server receives the notices of others."),
		breakers:  desc("servo_push_breaker_state", "Whether this server calls a push pool: 1 for the state that the breaker is in.", "pool", "state"),
		pushing:   desc("servo_push_calls_in_flight", "Calls to push pools that are not answered yet.", "pool"),
		pushed:    desc("servo_push_calls_total", "Calls to push pools.", "pool", "result"),
	}
}

// Describe implements prometheus.Collector.
func (i *inside) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(i, to) }

// Collect implements prometheus.Collector.
func (i *inside) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
	}
	pool := i.store.PoolStats()
	gauge(i.connections, float64(pool.Acquired), "acquired")
	gauge(i.connections, float64(pool.Idle), "idle")
	gauge(i.maxConnections, float64(pool.Max))
	counter(i.acquires, float64(pool.AcquireCount))
	counter(i.acquireSeconds, pool.AcquireDuration.Seconds())
	counter(i.acquiresThatWait, float64(pool.EmptyAcquireCount))

	sent := i.store.Stats()
	counter(i.statements, float64(sent.Statements))
	counter(i.transactions, float64(sent.Transactions))
	counter(i.deadlocks, float64(sent.Deadlocks))
	counter(i.repeated, float64(sent.Retries))

	for _, lane := range i.engine.Stats() {
		gauge(i.waiting, float64(lane.Waiting), lane.Name)
		counter(i.batches, float64(lane.Batches), lane.Name)
		counter(i.commands, float64(lane.Commands), lane.Name)
		counter(i.retries, float64(lane.Retries), lane.Name)
		counter(i.failures, float64(lane.Failures), lane.Name)
		counter(i.refused, float64(lane.Refused), lane.Name)
		counter(i.spent, lane.Seconds, lane.Name)
	}
	notices := i.engine.NoticeStats()
	counter(i.notices, float64(notices.Sent), "sent")
	counter(i.notices, float64(notices.Unsent), "unsent")
	counter(i.notices, float64(notices.Received), "received")
	listening := 0.0
	if notices.Listening {
		listening = 1
	}
	gauge(i.listening, listening)
	for _, pool := range i.push() {
		for _, state := range []push.BreakerState{push.BreakerClosed, push.BreakerHalfOpen, push.BreakerOpen} {
			is := 0.0
			if pool.State == state {
				is = 1
			}
			gauge(i.breakers, is, pool.Pool, string(state))
		}
		gauge(i.pushing, float64(pool.Open), pool.Pool)
		counter(i.pushed, float64(pool.Accepted), pool.Pool, "accepted")
		counter(i.pushed, float64(pool.Done), pool.Pool, "done")
		counter(i.pushed, float64(pool.Failed), pool.Pool, "failed")
	}
}
