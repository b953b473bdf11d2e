// Package engine is the only write path of runs. It loads and locks rows, package run decides, and the
// store writes the difference with its events, in one transaction.
//
// Commands that wait at the same time are applied in one transaction (see package batch). Claims and
// reports share a lane. Triggers and cancels, which may be large, share another. Heartbeats have their
// own, so that an overloaded server does not look dead to its workers. Progress, logs and audit records
// have theirs. The loops call Admit, Expire, RetryDue, SkipDoomed and the like.
//
// The order of locks is that of docs/adr/0002-write-path.md; internal/proof/model checks it over every
// interleaving. Package run decides what may happen to a task, never the engine.
package engine
