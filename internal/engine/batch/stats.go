package batch

import (
	"sync/atomic"
	"time"
)

// Stats count the work of a lane since it was started, and the requests that wait in it now.
type Stats struct {
	Name     string
	Waiting  int64   // requests that wait for a transaction
	Batches  int64   // committed batches
	Commands int64   // requests in them, answered or refused
	Retries  int64   // batches that were tried again, whole or in part
	Failures int64   // failed tries
	Refused  int64   // requests that were refused because too many waited or the server was stopping
	Seconds  float64 // spent on batches
}

type counts struct {
	batches, commands, retries, failures, refused, nanos atomic.Int64
}

// attempted counts one try.
func (c *counts) attempted(took time.Duration, err error, commands int, retry bool) {
	c.nanos.Add(int64(took))
	if retry {
		c.retries.Add(1)
	}
	if err != nil {
		c.failures.Add(1)
		return
	}
	c.batches.Add(1)
	c.commands.Add(int64(commands))
}

// Stats returns the counts of the lane.
func (l *Lane[Q, A]) Stats() Stats {
	l.mu.Lock()
	waiting := len(l.queue)
	l.mu.Unlock()
	return Stats{
		Name: l.name, Waiting: int64(waiting), Batches: l.counts.batches.Load(), Commands: l.counts.commands.Load(),
		Retries: l.counts.retries.Load(), Failures: l.counts.failures.Load(), Refused: l.counts.refused.Load(),
		Seconds: time.Duration(l.counts.nanos.Load()).Seconds(),
	}
}
