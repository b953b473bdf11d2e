// Package chaos shows that the write path keeps its promises during crashes and network faults.
// It has tests only. Several server processes (engine, admission, reaper and workers) share one
// PostgreSQL with fsync on. A seeded schedule kills them with SIGKILL, stops them past their
// leases with SIGSTOP, crashes PostgreSQL, and cuts, drops and stalls their connections, COMMITs
// above all.
//
// A worker writes each answer to a ledger before it continues, and each of its reports carries a
// unique name into the events. At the end, when all runs have ended:
//
//   - every acknowledged run exists, and every run has ended;
//   - every acknowledged report is in the events exactly once, under the token it was sent
//     with, and the token of the report that ended a task is in the task's row;
//   - a report that was refused left no event, and no task ended twice;
//   - an accepted cancel ended its run as CANCELLED, and one idempotency key never names two
//     runs, at any server;
//   - the tables match the event log;
//   - no task waited longer for the reaper after its lease, deadline or backoff than two of
//     the reaper's rounds, not counting the time when PostgreSQL was down or no server could
//     work. A server that stops in the middle of a transaction holds its locks until PostgreSQL
//     ends the transaction: three seconds more for each such server.
//
// TestChaos takes a minute; SERVO_SOAK=20m makes it longer and SERVO_CHAOS_SEED replays a
// schedule. A seed determines faults, targets and times, but not how the processes interleave.
//
// The tests do not change the clock and do not assert speed.
package chaos
