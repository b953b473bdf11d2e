package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"go.arco.dev/servo/internal/domain/run"
)

// bounds are the upper bounds of a histogram's buckets, in seconds.
type bounds [16]float64

// The buckets: of waiting, where milliseconds matter and an hour is too long, and of working,
// where a task may take a day.
var (
	waiting = bounds{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	working = bounds{.01, .05, .1, .5, 1, 5, 15, 30, 60, 300, 900, 1800, 3600, 7200, 21600, 86400}
)

// histogram counts durations. Its zero value is empty, and a copy is a snapshot.
type histogram struct {
	counts [len(bounds{}) + 1]uint64
	sum    float64
}

func (h *histogram) observe(b *bounds, took time.Duration) {
	seconds := max(0, took.Seconds()) // clocks of several servers may disagree
	i := 0
	for i < len(b) && seconds > b[i] {
		i++
	}
	h.counts[i]++
	h.sum += seconds
}

func (h *histogram) metric(desc *prometheus.Desc, b *bounds, labels ...string) prometheus.Metric {
	buckets, total := make(map[float64]uint64, len(b)), uint64(0)
	for i, bound := range b {
		total += h.counts[i]
		buckets[bound] = total
	}
	return prometheus.MustNewConstHistogram(desc, total+h.counts[len(b)], h.sum, buckets, labels...)
}

// tenantSeries are what is counted for each tenant that has labels of its own, and once for
// all the others.
type tenantSeries struct {
	ready, queued histogram // how long tasks have waited in these states
	durations     histogram // of attempts
	runDurations  histogram
	attempts      [len(attemptResults)]uint64
	runs          [4]uint64 // by state, from SUCCEEDED on
	tasks         taskCounts
}

// attemptResults are the ways in which an attempt ends.
var attemptResults = [...]string{"SUCCEEDED", "FAILED", "RETRIED", "RETURNED", "CANCELLED"}

// resultOf is the index of how an attempt ended, by the state that the task went to.
func resultOf(to run.TaskState) int {
	switch to {
	case run.Succeeded:
		return 0
	case run.Failed:
		return 1
	case run.RetryWait:
		return 2
	case run.Cancelled:
		return 4
	default: // ready or queued again, without its fault
		return 3
	}
}

// taskCounts are the ends of tasks: few enough to look through.
type taskCounts []taskCount

type taskCount struct {
	state   run.TaskState
	outcome run.Outcome
	n       uint64
}

func (c *taskCounts) add(state run.TaskState, outcome run.Outcome) {
	for i := range *c {
		if e := &(*c)[i]; e.state == state && e.outcome == outcome {
			e.n++
			return
		}
	}
	*c = append(*c, taskCount{state: state, outcome: outcome, n: 1})
}

// copied is a snapshot of a tenant's series.
func (s *tenantSeries) copied() tenantSeries {
	c := *s
	c.tasks = slices.Clone(s.tasks)
	return c
}
