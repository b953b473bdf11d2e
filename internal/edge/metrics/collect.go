package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
)

// Other is the label of all tenants and assets without their own.
const Other = "_other"

// scrapePatience bounds what a scrape may wait for the database.
const scrapePatience = 3 * time.Second

// Collector exports the counts of a recorder to Prometheus, with names in place of ids.
type Collector struct {
	recorder *Recorder
	names    *names
	descs    descs
}

// descs are the metrics of a recorder.
type descs struct {
	tasks, attempts, durations, waits, scheduling *prometheus.Desc
	runs, runDurations                            *prometheus.Desc
	errors, refusals                              *prometheus.Desc
	lockResults, lockHeld, lockWaits              *prometheus.Desc
	rounds, roundSeconds, admitted                *prometheus.Desc
	slots, slotLag, breaches                      *prometheus.Desc
}

func (d *descs) all() []*prometheus.Desc {
	return []*prometheus.Desc{
		d.tasks, d.attempts, d.durations, d.waits, d.scheduling, d.runs, d.runDurations, d.errors, d.refusals,
		d.lockResults, d.lockHeld, d.lockWaits, d.rounds, d.roundSeconds, d.admitted, d.slots, d.slotLag, d.breaches,
	}
}

// NewCollector creates a collector. It looks up each name once, at its first export.
func NewCollector(r *Recorder, lookup Lookup) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &Collector{recorder: r, names: newNames(lookup), descs: descs{
		tasks:        desc("servo_task_total", "Tasks that have ended.", "tenant", "workspace", "asset", "state", "outcome"),
		attempts:     desc("servo_task_attempts_total", "Attempts that have ended, by how.", "tenant", "result"),
		durations:    desc("servo_task_duration_seconds", "How long attempts ran.", "tenant"),
		waits:        desc("servo_task_queue_wait_seconds", "How long tasks waited for admission (READY) and for a worker (QUEUED).", "tenant", "state"),
		scheduling:   desc("servo_scheduling_latency_seconds", "From ready to started."),
		runs:         desc("servo_run_total", "Runs that have ended.", "tenant", "state"),
		runDurations: desc("servo_run_duration_seconds", "How long runs took from their start to their end.", "tenant"),
		errors:       desc("servo_worker_errors_total", "Attempts that have ended in failure, by the error's code.", "code"),
		refusals:     desc("servo_quota_refusals_total", "Triggers that a quota has turned away.", "quota"),
		lockResults:  desc("pipeline_lock_acquisitions_total", "Locks that runs have taken, and triggers that were answered with the run that held theirs.", "result"),
		lockHeld:     desc("pipeline_lock_duration_seconds", "How long runs held their locks."),
		lockWaits:    desc("pipeline_lock_wait_time_seconds", "How long triggers waited for a lock that another run held."),
		rounds:       desc("servo_admission_rounds_total", "Rounds of admission of this server.", "result"),
		roundSeconds: desc("servo_admission_round_duration_seconds", "How long rounds of admission took."),
		admitted:     desc("servo_admission_admitted_total", "Tasks that this server let into a queue."),
		slots:        desc("servo_slot_total", "Slots that this server has decided about.", "outcome"),
		slotLag:      desc("servo_slot_lag_seconds", "How late slots fired, after their jitter."),
		breaches:     desc("servo_run_breaches_total", "Promises about runs that were broken.", "sla"),
	}}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs.all() {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	s := c.recorder.snapshot()
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	out := output{to: to, descs: &c.descs}
	for key, counts := range s.assets {
		out.tasks(c.names.tenant(ctx, key.tenant), c.names.workspace(ctx, key.tenant, key.workspace), key.asset, counts)
	}
	for tenant, series := range s.tenants {
		out.tenant(c.names.tenant(ctx, tenant), &series)
	}
	out.tenant(Other, &s.others)
	out.rest(&s)
}

// output writes metrics.
type output struct {
	to    chan<- prometheus.Metric
	descs *descs
}

func (o output) count(d *prometheus.Desc, n uint64, labels ...string) {
	o.to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (o output) tasks(tenant, workspace, asset string, counts taskCounts) {
	for _, c := range counts {
		o.count(o.descs.tasks, c.n, tenant, workspace, asset, c.state.String(), string(c.outcome))
	}
}

// tenant writes the series of one tenant. Histograms and counters that have seen nothing are
// left out: most tenants have no use for half of them.
func (o output) tenant(name string, s *tenantSeries) {
	o.tasks(name, Other, Other, s.tasks)
	for i, n := range s.attempts {
		if n > 0 {
			o.count(o.descs.attempts, n, name, attemptResults[i])
		}
	}
	for i, n := range s.runs {
		if n > 0 {
			o.count(o.descs.runs, n, name, (run.RunSucceeded + run.State(i)).String())
		}
	}
	for _, h := range []struct {
		*histogram
		desc   *prometheus.Desc
		bounds *bounds
		labels []string
	}{
		{&s.ready, o.descs.waits, &waiting, []string{name, run.Ready.String()}},
		{&s.queued, o.descs.waits, &waiting, []string{name, run.Queued.String()}},
		{&s.durations, o.descs.durations, &working, []string{name}},
		{&s.runDurations, o.descs.runDurations, &working, []string{name}},
	} {
		if h.counts != (histogram{}).counts {
			o.to <- h.metric(h.desc, h.bounds, h.labels...)
		}
	}
}

// rest writes what belongs to no tenant. It exists from the beginning: a rate needs a zero
// to begin with.
func (o output) rest(s *snapshot) {
	for code, n := range s.codes {
		o.count(o.descs.errors, n, code)
	}
	for quota, n := range s.quotas {
		o.count(o.descs.refusals, n, quota)
	}
	o.count(o.descs.lockResults, s.locksTaken, "acquired")
	o.count(o.descs.lockResults, s.locksMissed, "held")
	o.count(o.descs.rounds, s.rounds[0], "ok")
	o.count(o.descs.rounds, s.rounds[1], "failed")
	o.count(o.descs.admitted, s.admitted)
	for outcome := config.Fired; outcome <= config.Failed; outcome++ {
		o.count(o.descs.slots, s.slots[outcome], outcome.String())
	}
	o.count(o.descs.breaches, s.late, string(run.SLAStartDelay))
	o.count(o.descs.breaches, s.overran, string(run.SLAExecution))
	o.to <- s.slotLag.metric(o.descs.slotLag, &waiting)
	o.to <- s.scheduling.metric(o.descs.scheduling, &waiting)
	o.to <- s.lockHeld.metric(o.descs.lockHeld, &working)
	o.to <- s.lockWaits.metric(o.descs.lockWaits, &waiting)
	o.to <- s.roundSeconds.metric(o.descs.roundSeconds, &waiting)
}
