// Package fleet shows that a whole installation keeps its promises while everything in it
// breaks: several servers, several workers that are written with package servo, and a
// PostgreSQL with fsync on, each a process of its own, which talk over the network. It has
// tests only, and knows the product from outside alone: runs are triggered through package
// client. What happens between the engine and the database is package chaos's.
//
// A seeded schedule kills servers and workers, stops them past their leases and lets them
// go on, asks them to end in good order, crashes PostgreSQL, and cuts, silences and stalls
// the connections to the servers. Some of these happen in the middle of a task, where they
// hurt most. A worker writes down what it is about to return before it returns it, and what
// it was answered before it goes on. At the end, when all has drained:
//
//   - every trigger has exactly one run, however often and to whomever it was sent, and
//     every run has succeeded with its ten tasks;
//   - every result is the one that the test computes from the DAG, was made by the very
//     attempt that the events name, and has seen the results of its upstreams as they are;
//   - every task ended once, and no two attempts held it at the same time;
//   - what a worker was told is what happened: an accepted end is in the events, under its
//     attempt, and a refused one is not;
//   - a worker that ended in good order has left no result unanswered;
//   - the tables equal what the event log says, and no process is left.
//
// It also demands that all of this was put to the test: every kind of fault has happened,
// leases have expired, late reports were refused, also while somebody else was at the task,
// lost ones were repeated, tasks were retried, given back and interrupted, and the duty of
// admission has moved from one server to another. If the schedule did not bring it about
// the faults go on until it has happened.
//
// TestFleet takes about a minute; SERVO_SOAK=20m makes it longer and SERVO_CHAOS_SEED
// replays a schedule. A seed fixes faults, targets and times; how the processes interleave
// it cannot fix. Nothing here asserts how fast anything is.
package fleet
