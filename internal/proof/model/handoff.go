package model

// The short way of docs/adr/0025-handoff.md: a transaction that readies tasks tries to
// hold the duty, and queues or leases them itself where nobody waits.

// shortWay is what a transaction that readies tasks does at its end. The id of a claim and
// the duty's row are tried, and never waited for; what follows has snapshots of its own.
func (w *World) shortWay(k Kind) []stmt {
	switch k {
	case Complete, RetryDue, Mixed, StartRun:
	default:
		return nil
	}
	if !w.ShortWay {
		return nil
	}
	r := w.Rules
	claim := stmt{on: onClaim, mode: lockIf(r.ShortWayLocksClaim), try: true, pick: standing, when: readies}
	duty := stmt{on: onDuty, mode: Update, skip: r.ShortWaySkips, pick: one, when: readies}
	room := stmt{on: onRoom, pick: one, when: admits}
	leases := stmt{on: onQueue, queue: Leases, peek: true, pick: given, when: gives}
	if !r.ShortWayReadsAfter {
		duty.pick = oneAndRoom
		room.when = never
	}
	if !r.ShortWayHoldsDuty {
		duty.when = never
	}
	if !r.ShortWayLooksUpClaim {
		leases.when = never
	}
	return []stmt{claim, duty, room, leases}
}

func never(*World, *State, *Tx) bool { return false }

// readies says that the transaction has tasks for the short way.
func readies(w *World, s *State, tx *Tx) bool { return w.fresh(s, tx) != 0 }

// admits says that it may queue them.
func admits(w *World, s *State, tx *Tx) bool {
	return w.holdsDuty(tx) && readies(w, s, tx)
}

func (w *World) holdsDuty(tx *Tx) bool {
	return tx.Locks.Duty != Unlocked || !w.Rules.ShortWayHoldsDuty
}

// gives says that it may lease them to a claim.
func gives(w *World, s *State, tx *Tx) bool { return admits(w, s, tx) && tx.Gift > 0 }

// fresh is the set of tasks that the transaction will ready and that were not in flight
// before it. All that decides it is locked by now.
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

// standing takes a claim that waits in memory, so that nobody else serves it.
func standing(w *World, s *State, tx *Tx) Set {
	for i := range w.Actors {
		a, c := &w.Actors[i], &s.Client[i]
		waits := a.Role == Worker && a.Max > 0 && s.Tx[i].Kind == None && c.Signal == 0 && c.Taken == 0 && held(c) == 0
		if waits && (!w.sleeps(a) || c.Asleep && !c.Wake) {
			c.Taken = tx.Actor + 1
			tx.Claim, tx.Gift = s.claimID(i), a.Max
			return set(0)
		}
	}
	return 0
}

func oneAndRoom(w *World, s *State, tx *Tx) Set {
	w.readRoom(s, tx)
	return set(0)
}

// readRoom counts how many tasks may be queued: none while others are ready, and none may be
// leased while others are queued.
func (w *World) readRoom(s *State, tx *Tx) {
	tx.Limit = maxTasks
	if w.Quota > 0 {
		tx.Limit = w.Quota - s.DB.rows(Leases).size() - s.DB.rows(Pool).size()
	}
	if s.DB.rows(Ready) != 0 {
		tx.Limit = 0
	}
	if s.DB.rows(Pool) != 0 {
		tx.Gift = 0
	}
}

// given looks whether the claim has leases: then it is a repeat, which looks for itself.
func given(_ *World, s *State, tx *Tx) Set {
	if s.DB.leasedTo(tx.Claim) {
		tx.Gift = 0
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

// ready puts a task where it waits for admission, or further by the short way.
func (w *World) ready(s *State, tx *Tx, t int, row Row, a *answer) {
	if !w.ShortWay || tx.Limit <= 0 || !w.holdsDuty(tx) {
		s.insert(Ready, t, row)
		a.signal |= admissions
		return
	}
	if tx.Limit--; tx.Gift == 0 {
		s.insert(Pool, t, row)
		a.signal |= claimers
		return
	}
	tx.Gift--
	a.gift[t] = row.Attempt + 1
	s.insert(Leases, t, Row{Attempt: row.Attempt + 1, Claim: tx.Claim, Running: !w.SeparateStart})
}

// tell answers the claim that was served, if it still waits where it was taken.
func (w *World) tell(s *State, i int, tx *Tx, gift [maxTasks]int8) {
	if gift == [maxTasks]int8{} || tx.Claim == 0 {
		return
	}
	c := &s.Client[claimer(tx.Claim)]
	if int(c.Taken) != i+1 {
		return // it has been sent again elsewhere, and will find its leases
	}
	c.Held, c.Taken, c.Asleep, c.Looked = gift, 0, false, false
	c.Turn ^= 1
	if !w.SeparateStart {
		c.Running = held(c)
	}
}

// release lets the claims that a transaction has taken and not served look for themselves.
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

// patience tells a claim that has waited long enough that there is nothing. The worker's
// next claim has another id.
func (w *World) patience(s *State, i int, yield func(*State, Step)) {
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

// findable says that a loop would find something if it looked now.
func (w *World) findable(s *State, i int) bool {
	a := &w.Actors[i]
	if s.DB.rows(a.looksAt()) != 0 {
		return true
	}
	return w.ShortWay && a.Role == Worker && s.DB.leasedTo(s.claimID(i))
}
