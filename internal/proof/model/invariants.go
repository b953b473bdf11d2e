package model

// Invariant is a promise of the write path. The zero value means that none is broken.
type Invariant uint8

// The invariants.
const (
	Holds        Invariant = iota
	OneQueue               // a live task is in exactly one queue, an ended one in none
	EndsOnce               // a task ends once
	TokenOnce              // a token's report is accepted once
	HolderOnly             // only reports of the lease holder are accepted
	TokenFences            // a report is refused only after another worker has claimed the task
	LiveLease              // no lease is taken away before its expiry
	FirstAnswer            // a repeated report gets its first answer
	FansOnce               // a fan-out happens once
	CursorKept             // an acknowledged move of the cursor is not lost
	Stranded               // no worker holds a lease that it does not know of
	Counters               // a run's counters match the rows
	RunEnds                // a run has ended exactly when nothing remains
	CancelSweeps           // after a cancel nothing of the run waits anywhere
	CancelFlags            // after a cancel every lease of the run is flagged
	UnmetCounts            // unmet is the number of upstreams that have not succeeded
	DutyHolder             // only the holder of the duty admits
	QuotaHolds             // no more tasks are admitted than the quota allows
	NoDeadlock             // transactions do not deadlock
	NoLostWakeUp           // no loop sleeps forever while it has work
	CancelEnds             // no run stays CANCELLING without a lease
	WayOn                  // from every state all runs can end
	numInvariants
)

func (i Invariant) String() string {
	return [...]string{
		"all hold",
		"a live task is in exactly one queue, an ended one in none",
		"a task ends once",
		"a token's report is accepted once",
		"only reports of the lease holder are accepted",
		"a report is refused only after another worker has claimed the task",
		"no lease is taken away before its expiry",
		"a repeated report gets its first answer",
		"a fan-out happens once",
		"an acknowledged move of the cursor is not lost",
		"no worker holds a lease that it does not know of",
		"a run's counters match the rows",
		"a run has ended exactly when nothing remains",
		"after a cancel nothing of the run waits in a queue",
		"after a cancel every lease of the run is flagged",
		"unmet is the number of upstreams that have not succeeded",
		"only the holder of the duty admits",
		"no more tasks are admitted than the quota allows",
		"transactions do not deadlock",
		"no loop sleeps forever while it has work",
		"no run stays CANCELLING without a lease",
		"from every state all runs can end",
	}[i]
}

// check checks the promises after a step from one state to the next.
func (w *World) check(before, after *State) Invariant {
	if after.Broken != Holds {
		return after.Broken
	}
	if broken := w.checkAnswers(after); broken != Holds {
		return broken
	}
	if before.DB == after.DB {
		return Holds
	}
	for t := range w.Tasks {
		was := before.DB.Tasks[t].Outcome
		if was != Live && was != after.DB.Tasks[t].Outcome {
			return EndsOnce
		}
		if broken := w.checkTask(&after.DB, t); broken != Holds {
			return broken
		}
	}
	for r := range w.runs() {
		if broken := w.checkRun(&after.DB, r); broken != Holds {
			return broken
		}
	}
	if w.Quota > 0 && after.DB.rows(Pool).size()+after.DB.rows(Leases).size() > w.Quota {
		return QuotaHolds
	}
	return Holds
}

// checkAnswers compares the leases with the answers that workers have received.
func (w *World) checkAnswers(s *State) Invariant {
	for t, lease := range s.DB.Rows[Leases] {
		if !lease.Present || lease.Claim == 0 {
			continue
		}
		worker := claimer(lease.Claim)
		answered := lease.Claim != s.claimID(worker)
		if answered && s.Client[worker].Held[t] != lease.Attempt {
			return Stranded
		}
	}
	return Holds
}

func (w *World) checkTask(db *DB, t int) Invariant {
	task, mark := db.Tasks[t], db.Runs[w.Tasks[t].Run].Mark
	var queues int8
	for q := range numQueues {
		if !db.Rows[q][t].Present {
			continue
		}
		queues++
		if db.Rows[q][t].Cursor != task.Moves {
			return CursorKept
		}
		if mark && q != Leases {
			return CancelSweeps
		}
	}
	switch lease := db.Rows[Leases][t]; {
	case task.Made && task.Outcome == Live && queues != 1, !task.Made && queues > 0, task.Outcome != Live && queues > 0:
		return OneQueue
	case lease.Present && mark && !lease.Flag:
		return CancelFlags
	}
	if row := db.Rows[Waiting][t]; row.Present {
		for u := range w.Tasks {
			if task.Ups.has(u) && db.Tasks[u].Outcome != Succeeded {
				row.Unmet--
			}
		}
		if row.Unmet != 0 {
			return UnmetCounts
		}
	}
	return Holds
}

func (w *World) checkRun(db *DB, r int) Invariant {
	var remaining int8
	var count [numOutcomes]int8
	for t, task := range db.Tasks {
		switch {
		case !task.Made || w.Tasks[t].Run != r:
		case task.Outcome == Live:
			remaining++
		default:
			count[task.Outcome]++
		}
	}
	run := db.Runs[r]
	if run.Remaining != remaining || run.Count != count {
		return Counters
	}
	if (run.Ended != Live) != (remaining == 0) {
		return RunEnds
	}
	return Holds
}

// checkRest checks a state without a next step, apart from chance.
func (w *World) checkRest(s *State) Invariant {
	for i := range w.Actors {
		if s.Client[i].Asleep && w.findable(s, i) {
			return NoLostWakeUp
		}
	}
	for r := range w.runs() {
		if s.DB.Runs[r].Mark && s.DB.Runs[r].Ended == Live && s.DB.rows(Leases)&w.tasksOf(set(r)) == 0 {
			return CancelEnds
		}
	}
	if !w.ended(s) {
		return WayOn
	}
	return Holds
}

// ended reports whether all runs have ended.
func (w *World) ended(s *State) bool {
	for r := range w.runs() {
		if s.DB.Runs[r].Ended == Live {
			return false
		}
	}
	return true
}

// circle reports whether transactions wait for each other.
func circle(waits *[maxTx]Set) bool {
	for i := range waits {
		reached := waits[i]
		for range maxTx {
			for j := range waits {
				if reached.has(j) {
					reached |= waits[j]
				}
			}
		}
		if reached.has(i) {
			return true
		}
	}
	return false
}
