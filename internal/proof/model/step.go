package model

import "fmt"

// verb is what happens in a step.
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
	ghostCommits
	ghostAborts
	leaseExpires
	tries
	triesInVain
	givesUp
)

// Step is one step of somebody, or of the world.
type Step struct {
	What  verb
	Actor int8
	Kind  Kind
	Stmt  uint8
	Row   int8
}

// chance says that a step is bad luck or somebody's free will: nothing may depend on
// its happening.
func (st Step) chance() bool {
	switch st.What {
	case losesAnswer, crashes, dies, ghostAborts, givesUp:
		return true
	case begins:
		return st.Kind == Cancel || st.Kind == TakeOver
	default:
		return false
	}
}

// describe puts a step into words.
func (w *World) describe(st Step) string {
	who := "the lost"
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
		return does + "writes, sends COMMIT, hears nothing, begins again"
	case crashes:
		return does + "its server crashes; begins again elsewhere"
	case dies:
		return does + "the worker dies, and another takes its place"
	case ghostCommits:
		return does + "of which nobody hears is committed"
	case ghostAborts:
		return does + "of which nobody hears is rolled back"
	case tries:
		return does + stmt + ": takes a claim that waits, tries, has it"
	case triesInVain:
		return does + stmt + ": tries in vain"
	case givesUp:
		return does + "has waited long enough, is told that there is nothing"
	case leaseExpires:
		return fmt.Sprintf("the lease of task %d passes its expiry", st.Row)
	}
	return does
}

// steps yields every state that can come next. It says who waits for whom.
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
			w.patience(s, i, yield)
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

// finish commits a transaction that has done its statements.
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
	w.hear(&next, i, &tx, a)
	w.release(&next, i, false)
	yield(&next, w.step(commits, i, k))

	if s.Lost > 0 && s.Tx[ghost].Kind == None && w.mayLose(i) {
		next := *s
		next.Lost--
		next.Tx[ghost] = next.Tx[i]
		w.release(&next, i, true)
		if w.ShortWay && k == Claim {
			next.Tx[i] = Tx{} // its repeat may wait without looking
		} else {
			w.open(&next, i, k)
			next.Tx[i].Repeat = w.Signals
		}
		yield(&next, w.step(losesAnswer, i, k))
	}
}

// mayLose says that an actor's commits may go unanswered in this world.
func (w *World) mayLose(i int) bool {
	return !w.LoseReportsOnly || w.Actors[i].Role == Worker
}

// close ends a transaction. Its locks go with it, and statements whose last row it has
// deleted are done.
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

// crash ends a transaction before its next statement. Either a server dies and its
// client goes to another with the same command, or the client dies.
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
		w.bury(&next, i)
		yield(&next, w.step(dies, i, tx.Kind))
	}
}

// chances are what happens to the world: time, and commits that nobody hears of.
func (w *World) chances(s *State, yield func(*State, Step)) {
	if k := s.Tx[ghost].Kind; k != None {
		next := *s
		tx := next.Tx[ghost]
		w.commit(&next, &tx)
		w.close(&next, ghost)
		yield(&next, w.step(ghostCommits, ghost, k))

		next = *s
		w.close(&next, ghost)
		yield(&next, w.step(ghostAborts, ghost, k))
	}
	if !w.hasReaper() {
		return
	}
	for t, lease := range s.DB.Rows[Leases] {
		if lease.Present && !lease.Expired {
			next := *s
			next.DB.Rows[Leases][t].Expired = true
			yield(&next, Step{What: leaseExpires, Actor: ghost, Row: int8(t)})
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
