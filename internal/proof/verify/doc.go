// Package verify proves that the tables equal what the event log says, and rebuilds the
// rows of one run from its events.
//
// Verify reads everything in one snapshot: it folds the events with the same Evolve that
// wrote the rows, compares every column of every row with the fold, and checks what must
// hold whatever the events say (a live task stands in exactly one queue table, tokens and
// positions are unique, no row is without its run, no history does what the machines
// forbid). What it does not compare is listed by name in Volatile.
//
// Repair rewrites one run to its fold, under the run's lock. Neither of them appends,
// changes or deletes an event, and neither decides anything: what cannot be folded is
// reported and left alone.
package verify
