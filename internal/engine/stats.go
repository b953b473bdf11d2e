package engine

import (
	"go.arco.dev/servo/internal/engine/batch"
	"go.arco.dev/servo/internal/engine/signal"
)

// Stats returns the counts of each lane.
func (e *Engine) Stats() []batch.Stats {
	return []batch.Stats{e.control.Stats(), e.work.Stats(), e.heartbeats.Stats(), e.progress.Stats(), e.logs.Stats(), e.audits.Stats()}
}

// NoticeStats returns the counts of notices between this server and the others.
func (e *Engine) NoticeStats() signal.Stats { return e.signals.Stats() }
