package engine

import (
	"sync/atomic"
	"time"
)

// LaneStats are what a lane has done since the engine was made, and what waits in it now.
type LaneStats struct {
	Name     string
	Waiting  int64   // commands that wait for a transaction
	Batches  int64   // batches that went through
	Commands int64   // commands in them, answered well or not
	Retries  int64   // batches that were tried again, whole or in part
	Failures int64   // tries that ended in trouble
	Refused  int64   // commands that were turned away: too many waited, or the server stops
	Seconds  float64 // spent on batches
}

// Stats are the counts of each lane.
func (e *Engine) Stats() []LaneStats {
	return []LaneStats{e.control.stats(), e.work.stats(), e.heartbeats.stats(), e.progress.stats(), e.logs.stats(), e.audits.stats()}
}

// laneCounts only grow.
type laneCounts struct {
	batches, commands, retries, failures, refused, nanos atomic.Int64
}

// attempted takes note of one try.
func (c *laneCounts) attempted(took time.Duration, err error, commands int, retry bool) {
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

func (l *lane[C]) stats() LaneStats {
	l.mu.Lock()
	waiting := len(l.queue)
	l.mu.Unlock()
	return LaneStats{
		Name: l.name, Waiting: int64(waiting), Batches: l.counts.batches.Load(), Commands: l.counts.commands.Load(),
		Retries: l.counts.retries.Load(), Failures: l.counts.failures.Load(), Refused: l.counts.refused.Load(),
		Seconds: time.Duration(l.counts.nanos.Load()).Seconds(),
	}
}

// WakeStats are the notices between this server and the others since the engine was made.
type WakeStats struct {
	Sent, Unsent, Heard int64
	Listening           bool // whether notices of others are heard now
}

// WakeStats are the counts of notices.
func (e *Engine) WakeStats() WakeStats {
	far := e.signals.far
	return WakeStats{Sent: far.sent.Load(), Unsent: far.unsent.Load(), Heard: far.heard.Load(), Listening: far.listening.Load()}
}
