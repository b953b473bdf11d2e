package model

import "fmt"

// verb is the kind of a step.
type verb uint8

const (
	begins verb = iota
	snapshots
	reads
	locks
	skips
	commits
	signals
	losesAnswer
	crashes
	dies
	unansweredCommits
	unansweredAborts
	leaseExpires
	tries
	triesWithoutEffect
	givesUp
)

// Step is one step of an actor, or of the world.
type Step struct {
	What  verb
	Actor int8
	Kind  Kind
	Stmt  uint8
	Row   int8
}

// chance reports whether a step may never happen, such as a crash or a cancel: no promise may
// depend on it.
func (st Step) chance() bool {
	switch st.What {
	case losesAnswer, crashes, dies, unansweredAborts, givesUp:
		return true
	case begins:
		return st.Kind == Cancel || st.Kind == TakeOver
	default:
		return false
	}
}

// describe puts a step into words.
func (w *World) describe(st Step) string {
	who := "unanswered"
	if int(st.Actor) < len(w.Actors) {
		who = w.Actors[st.Actor].Name
	}
	does := fmt.Sprintf("%-10s %-9s ", who, st.Kind)
	var stmt string
	var row string
	if p := w.programs[st.Kind]; int(st.Stmt) < len(p) {
		stmt = p[st.Stmt].String()
		row = [...]string{"run", "task", "claim", "row", "", ""}[p[st.Stmt].on]
	}
	switch st.What {
	case begins:
		return does + "begins"
	case snapshots:
		return does + stmt + ": takes its snapshot"
	case reads:
		return does + stmt + ": reads"
	case locks:
		return fmt.Sprintf("%s%s: locks %s %d", does, stmt, row, st.Row)
	case skips:
		return fmt.Sprintf("%s%s: skips %s %d", does, stmt, row, st.Row)
	case commits:
		return does + "writes and commits"
	case signals:
		return does + "signals"
	case losesAnswer:
		return does + "writes, sends COMMIT, gets no answer, begins again"
	case crashes:
		return does + "its server crashes; begins again elsewhere"
	case dies:
		return does + "the worker dies, and another takes its place"
	case unansweredCommits:
		return does + "is committed without an answer"
	case unansweredAborts:
		return does + "is rolled back without an answer"
	case tries:
		return does + stmt + ": takes a waiting claim and locks its id"
	case triesWithoutEffect:
		return does + stmt + ": finds it locked"
	case givesUp:
		return does + "has waited long enough, gets the answer that there is no task"
	case leaseExpires:
		return fmt.Sprintf("the lease of task %d passes its expiry", st.Row)
	}
	return does
}

// steps yields every possible next state. It returns which transactions wait for which.
func (w *World) steps(s *State, yield func(next *State, by Step)) (waits [maxTx]Set) {
	for i := range w.Actors {
		c, tx := &s.Client[i], &s.Tx[i]
		switch {
		case c.Signal != 0:
			w.afterCommit(s, i, yield)
		case tx.Kind == None && !c.Done:
			for _, k := range w.intentions(s, i) {
				next := *s
				w.open(&next, i, k)
				yield(&next, w.step(begins, i, k))
			}
			w.giveUp(s, i, yield)
		case tx.Kind == None:
		case int(tx.PC) < len(w.programs[tx.Kind]):
			next := *s
			by, blockers := w.advance(&next, i)
			if waits[i] = blockers; blockers == 0 {
				yield(&next, by)
			}
			w.crash(s, i, yield)
		default:
			w.finish(s, i, yield)
			w.crash(s, i, yield)
		}
	}
	w.chances(s, yield)
	return waits
}

func (w *World) step(what verb, i int, k Kind) Step {
	return Step{What: what, Actor: int8(i), Kind: k, Stmt: 255, Row: -1} //nolint:gosec // small
}

// finish commits a transaction whose statements are done.
func (w *World) finish(s *State, i int, yield func(*State, Step)) {
	k := s.Tx[i].Kind
	if w.Signals && !w.Rules.SignalAfterCommit && !s.Tx[i].Signaled {
		next := *s
		next.Tx[i].Signaled = true
		w.signal(&next, sleepers&^set(int(w.Actors[i].Role)))
		yield(&next, w.step(signals, i, k))
		return
	}

	next := *s
	tx := next.Tx[i]
	a := w.commit(&next, &tx)
	w.close(&next, i)
	w.receive(&next, i, &tx, a)
	w.release(&next, i, false)
	yield(&next, w.step(commits, i, k))

	if s.Lost > 0 && s.Tx[unanswered].Kind == None && w.mayLoseAnswer(i) {
		next := *s
		next.Lost--
		next.Tx[unanswered] = next.Tx[i]
		w.release(&next, i, true)
		if w.Handoff && k == Claim {
			next.Tx[i] = Tx{} // its repeat may wait without a look at the queue
		} else {
			w.open(&next, i, k)
			next.Tx[i].Repeat = w.Signals
		}
		yield(&next, w.step(losesAnswer, i, k))
	}
}

// mayLoseAnswer reports whether an actor's commits may stay unanswered in this world.
func (w *World) mayLoseAnswer(i int) bool {
	return !w.LoseReportsOnly || w.Actors[i].Role == Worker
}

// close ends a transaction and releases its locks. Statements whose last row it has deleted are
// done.
func (w *World) close(s *State, i int) {
	s.Tx[i] = Tx{}
	for j := range s.Tx {
		w.settle(s, &s.Tx[j])
	}
}

// afterCommit is the moment between a commit and its signal.
func (w *World) afterCommit(s *State, i int, yield func(*State, Step)) {
	next := *s
	next.Client[i].Signal = 0
	w.signal(&next, s.Client[i].Signal)
	yield(&next, w.step(signals, i, None))

	if s.Crashes > 0 {
		next := *s
		next.Crashes--
		next.Client[i].Signal = 0
		yield(&next, w.step(crashes, i, None))
	}
}

// crash ends a transaction before its next statement. Either a server crashes and its client
// sends the command to another server, or the client dies.
func (w *World) crash(s *State, i int, yield func(*State, Step)) {
	tx := &s.Tx[i]
	if s.Crashes == 0 || tx.PC == 0 && !tx.Begun {
		return
	}
	next := *s
	next.Crashes--
	w.close(&next, i)
	w.release(&next, i, false)
	w.open(&next, i, tx.Kind)
	yield(&next, w.step(crashes, i, tx.Kind))

	if w.Actors[i].Role == Worker {
		next := *s
		next.Crashes--
		w.close(&next, i)
		w.release(&next, i, false)
		w.replaceWorker(&next, i)
		yield(&next, w.step(dies, i, tx.Kind))
	}
}

// chances are the steps that no actor takes: leases expire, and unanswered commits end.
func (w *World) chances(s *State, yield func(*State, Step)) {
	if k := s.Tx[unanswered].Kind; k != None {
		next := *s
		tx := next.Tx[unanswered]
		w.commit(&next, &tx)
		w.close(&next, unanswered)
		yield(&next, w.step(unansweredCommits, unanswered, k))

		next = *s
		w.close(&next, unanswered)
		yield(&next, w.step(unansweredAborts, unanswered, k))
	}
	if !w.hasReaper() {
		return
	}
	for t, lease := range s.DB.Rows[Leases] {
		if lease.Present && !lease.Expired {
			next := *s
			next.DB.Rows[Leases][t].Expired = true
			yield(&next, Step{What: leaseExpires, Actor: unanswered, Row: int8(t)})
		}
	}
}

func (w *World) hasReaper() bool {
	for _, a := range w.Actors {
		if a.Role == Reaper {
			return true
		}
	}
	return false
}
