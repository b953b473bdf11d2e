package model

import "fmt"

// QuarantineRules are the rules of docs/adr/0054-promotion.md about quarantined versions. Each can be
// switched off to show which promise breaks without it.
type QuarantineRules struct {
	PointerInserted     bool // off: a partition without a pointer has no row to lock
	RunBeforePointer    bool // off: an approval locks the pointer before the run
	RunLockedByApproval bool // off: an approval changes the run without its lock
	PointerReadLocked   bool // off: dependents are decided with a pointer that was read without its lock
	QuarantineCounted   bool // off: the end of a run ignores quarantined outputs
}

// The world has one partition without a version and a run of three tasks. The first task writes the
// partition, its gate quarantines version 3, and the second task depends on it. The third task is
// independent, and its batch locks the pointer too. A task of another run writes version 2 of the same partition, and a reviewer approves
// version 3.
const (
	firstTask   = iota // version 3, quarantined; decides about the second task
	thirdTask          // ends the run if the first has ended
	foreignTask        // version 2, of another run
	reviewer           // approves version 3
	quarantineActors
)

// branch is what became of the second task.
type branch uint8

const (
	undecided branch = iota
	runs             // it reads the last good version
	skipped          // there is none
)

// quarantineState is the committed state and that of each transaction.
type quarantineState struct {
	row         bool // the pointer has a row
	current     int8
	highest     int8
	quarantined bool // version 3 waits for review
	approved    bool
	branch      branch
	read        int8 // the version that the second task reads

	left   int8 // tasks of the run that have not ended
	held   int8 // quarantined outputs of the run without approval
	result int8 // how often the success of the run was noted

	tx   [quarantineActors]quarantineTx
	done [quarantineActors]bool
}

type quarantineTx struct {
	open, run, pointer bool // locks that it holds
	step               uint8
	inserted           bool
	left, held         int8 // the run as read
	current, highest   int8 // the pointer as read
}

type quarantineWorld struct {
	rules  QuarantineRules
	broken string
}

// ExploreQuarantine visits every interleaving of two completions, the end of their run and an approval,
// statement by statement, breadth first.
func ExploreQuarantine(rules QuarantineRules) OutputResult {
	type reached struct {
		parent int
		by     string
	}
	first := quarantineState{left: 2}
	ids, states, nodes := map[quarantineState]int{first: 0}, []quarantineState{first}, []reached{{parent: -1}}
	trace := func(at int, broken string, last ...string) OutputResult {
		r := OutputResult{States: len(states), Broken: broken, Trace: last}
		for ; nodes[at].parent >= 0; at = nodes[at].parent {
			r.Trace = append([]string{nodes[at].by}, r.Trace...)
		}
		return r
	}
	for at := 0; at < len(states); at++ {
		w := quarantineWorld{rules: rules}
		var waits [maxTx]Set
		moved := false
		for i := range quarantineActors {
			s := states[at]
			by, blockers, can := w.act(&s, i)
			if waits[i] = blockers; blockers != 0 || !can {
				continue
			}
			moved = true
			w.check(&states[at], &s)
			if _, known := ids[s]; !known {
				ids[s] = len(states)
				states = append(states, s)
				nodes = append(nodes, reached{at, by})
			}
			if w.broken != "" {
				return trace(at, w.broken, by)
			}
		}
		if circle(&waits) {
			return trace(at, NoDeadlock.String())
		}
		if !moved {
			if w.checkEnd(&states[at]); w.broken != "" {
				return trace(at, w.broken)
			}
		}
	}
	return OutputResult{States: len(states)}
}

// check compares a step with the promises.
func (w *quarantineWorld) check(before, after *quarantineState) {
	switch {
	case after.current == 3 && !after.approved:
		w.broken = "readers see promoted versions only"
	case after.current < before.current:
		w.broken = "the pointer does not move backwards without force"
	case after.branch == skipped && before.branch == undecided && after.current != 0:
		w.broken = "a task is skipped only if its upstream has no good version"
	case after.branch == runs && before.branch == undecided && after.read != after.current:
		w.broken = "a task reads the version that is current"
	case after.result > before.result && after.quarantined:
		w.broken = "a run with a quarantined output is no success"
	}
}

// checkEnd compares the last state with the promises.
func (w *quarantineWorld) checkEnd(s *quarantineState) {
	switch {
	case !s.done[firstTask] || !s.done[thirdTask] || !s.done[foreignTask]:
		w.broken = "every transaction ends"
	case s.approved && (s.result != 1 || s.held != 0):
		w.broken = "the approval of the last quarantined output completes the run's success, once"
	case s.approved && s.current != 3:
		w.broken = "the newest promoted version is current"
	}
}

func quarantineActor(i int) string {
	return [...]string{"first task", "third task", "foreign task", "reviewer"}[i]
}

// act executes the next statement of an actor.
func (w *quarantineWorld) act(s *quarantineState, i int) (by string, blockers Set, can bool) {
	tx := &s.tx[i]
	describe := func(what string) string { return quarantineActor(i) + " " + what }
	if s.done[i] {
		return "", 0, false
	}
	if !tx.open {
		if i == reviewer && !s.quarantined {
			return "", 0, false
		}
		tx.open = true
		return describe("begins"), 0, true
	}
	steps := w.steps(i)
	if int(tx.step) == len(steps) {
		w.commit(s, i)
		s.tx[i], s.done[i] = quarantineTx{}, true
		return describe("commits"), 0, true
	}
	step := steps[tx.step]
	if blockers := step.do(s, i); blockers != 0 {
		return "", blockers, false
	}
	tx.step++
	return describe(step.name), 0, true
}

type quarantineStep struct {
	name string
	do   func(s *quarantineState, i int) Set
}

// steps are the statements of an actor before its commit.
func (w *quarantineWorld) steps(i int) []quarantineStep {
	lockRun := quarantineStep{"locks the run", func(s *quarantineState, i int) Set {
		if by := s.others(i, func(o *quarantineTx) bool { return o.run }); by != 0 {
			return by
		}
		s.tx[i].run, s.tx[i].left, s.tx[i].held = true, s.left, s.held
		return 0
	}}
	readRun := quarantineStep{"reads the run", func(s *quarantineState, i int) Set {
		s.tx[i].left, s.tx[i].held = s.left, s.held
		return 0
	}}
	readPointer := quarantineStep{"reads the pointer", func(s *quarantineState, i int) Set {
		s.tx[i].current, s.tx[i].highest = s.current, s.highest
		return 0
	}}
	insert := quarantineStep{"inserts the pointer", func(s *quarantineState, i int) Set {
		if s.row {
			return 0
		}
		if by := s.others(i, func(o *quarantineTx) bool { return o.inserted }); by != 0 {
			return by // a second insert of the key waits
		}
		s.tx[i].inserted = true
		return 0
	}}
	lock := quarantineStep{"locks the pointer", func(s *quarantineState, i int) Set {
		if !s.row && !s.tx[i].inserted {
			return readPointer.do(s, i) // nothing to lock
		}
		if by := s.others(i, func(o *quarantineTx) bool { return o.pointer }); by != 0 {
			return by
		}
		s.tx[i].pointer = true
		return readPointer.do(s, i)
	}}
	var steps []quarantineStep
	switch i {
	case thirdTask:
		return []quarantineStep{lockRun, lock} // its batch also has a repeated report about the partition
	case reviewer:
		switch {
		case !w.rules.RunLockedByApproval:
			return []quarantineStep{readRun, lock}
		case !w.rules.RunBeforePointer:
			return []quarantineStep{lock, lockRun}
		}
		return []quarantineStep{lockRun, lock}
	case firstTask:
		steps = append(steps, lockRun)
	}
	if i == firstTask && !w.rules.PointerReadLocked {
		return append(steps, readPointer)
	}
	if w.rules.PointerInserted {
		steps = append(steps, insert)
	}
	return append(steps, lock)
}

// commit writes what the transaction has decided.
func (w *quarantineWorld) commit(s *quarantineState, i int) {
	tx := &s.tx[i]
	switch i {
	case firstTask:
		s.row, s.quarantined, s.left, s.held = true, true, tx.left-1, tx.held+1
		if s.branch = skipped; tx.current != 0 {
			s.branch, s.read = runs, tx.current
		}
		w.end(s)
	case thirdTask:
		s.left, s.held = tx.left-1, tx.held
		w.end(s)
	case foreignTask:
		s.row = true
		if tx.highest < 2 {
			s.current, s.highest = 2, 2
		}
	case reviewer:
		s.current, s.highest, s.quarantined, s.approved = 3, 3, false, true
		s.left, s.held = tx.left, tx.held-1
		w.end(s)
	}
}

// end notes the success of a run that has ended without a quarantined output.
func (w *quarantineWorld) end(s *quarantineState) {
	if s.left == 0 && (s.held == 0 || !w.rules.QuarantineCounted) {
		s.result++
	}
}

// others are the transactions except i that hold a lock.
func (s *quarantineState) others(i int, holds func(*quarantineTx) bool) (who Set) {
	for j := range s.tx {
		if j != i && s.tx[j].open && holds(&s.tx[j]) {
			who |= set(j)
		}
	}
	return who
}

// String describes the state of the world, for failures of tests.
func (s quarantineState) String() string {
	return fmt.Sprintf("current %d, branch %d, %d left, %d held, %d results", s.current, s.branch, s.left, s.held, s.result)
}
