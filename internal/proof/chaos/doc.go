// Package chaos shows that the write path keeps its promises while everything under it
// breaks. It has tests only: several server processes (engine, admission, reaper and
// workers) share one PostgreSQL with fsync on, and a seeded schedule kills them with
// SIGKILL, stops them past their leases with SIGSTOP, crashes PostgreSQL, and cuts, drops
// and stalls their connections, COMMITs above all.
//
// What a worker was told is written to a ledger before it goes on, and each of its reports
// carries a name of its own into the events. At the end, when all has drained:
//
//   - every run that was acknowledged is there and has ended, as has every other run;
//   - every acknowledged report is in the events exactly once, under the token it was sent
//     with, and the token of the report that ended a task is in the task's row;
//   - a report that was refused left no event, and no task ended twice;
//   - a cancel that was accepted ended its run as CANCELLED, and one idempotency key never
//     stands for two runs, whichever servers it was sent to;
//   - the tables equal what the event log says;
//   - no task waited longer for the reaper after its lease, deadline or backoff than two of
//     the reaper's rounds, not counting the time when PostgreSQL was down or no server could
//     work. A server that falls silent in the middle of a transaction holds its locks until
//     PostgreSQL ends it: three seconds more for each that did so in the meantime.
//
// TestChaos takes a minute; SERVO_SOAK=20m makes it longer and SERVO_CHAOS_SEED replays a
// schedule. A seed fixes faults, targets and times; how the processes interleave it cannot
// fix.
//
// The clock is left alone, and nothing here asserts how fast anything is.
package chaos
