// Package model is an executable model of the write path that
// docs/adr/0002-write-path.md decides on. It takes small worlds of two to four tasks,
// lets several servers, workers and loops act in them, visits every interleaving of their
// statements and looks after each step whether the promises hold. It is a proof for small
// numbers and nothing else: the product never imports it, and it imports nothing of the
// product.
//
// # How PostgreSQL is modelled
//
// READ COMMITTED, statement by statement. A plain read is one step and sees what is
// committed. A locking select takes its snapshot in one step and then locks the rows of
// that snapshot one by one, in id order, each a step of its own: a row that somebody
// holds in a conflicting mode is waited for (or skipped, with SKIP LOCKED), a row that
// has been deleted meanwhile is stepped over, and a row that has come meanwhile is not
// seen, even if its key was in the snapshot. Writes and commit are one step, because a
// transaction writes only rows that it has locked or made; where a rule is switched off
// and the row was read without a lock, the write is a step that may wait. A server may
// die before any statement and between commit and signal. A commit may go unanswered:
// then its transaction lingers with its locks, is committed or rolled back at any later
// time, and the command is meanwhile run again. The queue in which PostgreSQL lets
// waiters wait is not modelled: anyone who can lock may be next.
//
// # How a world is searched
//
// Breadth first from the first state, so that a broken promise comes with a shortest
// list of steps. Afterwards every state must have a way to the end of all runs that
// depends on nobody's bad luck and on no cancel.
//
// # What each rule is for
//
// Each rule of the decision is a field of [Rules]. These mutations were tried: a rule is
// switched off, and a world breaks a promise after so many steps. The tests repeat them
// and compare this list.
//
//   - ReportsLockRun: fan-in, 11 steps: transactions do not wait in a circle
//   - ReportsLockRun: diamond, 18 steps: a run's counters are what the rows say
//   - RunLockExcludes: diamond, 20 steps: a run's counters are what the rows say
//   - CancelLocksUpdate: one task, 38 steps: after a cancel nothing of the run waits in a queue
//   - RetryDueLocksRun: one task, 36 steps: after a cancel nothing of the run waits in a queue
//   - WithdrawLocksRun: withdrawn from a pool, 18 steps: after a cancel nothing of the run waits in a queue
//   - FanOutLocksRun: fan-out, 11 steps: transactions do not wait in a circle
//   - FanOutLocksRun: fan-out, 19 steps: a run's counters are what the rows say
//   - CountDownUnderLock: diamond, 18 steps: unmet is the number of upstreams that have not succeeded
//   - HonourMark: one task, 30 steps: after a cancel nothing of the run waits in a queue
//   - FanOutHonoursMark: fan-out, 18 steps: after a cancel nothing of the run waits in a queue
//   - FailureSkipsTheCone: diamond, 15 steps: from every state there is a way to the end of all runs
//   - SweepForward: one task, 13 steps: after a cancel nothing of the run waits in a queue
//   - SweepForward: batches over two runs, 18 steps: after a cancel every lease of the run is flagged
//   - SweepSnapshots: one task, 13 steps: after a cancel nothing of the run waits in a queue
//   - SweepWaits: one task, 13 steps: after a cancel nothing of the run waits in a queue
//   - MoverLocksRow: one task, 14 steps: after a cancel nothing of the run waits in a queue
//   - MoverLocksRow: claims whose answer is lost, 18 steps: a live task is in exactly one queue, an ended one in none
//   - RetryLocksRow: stopped worker, 26 steps: a live task is in exactly one queue, an ended one in none
//   - TablesInOrder: one task, 24 steps: transactions do not wait in a circle
//   - RowsInOrder: batches over two runs, 17 steps: transactions do not wait in a circle
//   - RunsAtOnce: mixed batches, 8 steps: transactions do not wait in a circle
//   - TokenMatches: stopped worker, 27 steps: only the holder of the lease is believed
//   - ExpiryRechecked: stopped worker, 13 steps: no lease is taken away before its expiry
//   - ClaimIDLocked: claims whose answer is lost, 10 steps: no worker holds a lease that it was not told of
//   - ClaimIDLookedUp: claims whose answer is lost, 12 steps: no worker holds a lease that it was not told of
//   - ReportRemembered: reports whose answer is lost, 14 steps: a repeated report gets its first answer
//   - FanOutOrdinal: fan-out, 16 steps: a fan-out happens once
//   - SignalAfterCommit: wake-up without polling, 15 steps: no loop sleeps for good while it has something to do
//   - SignalLatched: wake-up without polling, 14 steps: no loop sleeps for good while it has something to do
//   - RepeatSignals: wake-up without polling, 19 steps: no loop sleeps for good while it has something to do
//   - LoopPolls: wake-up with polling, 12 steps: no loop sleeps for good while it has something to do
//   - DutyLocked: admission duty and quota, 10 steps: only the holder of the duty admits
//   - DutyEpoch: admission duty and quota, 11 steps: only the holder of the duty admits
//   - DutyExclusive: admission duty and quota, 14 steps: no more tasks are admitted than the quota allows
//   - DutyExclusive: wake-up without polling, 28 steps: no loop sleeps for good while it has something to do
//   - QuotaAtOnce: admission duty and quota, 23 steps: no more tasks are admitted than the quota allows
//   - ShortWaySkips: short way and the start of a run, 19 steps: transactions do not wait in a circle
//   - ShortWayHoldsDuty: short way and quota, 21 steps: no more tasks are admitted than the quota allows
//   - ShortWayReadsAfter: short way and quota, 23 steps: no more tasks are admitted than the quota allows
//   - ShortWayLocksClaim: short way and claims, 34 steps: no worker holds a lease that it was not told of
//   - ShortWayLooksUpClaim: short way and claims, 20 steps: no worker holds a lease that it was not told of
//   - LooksBeforeNothing: short way and claims, 9 steps: no worker holds a lease that it was not told of
//   - LooksAfterUnknown: short way and claims, 35 steps: no worker holds a lease that it was not told of
//   - RetryDueLocksRun: short way and cancel, 21 steps: after a cancel every lease of the run is flagged
//   - CancelLocksUpdate: short way and cancel, 23 steps: after a cancel every lease of the run is flagged
//   - DutyLocked: short way and quota, 29 steps: no more tasks are admitted than the quota allows
//
// Where the first thing to happen is a deadlock, the second line of a rule shows what
// lies behind it when the deadlock is overlooked.
//
// Some rules are sharper than the decision was when it was written, because the search
// broke it: DutyExclusive (FOR SHARE keeps a takeover away, but not a second admission of
// the same holder while the commit of the first lingers), QuotaAtOnce, RunsAtOnce (a
// batch that cancels one run and reports on another takes all run rows in one statement,
// in its strongest mode), SignalLatched, and RepeatSignals (a repeat signals whatever it
// finds, since the first try may have done the work and told nobody). Of the short way these
// are LooksBeforeNothing and LooksAfterUnknown: a worker that is told that there is nothing
// never asks again by that id, so whoever says so must have looked by the id, and after the
// end of the last transaction that may have leased something to it.
//
// # The short way
//
// docs/adr/0025-handoff.md, for reports, retries that are due, batches and starts of
// runs. A worker that holds nothing and is in no transaction is a claim that waits in memory,
// even if it has not looked; it may be sent again while a transaction has it. A claim is
// taken and its id tried in one step, which leaves out the claim that is repeated, served and
// worked off in between: that is the slow first claim below. What a tenant has in flight
// is counted by the rows and not by notes that are settled later; that a task which was in
// flight goes to the loop is therefore taken for granted. Fairness is not modelled.
//
// # The lock that runs exclude each other by
//
// docs/adr/0011-limits-and-locks.md, in a world of its own ([ExploreLocks]): a run that holds the
// lock, one that waits for it, two triggers, an end, a cancel and a start. Each rule is a field of
// [LockRules]:
//
//   - LooksAtLine: 10 steps: no run takes a lock ahead of one that waits
//   - LineByTurn: 16 steps: no run takes a lock ahead of one that waits
//   - KeyBeforeTenant: 22 steps: transactions do not wait in a circle
//   - RunBeforeKey: 10 steps: transactions do not wait in a circle
//
// Two triggers that have not seen each other's commit have no order, and either may be first.
//
// # What is superfluous
//
// waiting is touched only under an excluding lock of the run's row, and nobody moves a
// row of retry_q past a cancel. ReportLocksWaiting, CancelLocksWaiting and
// CancelLocksRetry can be off together, and every promise holds (TestSpareLocks).
//
// # What is not promised
//
// TestLimits shows these with their steps. Signals alone are not enough: a server that
// dies between commit and signal, and a retry due whose commit lingers while its repeat
// skips the locked row, leave a task that only polling finds. A claim that reaches its
// server after its own repeat was served, worked off and reported finds no lease of its
// id and takes another task for a caller who is gone; the lease has to expire. And once
// the reaper has taken a lease, the report of its worker is refused although nobody else
// has claimed the task; reports that look for the task in all queues, with retry due
// taking the run FOR SHARE, would be believed without breaking anything.
package model
