// Package backfill is the life of a backfill: which partitions each of its runs covers, when the next run
// may start, and how it ends. It is pure: the engine creates the runs and passes in how they ended.
package backfill
