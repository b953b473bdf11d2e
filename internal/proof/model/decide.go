package model

// answer is the answer of a transaction to its client after the commit.
type answer struct {
	tokens   [maxTasks]int8 // a claim's leases
	accepted Set            // by this transaction or, for a repeat, by an earlier one
	stale    Set            // another worker holds the task, or none
	moved    bool           // an admission moved tasks
	signal   Set            // roles that have new work
	refused  bool           // another server holds the duty
	handoff  [maxTasks]int8 // leases for a waiting claim
}

// commit decides on the working set and writes the difference.
func (w *World) commit(s *State, tx *Tx) (a answer) {
	switch tx.Kind {
	case Admit:
		a.refused = w.refusedDuty(s, tx)
		if tx.Got[Ready] != 0 && w.Duty && s.Client[tx.Actor].Epoch != s.DB.Epoch {
			s.breaks(DutyHolder)
		}
		for t := range maxTasks {
			if tx.Got[Ready].has(t) {
				s.remove(Ready, t)
				s.insert(Pool, t, tx.Seen[t].carried())
				a.moved = true
				a.signal |= claimers
			}
		}
	case Claim:
		w.commitClaim(s, tx, &a)
	case Start:
		w.commitStart(s, tx, &a)
	case Advance:
		w.commitAdvance(s, tx, &a)
	case Complete, Fail, Yield, FanOut:
		w.commitReport(s, tx, &a)
	case Expire:
		w.commitExpire(s, tx, &a)
	case RetryDue:
		for t := range maxTasks {
			if tx.Got[Retry].has(t) {
				s.remove(Retry, t)
				w.ready(s, tx, t, tx.Seen[t].carried(), &a)
			}
		}
	case Withdraw: // no handoff: admission decides about the task again
		for t := range maxTasks {
			if tx.Got[Pool].has(t) {
				s.remove(Pool, t)
				s.insert(Ready, t, tx.Seen[t].carried())
				a.signal |= w.admitters()
			}
		}
	case Cancel:
		w.commitCancel(s, tx)
	case Mixed:
		w.commitReport(s, tx, &a)
		w.commitCancel(s, tx)
	case TakeOver:
		s.DB.Epoch++
		tx.Epoch = s.DB.Epoch
	case StartRun:
		fresh := w.fresh(s, tx)
		for t := range maxTasks {
			if fresh.has(t) {
				s.remove(Waiting, t)
				w.ready(s, tx, t, Row{}, &a)
			}
		}
	default:
	}
	for r := range maxRuns {
		if tx.Dirty.has(r) {
			w.endRun(&tx.Run[r])
			s.DB.Runs[r] = tx.Run[r]
		}
	}
	if tx.Repeat && w.Rules.RepeatSignals {
		a.signal = sleepers // the first try may have done the work
	}
	return a
}

func (w *World) commitClaim(s *State, tx *Tx, a *answer) {
	a.tokens = tx.Token // those of the first time, if this is a repeat
	for t := range maxTasks {
		from := Pool
		switch {
		case tx.Got[Pool].has(t):
		case tx.Got[Ready].has(t):
			from = Ready
		default:
			continue
		}
		token := tx.Seen[t].Attempt + 1
		s.remove(from, t)
		s.insert(Leases, t, Row{Attempt: token, Claim: tx.Claim, Running: !w.SeparateStart, Cursor: tx.Seen[t].Cursor, From: tx.Seen[t].Cursor})
		a.tokens[t] = token
	}
}

func (w *World) commitStart(s *State, tx *Tx, a *answer) {
	for t := range maxTasks {
		if !tx.Tasks.has(t) {
			continue
		}
		if !w.holds(tx, t) {
			a.stale |= set(t)
			continue
		}
		lease := tx.Seen[t]
		lease.Running, lease.Expired = true, false
		s.update(Leases, t, lease)
		a.accepted |= set(t)
	}
}

// commitAdvance moves the cursor of a lease: state of the lease, no event. The worker has an answer, so
// that the end of the lease must record the move.
func (w *World) commitAdvance(s *State, tx *Tx, a *answer) {
	for t := range maxTasks {
		switch {
		case !tx.Tasks.has(t):
		case w.holds(tx, t):
			lease := tx.Seen[t]
			lease.Cursor++
			s.update(Leases, t, lease)
			s.DB.Tasks[t].Moves++
			a.accepted |= set(t)
		default:
			a.stale |= set(t)
		}
	}
}

// carried is what a row takes along to the next queue.
func (r Row) carried() Row { return Row{Attempt: r.Attempt, Cursor: r.Cursor} }

// recorded is the row of a task whose lease has ended: its event has the cursor.
func (w *World) recorded(lease Row) Row {
	row := lease.carried()
	if !w.Rules.CursorRecorded {
		row.Cursor = lease.From
	}
	return row
}

// holds reports whether the lease that was read is the one that the command names.
func (w *World) holds(tx *Tx, t int) bool {
	return tx.Got[Leases].has(t) && (!w.Rules.TokenMatches || tx.Seen[t].Attempt == tx.Token[t])
}

func (w *World) commitReport(s *State, tx *Tx, a *answer) {
	for t := range maxTasks {
		if !tx.Tasks.has(t) {
			continue
		}
		switch {
		case w.holds(tx, t) && tx.Kind == FanOut:
			w.fanOut(s, tx, t, a)
		case w.Rules.ReportRemembered && s.DB.Tasks[t].Accepted.has(int(tx.Token[t])):
			a.accepted |= set(t)
		case w.holds(tx, t), w.LateReports && w.owns(tx, t) != Leases:
			w.accept(s, tx, t)
			w.endAttempt(s, tx, t, tx.Kind, a)
			a.accepted |= set(t)
		default:
			w.checkRefusal(s, tx, t)
			a.stale |= set(t)
		}
	}
}

// owns is the queue in which the task waits if no worker has claimed it since the attempt of this
// token; Leases if there is none.
func (w *World) owns(tx *Tx, t int) Queue {
	for _, q := range []Queue{Ready, Pool, Retry} {
		if tx.Got[q].has(t) && tx.Seen[t].Attempt == tx.Token[t] {
			return q
		}
	}
	return Leases
}

// checkRefusal checks whether a report was refused rightly.
func (w *World) checkRefusal(s *State, tx *Tx, t int) {
	if s.DB.Tasks[t].Accepted.has(int(tx.Token[t])) {
		s.breaks(FirstAnswer)
	}
	for q := range numQueues {
		if row := s.DB.Rows[q][t]; row.Present && row.Attempt == tx.Token[t] && w.StrictFence {
			s.breaks(TokenFences)
		}
	}
}

// accept records that a report was accepted.
func (w *World) accept(s *State, tx *Tx, t int) {
	if s.DB.Tasks[t].Accepted.has(int(tx.Token[t])) {
		s.breaks(TokenOnce)
	}
	if row := s.DB.Rows[w.owns(tx, t)][t]; !row.Present || row.Attempt != tx.Token[t] {
		s.breaks(HolderOnly)
	}
	s.DB.Tasks[t].Accepted |= set(int(tx.Token[t]))
}

// endAttempt decides the next state of a task whose lease ends.
func (w *World) endAttempt(s *State, tx *Tx, t int, how Kind, a *answer) {
	lease, run := tx.Seen[t], &tx.Run[w.Tasks[t].Run]
	again := lease.Attempt < w.Attempts
	s.remove(w.owns(tx, t), t)
	if how == Mixed {
		how = Complete
	}
	switch {
	case run.Mark && (w.Rules.HonourMark || how == Complete):
		w.end(s, tx, t, Cancelled)
	case how == Complete:
		w.end(s, tx, t, Succeeded)
		w.countDown(s, tx, t, a)
	case how == Yield && again:
		s.insert(Ready, t, w.recorded(lease))
		a.signal |= w.admitters()
	case how == Expire && again && !lease.Running:
		s.insert(Pool, t, w.recorded(lease))
		a.signal |= claimers
	case again:
		s.insert(Retry, t, w.recorded(lease))
	default: // out of attempts, or poison
		w.end(s, tx, t, Failed)
		w.skip(s, tx, t)
	}
}

// end writes the task's row and counts it in the run.
func (w *World) end(s *State, tx *Tx, t int, how Outcome) {
	r := w.Tasks[t].Run
	if s.DB.Tasks[t].Outcome != Live {
		s.breaks(EndsOnce)
	}
	s.DB.Tasks[t].Outcome = how
	tx.Run[r].Remaining--
	tx.Run[r].Count[how]++
	tx.Dirty |= set(r)
}

// countDown decrements the unmet upstreams of the dependents of a success, and readies those at zero.
func (w *World) countDown(s *State, tx *Tx, t int, a *answer) {
	down := s.DB.dependents(set(t)) & tx.Got[Waiting]
	for d := range maxTasks {
		if !down.has(d) {
			continue
		}
		tx.Seen[d].Unmet--
		if tx.Seen[d].Unmet > 0 {
			s.update(Waiting, d, tx.Seen[d])
			continue
		}
		s.remove(Waiting, d)
		w.ready(s, tx, d, Row{}, a)
	}
}

// skip ends the tasks that can no longer run.
func (w *World) skip(s *State, tx *Tx, t int) {
	down := s.DB.cone(set(t))
	if !w.Rules.FailureSkipsTheCone {
		down = s.DB.dependents(set(t))
	}
	down &= tx.Got[Waiting]
	tx.Got[Waiting] &^= down
	for d := range maxTasks {
		if down.has(d) {
			s.remove(Waiting, d)
			w.end(s, tx, d, Skipped)
		}
	}
}

// fanOut adds the world's mapped tasks to the run, with a barrier before the dependents.
func (w *World) fanOut(s *State, tx *Tx, t int, a *answer) {
	r := w.Tasks[t].Run
	switch {
	case tx.Run[r].Mark && w.Rules.FanOutHonoursMark:
		a.stale |= set(t)
		return
	case s.DB.Fans > 0 && w.Rules.FanOutOrdinal:
		a.accepted |= set(t)
		return
	case s.DB.Fans > 0:
		s.breaks(FansOnce)
	}
	s.DB.Fans++
	for m := range maxTasks {
		if w.Mapped.has(m) {
			s.DB.Tasks[m].Made = true
			s.insert(Ready, m, Row{})
		}
	}
	for d := range maxTasks {
		if s.DB.dependents(set(t)).has(d) && tx.Got[Waiting].has(d) {
			s.DB.Tasks[d].Ups |= w.Mapped
			tx.Seen[d].Unmet += w.Mapped.size()
			s.update(Waiting, d, tx.Seen[d])
		}
	}
	tx.Run[r].Remaining += w.Mapped.size()
	tx.Dirty |= set(r)
	a.accepted |= set(t)
	a.signal |= w.admitters()
}

func (w *World) commitExpire(s *State, tx *Tx, a *answer) {
	for t := range maxTasks {
		if !tx.Tasks.has(t) || !tx.Got[Leases].has(t) {
			continue
		}
		if w.Rules.ExpiryRechecked && !tx.Seen[t].Expired {
			continue
		}
		if lease := s.DB.Rows[Leases][t]; lease.Present && !lease.Expired {
			s.breaks(LiveLease)
		}
		w.endAttempt(s, tx, t, Expire, a)
	}
}

func (w *World) commitCancel(s *State, tx *Tx) {
	for r := range maxRuns {
		if tx.Sweeps.has(r) && tx.Run[r].Ended == Live {
			tx.Run[r].Mark = true
			tx.Dirty |= set(r)
		}
	}
	for t := range w.Tasks {
		for q := range numQueues {
			if !tx.Got[q].has(t) || !tx.Sweeps.has(w.Tasks[t].Run) {
				continue
			}
			if q == Leases {
				lease := s.DB.Rows[q][t]
				lease.Flag = true
				s.update(q, t, lease)
				continue
			}
			s.remove(q, t)
			w.end(s, tx, t, Cancelled)
		}
	}
}

// endRun ends a run whose last task has ended.
func (w *World) endRun(run *RunRow) {
	switch {
	case run.Remaining > 0 || run.Ended != Live:
	case run.Mark:
		run.Ended = Cancelled
	case run.Count[Failed] > 0:
		run.Ended = Failed
	default:
		run.Ended = Succeeded
	}
}
