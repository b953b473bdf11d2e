package model

import "fmt"

// HoldRules are the rules of docs/adr/0049-partition-holds.md. Each can be switched off to show which
// promise breaks without it.
type HoldRules struct {
	RoundHoldsDuty   bool // off: a round of a claim admits without the duty
	HoldsReadAfter   bool // off: a round reads the holds before it has the duty
	RangesCompared   bool // off: a hold excludes tasks with the same first partition only
	RoundCompares    bool // off: the tasks of one round are not compared with each other
	ScheduledFirst   bool // off: the tasks of one round are compared in the order of their age
	BlockerLocked    bool // off: a round notes a wait for a hold that it has not locked
	WaitsReadAfter   bool // off: an end reads the waits for its hold in the statement that deletes the hold
	EndReleases      bool // off: a cancel leaves the hold of its task
	EndDropsWait     bool // off: a cancel leaves the wait of its task
	HeldUntilTheEnd  bool // off: a task that returns to READY releases its hold
	OwnHoldKept      bool // off: a task that was admitted before is compared with its own hold
	ReleaseMakesOpen bool // off: an end deletes the waits, and leaves their tasks out of the order
}

// HoldResult is the result of an exploration of holds.
type HoldResult struct {
	States int
	Broken string   // "" if every promise holds
	Trace  []string // the shortest list of steps to the broken promise
}

// The world has three partitions of one series and three tasks of different runs. Task 0 covers
// partitions 0 and 1 and is leased. Task 1 is scheduled and covers partition 1. Task 2 belongs to a
// backfill, is older, and covers partitions 1 and 2; the worker of the claim can run only this one.
const (
	holdTasks = 3
	noBlocker = -1
)

var holdRanges = [holdTasks][2]int8{{0, 1}, {1, 1}, {1, 2}}

// The actors: two admitters, the ends of the tasks, a cancel of task 1, and a yield of task 1.
const (
	loopRound = iota
	claimRound
	endOfOthers // of task 0, and later of task 2
	endOfTask1
	cancelOfTask1
	yieldOfTask1
	holdActors
)

type holdTaskState uint8

const (
	isReady holdTaskState = iota
	isLeased
	isEnded
)

// holdTx is a transaction. Its statements are numbered by step.
type holdTx struct {
	open    bool
	step    uint8
	of      int  // the task that it ends
	snapped bool // a rule is off, and it has read too early
	duty    bool
	run     Set             // runs that it has locked
	ready   Set             // rows of ready_q that it has locked
	rows    Set             // rows of partition_holds that it has locked
	found   Set             // tasks that a round has read, or waiters that an end has read
	holds   Set             // holds that a round has read
	deleted Set             // holds that it has deleted
	blocks  [holdTasks]int8 // by task: what it waits for
}

// holdState is the committed state and that of each transaction.
type holdState struct {
	task    [holdTasks]holdTaskState
	hold    Set             // tasks with a row in partition_holds
	held    Set             // tasks that are out of the order
	waits   [holdTasks]int8 // by task: the task whose hold it waits for
	yielded bool
	tx      [holdActors]holdTx
	done    [holdActors]bool
}

type holdWorld struct {
	rules  HoldRules
	broken string
}

func (w *holdWorld) overlap(a, b int) bool {
	x, y := holdRanges[a], holdRanges[b]
	if !w.rules.RangesCompared {
		return x[0] == y[0]
	}
	return x[0] <= y[1] && y[0] <= x[1]
}

// ExploreHolds visits every interleaving of two admitters, the ends of three tasks, a cancel and a yield,
// statement by statement, breadth first.
func ExploreHolds(rules HoldRules) HoldResult {
	type reached struct {
		parent int
		by     string
	}
	first := holdState{hold: set(0), waits: [holdTasks]int8{noBlocker, noBlocker, noBlocker}}
	first.task[0] = isLeased
	ids, states, nodes := map[holdState]int{first: 0}, []holdState{first}, []reached{{parent: -1}}
	trace := func(at int, broken string) HoldResult {
		r := HoldResult{States: len(states), Broken: broken}
		for ; nodes[at].parent >= 0; at = nodes[at].parent {
			r.Trace = append([]string{nodes[at].by}, r.Trace...)
		}
		return r
	}
	for at := 0; at < len(states); at++ {
		var waits [maxTx]Set
		moves := 0
		for i := range holdActors {
			w := holdWorld{rules: rules}
			s := states[at]
			by, blockers, can := w.act(&s, i)
			if waits[i] = blockers; blockers != 0 || !can {
				continue
			}
			if s != states[at] {
				moves++
			}
			w.check(&states[at], &s, i)
			if _, known := ids[s]; !known {
				ids[s] = len(states)
				states = append(states, s)
				nodes = append(nodes, reached{at, by})
			}
			if w.broken != "" {
				return trace(ids[s], w.broken)
			}
		}
		if circle(&waits) {
			return trace(at, NoDeadlock.String())
		}
		if moves == 0 && !states[at].ended() {
			return trace(at, "all tasks end")
		}
	}
	return HoldResult{States: len(states)}
}

func (s *holdState) ended() bool {
	for _, t := range s.task {
		if t != isEnded {
			return false
		}
	}
	return true
}

// check compares a step with the promises.
func (w *holdWorld) check(before, after *holdState, actor int) {
	if before.task[2] == isReady && after.task[2] == isLeased && !before.hold.has(2) && before.tx[actor].found.has(1) {
		w.broken = "a backfill takes no partition for which the round has scheduled work"
	}
	for a := range holdTasks {
		x := holdRanges[a]
		for b := range a {
			y := holdRanges[b]
			if x[0] <= y[1] && y[0] <= x[1] && after.begun(a) && after.begun(b) {
				w.broken = "a partition has one writer from its first lease to its end"
			}
		}
		switch {
		case after.waits[a] == int8(a):
			w.broken = "a task waits for the hold of another"
		case after.held.has(a) && after.task[a] == isReady && (after.waits[a] == noBlocker || !after.hold.has(int(after.waits[a]))):
			w.broken = "a task waits for a hold that exists"
		case after.task[a] == isEnded && after.hold.has(a):
			w.broken = "an ended task holds nothing"
		case after.task[a] == isEnded && after.waits[a] != noBlocker:
			w.broken = "an ended task waits for nothing"
		}
	}
}

// begun reports whether a task writes, or has written and will again.
func (s *holdState) begun(t int) bool {
	return s.task[t] == isLeased || t == 1 && s.yielded && s.task[t] == isReady
}

func (w *holdWorld) act(s *holdState, i int) (by string, blockers Set, can bool) {
	name := [...]string{"loop", "claim", "end", "end 1", "cancel 1", "yield 1"}[i]
	describe := func(what string, args ...any) string { return name + " " + fmt.Sprintf(what, args...) }
	if s.done[i] {
		return "", 0, false
	}
	if !s.tx[i].open {
		return w.open(s, i, describe)
	}
	if i <= claimRound {
		return w.round(s, i, describe)
	}
	return w.end(s, i, describe)
}

type describing = func(what string, args ...any) string

func (w *holdWorld) open(s *holdState, i int, describe describing) (string, Set, bool) {
	of, can := 1, false
	switch i {
	case loopRound, claimRound:
		can = s.waitingTasks() != 0
	case cancelOfTask1:
		can = s.task[1] != isEnded
	case yieldOfTask1, endOfTask1:
		can = s.task[1] == isLeased
	case endOfOthers:
		if of = 0; s.task[0] == isEnded {
			of = 2
		}
		can = s.task[of] == isLeased
	}
	if !can {
		return "", 0, false
	}
	s.tx[i] = holdTx{open: true, of: of, blocks: [holdTasks]int8{noBlocker, noBlocker, noBlocker}}
	return describe("begins"), 0, true
}

// waitingTasks are the ready tasks in the order of admission.
func (s *holdState) waitingTasks() (found Set) {
	for t := range holdTasks {
		if s.task[t] == isReady && !s.held.has(t) {
			found |= set(t)
		}
	}
	return found
}

// round: the duty, ready tasks, holds, locks of the holds in the way, commit.
func (w *holdWorld) round(s *holdState, i int, describe describing) (string, Set, bool) {
	tx := &s.tx[i]
	tx.step++
	switch tx.step {
	case 1:
		if !w.rules.HoldsReadAfter && !tx.snapped {
			tx.holds, tx.snapped, tx.step = s.hold, true, 0
			return describe("reads the holds %b", tx.holds), 0, true
		}
		if i == claimRound && !w.rules.RoundHoldsDuty {
			return describe("does without the duty"), 0, true
		}
		if blockers := s.others(i, func(o *holdTx) bool { return o.duty }); blockers != 0 {
			if i == claimRound { // it never waits
				s.tx[i] = holdTx{}
				return describe("finds the duty held"), 0, true
			}
			tx.step--
			return "", blockers, false
		}
		tx.duty = true
		return describe("takes the duty"), 0, true
	case 2:
		for t := range holdTasks {
			if i == claimRound && t != 2 { // the pool of its worker
				continue
			}
			if s.waitingTasks().has(t) && s.others(i, func(o *holdTx) bool { return o.ready.has(t) }) == 0 {
				tx.found |= set(t)
			}
		}
		tx.ready = tx.found
		return describe("locks ready tasks %b", tx.found), 0, true
	case 3:
		if w.rules.HoldsReadAfter {
			tx.holds = s.hold
		}
		return describe("reads the holds %b", tx.holds), 0, true
	case 4:
		w.lockBlockers(s, i)
		return describe("locks the holds %b", tx.rows), 0, true
	}
	w.admit(s, i)
	by := describe("commits: holds %b, out of the order %b", s.hold, s.held)
	s.tx[i] = holdTx{}
	return by, 0, true
}

// lockBlockers locks the holds in the way of each task, as far as they are free.
func (w *holdWorld) lockBlockers(s *holdState, i int) {
	tx := &s.tx[i]
	for t := range holdTasks {
		if !tx.found.has(t) {
			continue
		}
		for h := range holdTasks {
			if !tx.holds.has(h) || h == t && w.rules.OwnHoldKept || !w.overlap(t, h) {
				continue
			}
			tx.blocks[t] = int8(h)
			free := s.hold.has(h) && s.others(i, func(o *holdTx) bool { return (o.rows | o.deleted).has(h) }) == 0
			if free || !w.rules.BlockerLocked {
				if w.rules.BlockerLocked {
					tx.rows |= set(h)
				}
				break
			}
			tx.blocks[t] = noBlocker
			tx.found &^= set(t) // it stays in the order, for a later round
			break
		}
	}
}

// admit writes what the round has decided.
func (w *holdWorld) admit(s *holdState, i int) {
	tx := &s.tx[i]
	order := []int{1, 0, 2}
	if !w.rules.ScheduledFirst {
		order = []int{2, 1, 0}
	}
	var taken []int
	for _, t := range order {
		if !tx.found.has(t) || s.task[t] != isReady {
			continue
		}
		if tx.blocks[t] != noBlocker {
			s.held |= set(t)
			s.waits[t] = tx.blocks[t]
			continue
		}
		clash := false
		for _, other := range taken {
			clash = clash || w.overlap(t, other)
		}
		if clash && w.rules.RoundCompares {
			continue
		}
		taken = append(taken, t)
		s.task[t] = isLeased
		s.hold |= set(t)
	}
}

// end: the run, the ready row of a cancel, the hold, the waits for it, commit.
func (w *holdWorld) end(s *holdState, i int, describe describing) (string, Set, bool) {
	tx, t := &s.tx[i], s.tx[i].of
	tx.step++
	switch tx.step {
	case 1:
		if blockers := s.others(i, func(o *holdTx) bool { return o.run.has(t) }); blockers != 0 {
			tx.step--
			return "", blockers, false
		}
		tx.run = set(t)
		if s.task[t] == isEnded || i != cancelOfTask1 && s.task[t] != isLeased {
			s.tx[i], s.done[i] = holdTx{}, s.task[t] == isEnded
			return describe("finds nothing to do"), 0, true
		}
		return describe("locks its run"), 0, true
	case 2: // a cancel sweeps ready_q; a task that is admitted meanwhile is found among the leases
		if s.task[t] == isReady {
			if blockers := s.others(i, func(o *holdTx) bool { return o.ready.has(t) }); blockers != 0 {
				tx.step--
				return "", blockers, false
			}
			tx.ready = set(t)
		}
		return describe("locks its row"), 0, true
	case 3:
		return w.release(s, i, describe)
	case 4:
		return w.lockWaiters(s, i, describe)
	}
	w.commitEnd(s, i)
	by := describe("commits: holds %b, out of the order %b", s.hold, s.held)
	s.tx[i], s.done[i] = holdTx{}, i != endOfOthers || s.task[2] == isEnded
	return by, 0, true
}

// keeps reports whether a transaction leaves the hold of its task.
func (w *holdWorld) keeps(i int) bool {
	return i == yieldOfTask1 && w.rules.HeldUntilTheEnd || i == cancelOfTask1 && !w.rules.EndReleases
}

// release deletes the hold of the task, and waits for a round that has locked it.
func (w *holdWorld) release(s *holdState, i int, describe describing) (string, Set, bool) {
	tx, t := &s.tx[i], s.tx[i].of
	if w.keeps(i) || !s.hold.has(t) {
		return describe("deletes no hold"), 0, true
	}
	if !w.rules.WaitsReadAfter && !tx.snapped {
		tx.found, tx.snapped = s.waitersOf(t), true // the snapshot of the statement, before it waits
		tx.step--
		return describe("reads the waits for its hold"), 0, true
	}
	if blockers := s.others(i, func(o *holdTx) bool { return o.rows.has(t) }); blockers != 0 {
		tx.step--
		return "", blockers, false
	}
	tx.deleted |= set(t)
	return describe("deletes its hold"), 0, true
}

func (s *holdState) waitersOf(t int) (found Set) {
	for other := range holdTasks {
		if s.waits[other] == int8(t) { //nolint:gosec // small
			found |= set(other)
		}
	}
	return found
}

// lockWaiters reads the waits for the hold, and locks the ready rows of their tasks.
func (w *holdWorld) lockWaiters(s *holdState, i int, describe describing) (string, Set, bool) {
	tx := &s.tx[i]
	if tx.deleted == 0 {
		return describe("releases none"), 0, true
	}
	if w.rules.WaitsReadAfter {
		tx.found = s.waitersOf(tx.of)
	}
	if blockers := s.others(i, func(o *holdTx) bool { return o.ready&tx.found != 0 }); blockers != 0 {
		tx.step--
		return "", blockers, false
	}
	tx.ready |= tx.found
	return describe("locks the waiting tasks %b", tx.found), 0, true
}

func (w *holdWorld) commitEnd(s *holdState, i int) {
	tx, t := &s.tx[i], s.tx[i].of
	s.hold &^= tx.deleted
	for other := range holdTasks {
		if tx.found.has(other) {
			s.waits[other] = noBlocker
			if w.rules.ReleaseMakesOpen {
				s.held &^= set(other)
			}
		}
	}
	if i == yieldOfTask1 {
		s.task[1], s.yielded = isReady, true
		s.done[endOfTask1] = false // its next attempt ends
		return
	}
	s.task[t] = isEnded
	s.held &^= set(t)
	if w.rules.EndDropsWait || i != cancelOfTask1 {
		s.waits[t] = noBlocker
	}
}

// others are the transactions except i that hold a lock.
func (s *holdState) others(i int, holds func(*holdTx) bool) (who Set) {
	for j := range s.tx {
		if j != i && s.tx[j].open && holds(&s.tx[j]) {
			who |= set(j)
		}
	}
	return who
}
