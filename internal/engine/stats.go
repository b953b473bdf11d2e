package engine

import "go.arco.dev/servo/internal/engine/batch"

// Stats returns the counts of each lane.
func (e *Engine) Stats() []batch.Stats {
	return []batch.Stats{e.control.Stats(), e.work.Stats(), e.heartbeats.Stats(), e.progress.Stats(), e.logs.Stats(), e.audits.Stats()}
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
