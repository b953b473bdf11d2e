package model

// program lists the statements of a transaction before its commit, as in the decision's table of
// locks. Writes are statements of their own only where the row was read without a lock, because
// then they may have to wait.
func (w *World) program(k Kind) []stmt {
	p := w.reading(k)
	for _, st := range p {
		if st.on == onQueue && st.mode == Unlocked && !st.peek {
			p = append(p, stmt{on: onQueue, queue: st.queue, mode: Update, blind: true, pick: asRead(st.queue)})
		}
	}
	return append(p, w.handoff(k)...)
}

func (w *World) reading(k Kind) []stmt {
	r := w.Rules
	runs := stmt{on: onRuns, mode: NoKeyUpdate, pick: theirRuns}
	switch k {
	case Admit:
		return w.admission()
	case Claim:
		var p []stmt
		if r.ClaimIDLocked {
			p = append(p, stmt{on: onClaim, mode: Update, pick: one})
		}
		if r.ClaimIDLookedUp {
			p = append(p, stmt{on: onQueue, queue: Leases, peek: true, pick: claimed})
		}
		p = append(p, stmt{on: onQueue, queue: Pool, mode: lockIf(r.MoverLocksRow), skip: true, pick: claimable})
		return append(p, w.admittingClaim()...)
	case Start:
		return []stmt{{on: onQueue, queue: Leases, mode: Update, pick: theirs(Leases)}}
	case Advance:
		return []stmt{{on: onQueue, queue: Leases, mode: lockIf(r.AdvanceLocksLease), pick: theirs(Leases)}}
	case Complete, Fail, Yield, FanOut:
		return w.report(k)
	case Expire:
		return append([]stmt{{on: onQueue, queue: Leases, peek: true, pick: expired}}, w.report(k)...)
	case RetryDue:
		p := []stmt{{on: onQueue, queue: Retry, peek: true, pick: due}}
		if runs.mode = max(KeyShare, w.RetryDueMode); r.RetryDueLocksRun {
			p = append(p, runs)
		}
		return append(p, stmt{on: onQueue, queue: Retry, mode: lockIf(r.RetryLocksRow), skip: true, pick: theirs(Retry)})
	case Withdraw:
		p := []stmt{{on: onQueue, queue: Pool, peek: true, pick: withoutAccess}}
		if runs.mode = KeyShare; r.WithdrawLocksRun {
			p = append(p, runs)
		}
		return append(p, stmt{on: onQueue, queue: Pool, mode: lockIf(r.MoverLocksRow), skip: true, pick: theirs(Pool)})
	case Cancel:
		if r.CancelLocksUpdate {
			runs.mode = Update
		}
		return append([]stmt{runs}, w.sweep()...)
	case Mixed:
		if r.RunsAtOnce {
			runs.mode = Update
			return append([]stmt{runs}, w.sweep()...)
		}
		cancels := stmt{on: onRuns, mode: Update, pick: sweptRuns}
		runs.pick = reportedRuns
		return append([]stmt{cancels, runs}, w.sweep()...)
	case TakeOver:
		return []stmt{{on: onDuty, mode: Update, pick: one}}
	case StartRun:
		return []stmt{
			{on: onDuty, mode: Update, pick: one},
			{on: onQueue, queue: Waiting, peek: true, pick: unstarted},
			runs,
			{on: onQueue, queue: Waiting, mode: Update, pick: theirs(Waiting)},
		}
	default:
		return nil
	}
}

// report locks the rows of an attempt's end: the run, the dependents, the lease.
func (w *World) report(k Kind) []stmt {
	r := w.Rules
	runs := stmt{on: onRuns, mode: NoKeyUpdate, pick: theirRuns}
	update := stmt{on: onRuns, mode: NoKeyUpdate, blind: true, pick: theirRuns}
	waiting := stmt{on: onQueue, queue: Waiting, mode: lockIf(r.ReportLocksWaiting), pick: downstream}
	leases := stmt{on: onQueue, queue: Leases, mode: Update, pick: theirs(Leases)}

	locksRun := r.ReportsLockRun
	if k == FanOut {
		locksRun = r.FanOutLocksRun
	}
	switch {
	case !locksRun:
		runs.mode = Unlocked
		return []stmt{runs, waiting, leases, update}
	case !r.RunLockExcludes:
		runs.mode = KeyShare
		return []stmt{runs, waiting, leases, update}
	case !r.CountDownUnderLock:
		waiting.mode = Unlocked
		return []stmt{waiting, runs, leases}
	case !r.TablesInOrder:
		return []stmt{leases, runs, waiting}
	case w.LateReports && k != Expire:
		look := func(q Queue) stmt { return stmt{on: onQueue, queue: q, mode: Update, pick: theirs(q)} }
		return []stmt{runs, waiting, look(Ready), look(Pool), leases, look(Retry)}
	}
	return []stmt{runs, waiting, leases}
}

// sweep locks all queue rows of a cancelled run, whose row is locked.
func (w *World) sweep() []stmt {
	r := w.Rules
	order := []Queue{Waiting, Ready, Pool, Leases, Retry}
	if !r.SweepForward {
		order = []Queue{Waiting, Leases, Pool, Ready, Retry}
	}
	var p []stmt
	for n, q := range order {
		st := stmt{on: onQueue, queue: q, mode: Update, skip: !r.SweepWaits, pick: swept(q)}
		if q == Waiting && !r.CancelLocksWaiting || q == Retry && !r.CancelLocksRetry {
			st.mode = Unlocked
		}
		if !r.SweepSnapshots {
			if st.keep = n > 0; n == 0 {
				st.pick = everythingAtOnce
			}
		}
		p = append(p, st)
	}
	return p
}

// admission checks the duty and the quota in worlds that have them.
func (w *World) admission() []stmt {
	r := w.Rules
	var p []stmt
	if w.Duty {
		duty := stmt{on: onDuty, mode: Update, pick: one}
		if !r.DutyExclusive {
			duty.mode = Share
		}
		if !r.DutyLocked {
			duty.mode = Unlocked
		}
		p = append(p, duty)
	}
	if w.Quota > 0 {
		p = append(p, stmt{on: onUsage, queue: Leases, pick: one})
		if !r.QuotaAtOnce {
			p = append(p, stmt{on: onUsage, queue: Pool, pick: one})
		}
	}
	return append(p, stmt{on: onQueue, queue: Ready, mode: lockIf(r.MoverLocksRow), skip: true, pick: admissible})
}

func lockIf(locked bool) Mode {
	if locked {
		return Update
	}
	return Unlocked
}

// The rows that statements pick, from the committed state when they begin.

func one(*World, *State, *Tx) Set { return set(0) }

func theirRuns(_ *World, _ *State, tx *Tx) Set { return tx.Runs | tx.Sweeps }

func reportedRuns(_ *World, _ *State, tx *Tx) Set { return tx.Runs }

func sweptRuns(_ *World, _ *State, tx *Tx) Set { return tx.Sweeps }

func theirs(q Queue) func(*World, *State, *Tx) Set {
	return func(_ *World, s *State, tx *Tx) Set { return s.DB.rows(q) & tx.Tasks }
}

func asRead(q Queue) func(*World, *State, *Tx) Set {
	return func(_ *World, s *State, tx *Tx) Set { return s.DB.rows(q) & tx.Got[q] }
}

func swept(q Queue) func(*World, *State, *Tx) Set {
	return func(w *World, s *State, tx *Tx) Set {
		of := w.tasksOf(tx.Sweeps)
		switch q {
		case Waiting:
			of |= s.DB.dependents(tx.Tasks)
		case Leases:
			of |= tx.Tasks
		default:
		}
		return s.DB.rows(q) & of
	}
}

func everythingAtOnce(w *World, s *State, tx *Tx) Set {
	for q := range numQueues {
		tx.Todo[q] = swept(q)(w, s, tx)
	}
	return tx.Todo[Waiting]
}

// downstream is the set of tasks that count down at a success, or are skipped at a failure.
func downstream(w *World, s *State, tx *Tx) Set {
	down := s.DB.dependents(tx.Tasks)
	if (tx.Kind == Fail || tx.Kind == Expire) && w.Rules.FailureSkipsTheCone {
		down = s.DB.cone(tx.Tasks)
	}
	return s.DB.rows(Waiting) & down
}

func claimed(_ *World, s *State, tx *Tx) Set {
	for t, row := range s.DB.Rows[Leases] {
		if row.Present && row.Claim == tx.Claim {
			tx.Tasks |= set(t)
			tx.Token[t] = row.Attempt
		}
	}
	return tx.Tasks
}

func claimable(_ *World, s *State, tx *Tx) Set {
	if tx.Tasks != 0 {
		return 0 // a repeat: it returns the leases of the first try
	}
	return s.DB.rows(Pool)
}

func admissible(w *World, s *State, tx *Tx) Set {
	if w.Quota > 0 && tx.Limit <= 0 || w.refusedDuty(s, tx) {
		return 0
	}
	return s.DB.rows(Ready)
}

// refusedDuty reports whether another server has taken the duty over.
func (w *World) refusedDuty(s *State, tx *Tx) bool {
	return w.Duty && w.Rules.DutyEpoch && tx.Epoch != s.Client[tx.Actor].Epoch
}

// expired, due and withoutAccess choose the tasks of a reaper's transaction, without locks.

func expired(w *World, s *State, tx *Tx) Set {
	tx.Tasks = s.DB.expired()
	tx.Runs = w.runsOf(tx.Tasks)
	return tx.Tasks
}

func due(w *World, s *State, tx *Tx) Set {
	tx.Tasks = s.DB.rows(Retry)
	tx.Runs = w.runsOf(tx.Tasks)
	return tx.Tasks
}

// withoutAccess chooses queued tasks whose pool no longer accepts them, without locks.
func withoutAccess(w *World, s *State, tx *Tx) Set {
	tx.Tasks = s.DB.rows(Pool)
	tx.Runs = w.runsOf(tx.Tasks)
	return tx.Tasks
}

// unstarted chooses runs that wait for their start.
func unstarted(w *World, s *State, tx *Tx) Set {
	tx.Tasks = s.DB.unstarted()
	tx.Runs = w.runsOf(tx.Tasks)
	return tx.Tasks
}

// unstarted is the set of tasks that wait for nothing but the start of their run.
func (db *DB) unstarted() (tasks Set) {
	for t, row := range db.Rows[Waiting] {
		if row.Present && row.Unmet == 0 {
			tasks |= set(t)
		}
	}
	return tasks
}

func (db *DB) expired() (late Set) {
	for t, row := range db.Rows[Leases] {
		if row.Present && row.Expired {
			late |= set(t)
		}
	}
	return late
}
