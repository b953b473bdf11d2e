// Package verify proves that the tables match the event log, and rebuilds the rows of one run
// from its events.
//
// Verify reads the whole database in one snapshot. It folds the events with the same Evolve that
// wrote the rows and compares every column of every row with the fold. It also checks invariants
// that hold for any events: a live task is in exactly one queue table, tokens and positions are
// unique, every row has its run, and every history follows the state machines. Volatile lists the
// columns that it does not compare.
//
// Repair rewrites the rows of one run to its fold, under the run's lock. Neither of them appends,
// changes or deletes an event, and neither makes a decision: events that cannot be folded are
// reported, and their rows stay as they are.
package verify
