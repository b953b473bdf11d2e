package model

// The handoff of docs/adr/0025-handoff.md: a transaction that readies tasks tries to hold the
// duty, and queues or leases the tasks itself if no other task waits.

// handoff lists the statements at the end of a transaction that readies tasks. It tries to lock
// the id of a claim and the duty's row, and never waits for them. The statements that follow have
// snapshots of their own.
func (w *World) handoff(k Kind) []stmt {
	switch k {
	case Complete, RetryDue, Mixed, StartRun:
	default:
		return nil
	}
	if !w.Handoff {
		return nil
	}
	r := w.Rules
	claim := stmt{on: onClaim, mode: lockIf(r.HandoffLocksClaim), try: true, pick: waitingClaim, when: readies}
	duty := stmt{on: onDuty, mode: Update, skip: r.HandoffSkips, pick: one, when: readies}
	room := stmt{on: onRoom, pick: one, when: mayQueue}
	leases := stmt{on: onQueue, queue: Leases, peek: true, pick: leasesOfClaim, when: mayLease}
	if !r.HandoffReadsAfter {
		duty.pick = oneAndRoom
		room.when = never
	}
	if !r.HandoffHoldsDuty {
		duty.when = never
	}
	if !r.HandoffLooksUpClaim {
		leases.when = never
	}
	return []stmt{claim, duty, room, leases}
}

func never(*World, *State, *Tx) bool { return false }

// readies reports whether the transaction has tasks for a handoff.
func readies(w *World, s *State, tx *Tx) bool { return w.fresh(s, tx) != 0 }

// mayQueue reports whether the transaction may queue them.
func mayQueue(w *World, s *State, tx *Tx) bool {
	return w.holdsDuty(tx) && readies(w, s, tx)
}

func (w *World) holdsDuty(tx *Tx) bool {
	return tx.Locks.Duty != Unlocked || !w.Rules.HandoffHoldsDuty
}

// mayLease reports whether the transaction may lease them to a claim.
func mayLease(w *World, s *State, tx *Tx) bool { return mayQueue(w, s, tx) && tx.Offer > 0 }

// fresh is the set of tasks that the transaction will ready and that were not in flight before.
// The rows that it depends on are locked.
func (w *World) fresh(s *State, tx *Tx) (tasks Set) {
	switch tx.Kind {
	case RetryDue:
		return tx.Got[Retry]
	case StartRun:
		for t := range w.Tasks {
			if tx.Got[Waiting].has(t) && tx.Seen[t].Unmet == 0 && !tx.Run[w.Tasks[t].Run].Mark {
				tasks |= set(t)
			}
		}
		return tasks
	default:
	}
	var done Set
	for t := range w.Tasks {
		if tx.Tasks.has(t) && w.holds(tx, t) && !tx.Run[w.Tasks[t].Run].Mark {
			done |= set(t)
		}
	}
	for t := range w.Tasks {
		met := s.DB.Tasks[t].Ups & done
		if tx.Got[Waiting].has(t) && met != 0 && tx.Seen[t].Unmet == met.size() {
			tasks |= set(t)
		}
	}
	return tasks
}

// waitingClaim takes a claim that waits in memory, so that no other transaction serves it.
func waitingClaim(w *World, s *State, tx *Tx) Set {
	for i := range w.Actors {
		a, c := &w.Actors[i], &s.Client[i]
		waits := a.Role == Worker && a.Max > 0 && s.Tx[i].Kind == None && c.Signal == 0 && c.Taken == 0 && held(c) == 0
		if waits && (!w.sleeps(a) || c.Asleep && !c.Wake) {
			c.Taken = tx.Actor + 1
			tx.Claim, tx.Offer = s.claimID(i), a.Max
			return set(0)
		}
	}
	return 0
}

func oneAndRoom(w *World, s *State, tx *Tx) Set {
	w.readRoom(s, tx)
	return set(0)
}

// readRoom counts how many tasks may be queued. None may be queued while other tasks are ready,
// and none leased while other tasks are queued.
func (w *World) readRoom(s *State, tx *Tx) {
	if tx.Kind == Claim {
		w.readClaimRoom(s, tx)
		return
	}
	tx.Limit = maxTasks
	if w.Quota > 0 {
		tx.Limit = w.Quota - s.DB.rows(Leases).size() - s.DB.rows(Pool).size()
	}
	if s.DB.rows(Ready) != 0 {
		tx.Limit = 0
	}
	if s.DB.rows(Pool) != 0 {
		tx.Offer = 0
	}
}

// leasesOfClaim drops a claim that has leases: it is a repeat, which looks up its leases itself.
func leasesOfClaim(_ *World, s *State, tx *Tx) Set {
	if s.DB.leasedTo(tx.Claim) {
		tx.Offer = 0
	}
	return 0
}

func (db *DB) leasedTo(claim int8) bool {
	for _, lease := range db.Rows[Leases] {
		if lease.Present && lease.Claim == claim {
			return true
		}
	}
	return false
}

// ready inserts a task into ready_q or, by a handoff, into pool_q or leases.
func (w *World) ready(s *State, tx *Tx, t int, row Row, a *answer) {
	if !w.Handoff || tx.Limit <= 0 || !w.holdsDuty(tx) {
		s.insert(Ready, t, row)
		a.signal |= w.admitters()
		return
	}
	if tx.Limit--; tx.Offer == 0 {
		s.insert(Pool, t, row)
		a.signal |= claimers
		return
	}
	tx.Offer--
	a.handoff[t] = row.Attempt + 1
	s.insert(Leases, t, Row{Attempt: row.Attempt + 1, Claim: tx.Claim, Running: !w.SeparateStart, Cursor: row.Cursor, From: row.Cursor})
}

// serveClaim answers the claim that was served, if it still waits where it was taken.
func (w *World) serveClaim(s *State, i int, tx *Tx, handoff [maxTasks]int8) {
	if handoff == [maxTasks]int8{} || tx.Claim == 0 {
		return
	}
	c := &s.Client[claimer(tx.Claim)]
	if int(c.Taken) != i+1 {
		return // the worker has repeated it at another server, where it finds its leases
	}
	c.Held, c.Taken, c.Asleep, c.Looked = handoff, 0, false, false
	c.Turn ^= 1
	if !w.SeparateStart {
		c.Running = held(c)
	}
}

// release wakes the claims that a transaction has taken and not served.
func (w *World) release(s *State, i int, unknown bool) {
	for j := range w.Actors {
		c := &s.Client[j]
		if int(c.Taken) != i+1 {
			continue
		}
		c.Taken = 0
		c.Wake = w.sleeps(&w.Actors[j])
		if unknown && w.Rules.LooksAfterUnknown {
			c.Looked = false
		}
	}
}

// giveUp answers a claim that has waited long enough: there is no task. The worker's next claim
// has another id.
func (w *World) giveUp(s *State, i int, yield func(*State, Step)) {
	a, c := &w.Actors[i], &s.Client[i]
	if !w.Patience || a.Role != Worker || a.Max == 0 || held(c) != 0 || c.Taken != 0 {
		return
	}
	if w.Rules.LooksBeforeNothing && !c.Looked {
		return
	}
	next := *s
	next.Client[i].Turn ^= 1
	next.Client[i].Looked, next.Client[i].Asleep = false, false
	yield(&next, w.step(givesUp, i, Claim))
}

// findable reports whether a loop would find work if it looked now.
func (w *World) findable(s *State, i int) bool {
	a := &w.Actors[i]
	if s.DB.rows(a.looksAt()) != 0 {
		return true
	}
	if a.Role != Worker {
		return false
	}
	return w.Handoff && s.DB.leasedTo(s.claimID(i)) || w.ClaimsAdmit && s.DB.rows(Ready) != 0
}
