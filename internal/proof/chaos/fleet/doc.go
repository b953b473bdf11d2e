// Package fleet shows that a whole installation keeps its promises during crashes and network
// faults: several servers, several workers built with package servo, and a PostgreSQL with fsync
// on. Each is a process of its own, and they communicate over the network. The package has tests
// only, and uses the public API only: runs are triggered through package client. Package chaos
// tests the connection between the engine and the database.
//
// A seeded schedule kills servers and workers, stops them past their leases and resumes them,
// shuts them down gracefully, crashes PostgreSQL, and cuts, silences and stalls the connections to
// the servers. Some faults happen in the middle of a task. A worker writes each result to its
// ledger before it returns it, and each answer before it continues. At the end, when all runs have
// ended:
//
//   - every trigger has exactly one run, however often and to whichever server it was sent, and
//     every run has succeeded with its ten tasks;
//   - every result equals the one that the test computes from the DAG, comes from the attempt that
//     the events name, and was computed from the final results of its upstreams;
//   - every task ended once, and no two attempts held it at the same time;
//   - answers to workers are true: an accepted end is in the events, under its attempt, and a
//     refused one is not;
//   - a worker that was shut down gracefully has left no result unanswered;
//   - the tables match the event log, and no process is left.
//
// It also requires that every kind of fault has happened, leases have expired, late reports were
// refused (also while another worker held the task), lost reports were repeated, tasks were
// retried, returned and interrupted, and the admission duty has moved from one server to another.
// The faults continue until all of this has happened.
//
// TestFleet takes about a minute; SERVO_SOAK=20m makes it longer and SERVO_CHAOS_SEED replays a
// schedule. A seed determines faults, targets and times, but not how the processes interleave. The
// tests do not assert speed.
package fleet
