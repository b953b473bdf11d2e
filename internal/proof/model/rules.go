package model

import "reflect"

// Rules are the rules of docs/adr/0002-write-path.md. Each can be switched off to show which
// promise breaks without it. A field's comment describes the model without the rule.
type Rules struct {
	// Locks on the run's row.

	ReportsLockRun      bool // off: a report reads the run's row and locks it only when it writes it
	RunLockExcludes     bool // off: reports take the run FOR KEY SHARE, as retry due does
	CancelLocksUpdate   bool // off: cancel takes the run FOR NO KEY UPDATE
	RetryDueLocksRun    bool // off: retry due takes no run lock
	WithdrawLocksRun    bool // off: withdraw takes no run lock
	FanOutLocksRun      bool // off: a fan-out reads the run's row and locks it only when it writes it
	CountDownUnderLock  bool // off: the dependents' rows are read before the run is locked
	HonourMark          bool // off: expire, fail and yield do not look at the mark
	FanOutHonoursMark   bool // off: a fan-out does not look at the mark
	FailureSkipsTheCone bool // off: a failure skips its direct dependents only

	// The sweep of a cancel.

	SweepForward   bool // off: leases, pool_q, ready_q
	SweepSnapshots bool // off: one statement, and so one snapshot, for all tables
	SweepWaits     bool // off: the sweep is SKIP LOCKED
	MoverLocksRow  bool // off: admit and claim read without locking
	RetryLocksRow  bool // off: retry due reads retry_q without locking

	// Order of locks.

	TablesInOrder bool // off: reports lock leases before the run
	RowsInOrder   bool // off: every second actor locks rows by descending id
	RunsAtOnce    bool // off: a mixed batch locks the runs of its cancels, then those of its reports

	// Fencing and repeats.

	TokenMatches     bool // off: a lease is matched by its task alone
	ExpiryRechecked  bool // off: expiry does not check the rows that it picked without locks again
	ClaimIDLocked    bool // off: no advisory lock on the claim id
	ClaimIDLookedUp  bool // off: a repeated claim does not look for its leases
	ReportRemembered bool // off: a repeated report does not look for its first answer
	FanOutOrdinal    bool // off: a repeated fan-out does not look for its ordinal

	// The cursor, of docs/adr/0038-packed-events.md.

	AdvanceLocksLease bool // off: a move of the cursor reads the lease without locking
	CursorRecorded    bool // off: the end of a lease leaves the cursor as it was at the claim

	// Waking up.

	SignalAfterCommit bool // off: the signal goes out before the commit
	SignalLatched     bool // off: a signal to a loop that is not asleep is dropped
	RepeatSignals     bool // off: a repeat that finds its work done does not signal
	LoopPolls         bool // off: a sleeping loop waits for signals alone

	// The admission duty.

	DutyLocked    bool // off: the duty's row is read without a lock
	DutyEpoch     bool // off: the epoch is not compared
	DutyExclusive bool // off: the duty's row is locked FOR SHARE
	QuotaAtOnce   bool // off: leases and pool_q are counted by two statements

	// The handoff of docs/adr/0025-handoff.md.

	HandoffSkips        bool // off: it waits for the duty's row
	HandoffHoldsDuty    bool // off: it does not touch the duty's row
	HandoffReadsAfter   bool // off: the room is read in the snapshot in which the duty's row is found
	HandoffLocksClaim   bool // off: it does not lock the id of the claim that it serves
	HandoffLooksUpClaim bool // off: it does not look whether that claim has leases
	LooksBeforeNothing  bool // off: a claim that has waited without a look gets the answer that there is no task
	LooksAfterUnknown   bool // off: so does a claim that a transaction had taken whose commit is unanswered

	// Claims that admit, of docs/adr/0037-claims-that-admit.md.

	ClaimHoldsDuty  bool // off: a claim admits without the duty's row
	ClaimReadsAfter bool // off: it reads the room in the snapshot in which the duty's row is found

	// Locks that are not needed with the others: see TestSpareLocks.

	ReportLocksWaiting bool // off: reports read waiting without locking
	CancelLocksWaiting bool // off: cancel reads waiting without locking
	CancelLocksRetry   bool // off: cancel reads retry_q without locking
}

// AllRules has every rule on.
func AllRules() (r Rules) {
	v := reflect.ValueOf(&r).Elem()
	for i := range v.NumField() {
		v.Field(i).SetBool(true)
	}
	return r
}

// Without is every rule except one, by the name of its field.
func Without(name string) Rules {
	r := AllRules()
	reflect.ValueOf(&r).Elem().FieldByName(name).SetBool(false)
	return r
}
