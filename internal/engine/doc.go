// Package engine is the only write path of runs: it loads and locks rows, lets package run
// decide, and has the store write the difference with its events, in one transaction.
//
// Commands that wait together are applied together (see lane). Claims and reports share a
// lane; triggers and cancels, which may be large, have one; heartbeats have their own, so
// that overload never looks like death, and so have logs, which nothing waits for. The loops call Admit, Expire, RetryDue and
// SkipDoomed.
//
// The rules of locking are those of docs/adr/0002-write-path.md, which internal/proof/model
// checks over every interleaving. The engine never decides what may happen to a task.
package engine
