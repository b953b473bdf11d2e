// Package model is an executable model of the write path of docs/adr/0002-write-path.md. It
// defines small worlds of two to four tasks in which several servers, workers and loops act. It
// visits every interleaving of their statements and checks the promises after each step. It is a
// proof for small numbers only. The product never imports it, and it imports no package of the
// product.
//
// # How PostgreSQL is modelled
//
// The model has READ COMMITTED, statement by statement. A plain read is one step and sees
// committed rows. A locking select takes its snapshot in one step and then locks the rows of
// that snapshot one by one, in id order, each in a step of its own. It waits for a row that
// another transaction holds in a conflicting mode (or skips it, with SKIP LOCKED). It passes
// over a row that was deleted since the snapshot. It does not see a row that was inserted since
// the snapshot, even if its key was in the snapshot. Writes and commit are one step, because a
// transaction writes only rows that it has locked or inserted. Where a rule is switched off and
// the row was read without a lock, the write is a step that may wait. A server may crash before
// any statement and between commit and signal. The answer of a commit may be lost: then its
// transaction keeps its locks, is committed or rolled back at any later time, and the client
// runs the command again meanwhile. PostgreSQL's queue of lock waiters is not modelled: any
// transaction that can lock may be next.
//
// # How a world is searched
//
// Breadth first from the first state, so that a broken promise comes with a shortest list of
// steps. Afterwards the search checks that all runs can end from every state, without any step
// that depends on chance and without a cancel.
//
// # What each rule is for
//
// Each rule of the decision is a field of [Rules]. Each line below names a rule that is switched
// off, the world in which a promise then breaks, the number of steps, and the promise. The tests
// repeat them and compare this list.
//
//   - ReportsLockRun: fan-in, 11 steps: transactions do not deadlock
//   - ReportsLockRun: diamond, 18 steps: a run's counters match the rows
//   - RunLockExcludes: diamond, 20 steps: a run's counters match the rows
//   - CancelLocksUpdate: one task, 38 steps: after a cancel nothing of the run waits in a queue
//   - RetryDueLocksRun: one task, 36 steps: after a cancel nothing of the run waits in a queue
//   - WithdrawLocksRun: withdrawn from a pool, 18 steps: after a cancel nothing of the run waits in a queue
//   - FanOutLocksRun: fan-out, 11 steps: transactions do not deadlock
//   - FanOutLocksRun: fan-out, 19 steps: a run's counters match the rows
//   - CountDownUnderLock: diamond, 18 steps: unmet is the number of upstreams that have not succeeded
//   - HonourMark: one task, 30 steps: after a cancel nothing of the run waits in a queue
//   - FanOutHonoursMark: fan-out, 18 steps: after a cancel nothing of the run waits in a queue
//   - FailureSkipsTheCone: diamond, 15 steps: from every state all runs can end
//   - SweepForward: one task, 13 steps: after a cancel nothing of the run waits in a queue
//   - SweepForward: batches over two runs, 18 steps: after a cancel every lease of the run is flagged
//   - SweepSnapshots: one task, 13 steps: after a cancel nothing of the run waits in a queue
//   - SweepWaits: one task, 13 steps: after a cancel nothing of the run waits in a queue
//   - MoverLocksRow: one task, 14 steps: after a cancel nothing of the run waits in a queue
//   - MoverLocksRow: claims whose answer is lost, 18 steps: a live task is in exactly one queue, an ended one in none
//   - RetryLocksRow: stopped worker, 26 steps: a live task is in exactly one queue, an ended one in none
//   - TablesInOrder: one task, 24 steps: transactions do not deadlock
//   - RowsInOrder: batches over two runs, 17 steps: transactions do not deadlock
//   - RunsAtOnce: mixed batches, 8 steps: transactions do not deadlock
//   - TokenMatches: stopped worker, 27 steps: only reports of the lease holder are accepted
//   - ExpiryRechecked: stopped worker, 13 steps: no lease is taken away before its expiry
//   - ClaimIDLocked: claims whose answer is lost, 10 steps: no worker holds a lease that it does not know of
//   - ClaimIDLookedUp: claims whose answer is lost, 12 steps: no worker holds a lease that it does not know of
//   - ReportRemembered: reports whose answer is lost, 14 steps: a repeated report gets its first answer
//   - FanOutOrdinal: fan-out, 16 steps: a fan-out happens once
//   - AdvanceLocksLease: cursor, 10 steps: an acknowledged move of the cursor is not lost
//   - CursorRecorded: cursor, 11 steps: an acknowledged move of the cursor is not lost
//   - SignalAfterCommit: wake-up without polling, 15 steps: no loop sleeps forever while it has work
//   - SignalLatched: wake-up without polling, 14 steps: no loop sleeps forever while it has work
//   - RepeatSignals: wake-up without polling, 19 steps: no loop sleeps forever while it has work
//   - LoopPolls: wake-up with polling, 12 steps: no loop sleeps forever while it has work
//   - DutyLocked: admission duty and quota, 10 steps: only the holder of the duty admits
//   - DutyEpoch: admission duty and quota, 11 steps: only the holder of the duty admits
//   - DutyExclusive: admission duty and quota, 14 steps: no more tasks are admitted than the quota allows
//   - DutyExclusive: wake-up without polling, 28 steps: no loop sleeps forever while it has work
//   - QuotaAtOnce: admission duty and quota, 23 steps: no more tasks are admitted than the quota allows
//   - HandoffSkips: handoff and the start of a run, 19 steps: transactions do not deadlock
//   - HandoffHoldsDuty: handoff and quota, 21 steps: no more tasks are admitted than the quota allows
//   - HandoffReadsAfter: handoff and quota, 23 steps: no more tasks are admitted than the quota allows
//   - HandoffLocksClaim: handoff and claims, 34 steps: no worker holds a lease that it does not know of
//   - HandoffLooksUpClaim: handoff and claims, 20 steps: no worker holds a lease that it does not know of
//   - LooksBeforeNothing: handoff and claims, 9 steps: no worker holds a lease that it does not know of
//   - LooksAfterUnknown: handoff and claims, 35 steps: no worker holds a lease that it does not know of
//   - RetryDueLocksRun: handoff and cancel, 21 steps: after a cancel every lease of the run is flagged
//   - CancelLocksUpdate: handoff and cancel, 23 steps: after a cancel every lease of the run is flagged
//   - DutyLocked: handoff and quota, 29 steps: no more tasks are admitted than the quota allows
//   - ClaimHoldsDuty: claims that admit and quota, 16 steps: no more tasks are admitted than the quota allows
//   - ClaimReadsAfter: claims that admit and quota, 17 steps: no more tasks are admitted than the quota allows
//   - MoverLocksRow: claims that admit and cancel, 17 steps: after a cancel nothing of the run waits in a queue
//   - SweepForward: claims that admit and cancel, 16 steps: after a cancel nothing of the run waits in a queue
//
// Where the first promise to break is a deadlock, the second line of a rule shows which promise
// breaks if deadlocks are ignored.
//
// Some rules are stricter than the first version of the decision, because the search broke it:
// DutyExclusive (FOR SHARE keeps out a takeover, but not a second admission of the same holder
// while the commit of the first is unanswered), QuotaAtOnce, RunsAtOnce (a batch that cancels one
// run and reports on another locks all run rows in one statement, in its strongest mode),
// SignalLatched, and RepeatSignals (a repeat always signals, since the first try may have done
// the work without a signal). For handoffs these are LooksBeforeNothing and LooksAfterUnknown: a
// worker never repeats a claim id after the answer that there is no task. So the server must
// have looked up the id before that answer, and after the end of the last transaction that may
// have leased a task to it.
//
// # Handoff
//
// docs/adr/0025-handoff.md, for reports, due retries, batches and starts of runs. A worker that
// holds no task and is in no transaction is a claim that waits in memory, even if it has not
// looked at the queue. The worker may repeat the claim while a transaction serves it. A
// transaction takes a claim and tries to lock its id in one step. This leaves out the claim that
// is repeated, served and completed in between: see the slow first claim below. The tasks of a
// tenant in flight are counted from rows and not from settlements. The model therefore assumes
// that a task which was in flight before goes to the admission loop. Fairness is not modelled.
//
// # Claims that admit
//
// docs/adr/0037-claims-that-admit.md: a claim that finds too few queued tasks tries to hold the duty,
// reads the room, locks ready tasks and leases them. A ready task wakes claims as well as admission. A
// claim that finds the duty held looks again after a moment; the model has it wait for a signal.
//
// # Cursors
//
// docs/adr/0038-packed-events.md: a move of the cursor changes the lease and records no event. The end of
// the lease records the cursor.
//
// # The lock between runs
//
// docs/adr/0011-limits-and-locks.md, in a world of its own ([ExploreLocks]): a run that holds the
// lock, one that waits for it, two triggers, an end, a cancel and a start. Each rule is a field of
// [LockRules]:
//
//   - LooksAtLine: 10 steps: no run takes a lock ahead of one that waits
//   - LineByTurn: 16 steps: no run takes a lock ahead of one that waits
//   - KeyBeforeTenant: 22 steps: transactions do not deadlock
//   - RunBeforeKey: 10 steps: transactions do not deadlock
//
// Two triggers that have not seen each other's commit have no order: either may be first.
//
// # Promoted versions
//
// docs/adr/0045-commit-of-outputs.md, in two worlds of their own ([ExploreOutputs]): an attempt whose
// lease expired, the attempt after it, another run's task, an approval and a rollback, over two
// partitions. In the second world a version is quarantined. Each rule is a field of [OutputRules]:
//
//   - LeaseBeforePointer: 7 steps: transactions do not deadlock
//   - PointersInOrder: 7 steps: transactions do not deadlock
//   - PointerReadLocked: 11 steps: a rollback replaces the version that the operator saw
//   - TokenCompared: 12 steps: a version older than one that was promoted does not become current by completing
//   - HighestKept: 17 steps: a version older than one that was promoted does not become current by completing
//   - TokenMatches: 6 steps: only the holder of the lease promotes
//   - GateHonoured: 6 steps: a quarantined version is promoted by a reviewer only
//   - ExpectedCompared: 11 steps: a rollback replaces the version that the operator saw
//
// # Holds of partitions
//
// docs/adr/0049-partition-holds.md, in a world of its own ([ExploreHolds]): a leased task that covers a
// range, a scheduled task and a task of a backfill that overlap it, two admitters, ends, a cancel and a
// yield. A round never waits for the row of a hold. Each rule is a field of [HoldRules]:
//
//   - RoundHoldsDuty: 18 steps: a partition has one writer from its first lease to its end
//   - HoldsReadAfter: 20 steps: a partition has one writer from its first lease to its end
//   - RangesCompared: 6 steps: a partition has one writer from its first lease to its end
//   - RoundCompares: 12 steps: a partition has one writer from its first lease to its end
//   - ScheduledFirst: 12 steps: a backfill takes no partition for which the round has scheduled work
//   - BlockerLocked: 12 steps: a task waits for a hold that exists
//   - WaitsReadAfter: 13 steps: a task waits for a hold that exists
//   - EndReleases: 18 steps: an ended task holds nothing
//   - EndDropsWait: 12 steps: an ended task waits for nothing
//   - HeldUntilTheEnd: 24 steps: a partition has one writer from its first lease to its end
//   - OwnHoldKept: 24 steps: a task waits for the hold of another
//   - ReleaseMakesOpen: 12 steps: a task waits for a hold that exists
//
// # Quarantined versions
//
// docs/adr/0054-promotion.md, in a world of its own ([ExploreQuarantine]): a run whose first task is
// quarantined while its second depends on it, the first version of the same partition by another run,
// and an approval. A quarantined upstream is a third branch of its dependents: they read the last good
// version, or are skipped if there is none. Each rule is a field of [QuarantineRules]:
//
//   - PointerInserted: 7 steps: a task is skipped only if its upstream has no good version
//   - RunBeforePointer: 9 steps: transactions do not deadlock
//   - RunLockedByApproval: 17 steps: the approval of the last quarantined output completes the run's success, once
//   - PointerReadLocked: 8 steps: a task is skipped only if its upstream has no good version
//   - QuarantineCounted: 9 steps: a run with a quarantined output is no success
//
// # Locks that are not needed
//
// Rows of waiting are written only under an excluding lock of the run's row, and no transaction
// moves a row of retry_q past a cancel. ReportLocksWaiting, CancelLocksWaiting and
// CancelLocksRetry can be off together, and every promise holds (TestSpareLocks).
//
// # What is not promised
//
// TestLimits shows these with their steps. Signals alone are not enough: a server that crashes
// between commit and signal leaves a task that only polling finds, and so does a due retry whose
// commit is unanswered while its repeat skips the locked row. A claim that reaches its server
// after its own repeat was served, completed and reported finds no lease of its id and leases
// another task to a caller that no longer waits; that lease has to expire. After the reaper has
// expired a lease, the report of its worker is refused even if no other worker has claimed the
// task. Reports that look for the task in all queues, with due retries locking the run FOR SHARE,
// could be accepted without breaking a promise.
package model
