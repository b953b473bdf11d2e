package model

import "fmt"

// LockRules are the rules of docs/adr/0011-limits-and-locks.md about the lock between runs. Each
// can be switched off to show which promise breaks without it.
type LockRules struct {
	LooksAtLine     bool // off: a trigger takes a free lock although runs wait for it
	LineByTurn      bool // off: of the runs that wait the one with the lowest id starts
	KeyBeforeTenant bool // off: a start takes the lock after it has locked the tenant
	RunBeforeKey    bool // off: a start takes the lock before it has locked the run
}

// LockResult is the result of an exploration of the locks.
type LockResult struct {
	States int
	Broken string   // "" if every promise holds
	Trace  []string // the shortest list of steps to the broken promise
}

// Runs of the world: the first holds the lock, the second waits for it. Triggers create the
// others with descending ids: an id is made from a time that was read before the locks were taken.
const (
	lockRuns   = 4
	lockActors = 5
)

type lockPhase uint8

const (
	notMade lockPhase = iota
	inLine
	holding
	over
)

// lockTx is a running transaction. step counts its statements.
type lockTx struct {
	open            bool
	step            uint8
	run             int8
	key, tenant     bool // locks that it holds: the key's entry in the unique index, the tenant's row
	row             int8 // the run's row that it holds, -1 for none
	live            int8 // the row among the live runs that it holds, -1 for none
	takes, snapshot bool
	turn            int8
	ahead           Set // runs that waited when it began
	lineEmpty       bool
}

// lockState is the committed state and the state of each transaction.
type lockState struct {
	phase  [lockRuns]lockPhase
	turn   [lockRuns]int8
	before [lockRuns]Set // runs that waited when its trigger began
	next   int8
	tx     [lockActors]lockTx
	made   [lockActors]bool // a trigger has committed its one transaction
}

type lockWorld struct {
	rules  LockRules
	broken string
}

func (s *lockState) holder() int8 {
	for r, p := range s.phase {
		if p == holding {
			return int8(r)
		}
	}
	return -1
}

func (s *lockState) line() (in Set) {
	for r, p := range s.phase {
		if p == inLine {
			in |= set(r)
		}
	}
	return in
}

// head is the run that gets the lock next: by turn, or by id where the rule is off. Ids descend.
func (w *lockWorld) head(s *lockState) int8 {
	at := int8(-1)
	for r := range int8(lockRuns) {
		switch {
		case s.phase[r] != inLine:
		case at < 0, w.rules.LineByTurn && s.turn[r] < s.turn[at], !w.rules.LineByTurn && r > at:
			at = r
		}
	}
	return at
}

// The actors: two triggers, which also represent slots of configs; an end of the run that holds
// the lock; a cancel of the run that waits first; and a start, of which there is one at a time.
const (
	firstTrigger = iota
	secondTrigger
	ender
	canceller
	starter
)

// ExploreLocks visits every interleaving of triggers, starts, ends and cancels of runs that share
// one lock, statement by statement, breadth first.
func ExploreLocks(rules LockRules) LockResult {
	type reached struct {
		parent int
		by     string
	}
	first := lockState{next: 2}
	first.phase[0], first.phase[1], first.turn[1] = holding, inLine, 1
	for i := range first.tx {
		first.tx[i].row, first.tx[i].live = -1, -1
	}
	ids, states, nodes := map[lockState]int{first: 0}, []lockState{first}, []reached{{parent: -1}}
	trace := func(at int, broken string) LockResult {
		r := LockResult{States: len(states), Broken: broken}
		for ; nodes[at].parent >= 0; at = nodes[at].parent {
			r.Trace = append([]string{nodes[at].by}, r.Trace...)
		}
		return r
	}
	for at := 0; at < len(states); at++ {
		w := lockWorld{rules: rules}
		var waits [maxTx]Set
		moves := 0
		for i := range lockActors {
			s := states[at]
			by, blockers, can := w.act(&s, i)
			if waits[i] = blockers; blockers != 0 || !can {
				continue
			}
			moves++
			if _, known := ids[s]; !known {
				ids[s] = len(states)
				states = append(states, s)
				nodes = append(nodes, reached{at, by})
			}
			if w.broken != "" {
				return trace(ids[s], w.broken)
			}
		}
		switch {
		case circle(&waits):
			return trace(at, NoDeadlock.String())
		case moves == 0 && states[at].line() != 0:
			return trace(at, WayOn.String())
		}
	}
	return LockResult{States: len(states)}
}

// act executes the next statement of an actor's transaction, or returns the transactions that it waits for.
func (w *lockWorld) act(s *lockState, i int) (by string, blockers Set, can bool) {
	tx := &s.tx[i]
	if !tx.open {
		return w.begin(s, i)
	}
	switch i {
	case firstTrigger, secondTrigger:
		return w.trigger(s, i)
	case starter:
		return w.start(s, i)
	}
	return w.end(s, i)
}

func (w *lockWorld) begin(s *lockState, i int) (by string, blockers Set, can bool) {
	run := int8(-1)
	switch i {
	case firstTrigger, secondTrigger:
		if !s.made[i] {
			run = int8(2 + i) //nolint:gosec // small
		}
	case ender:
		run = s.holder()
	case canceller, starter: // candidates are read without locks
		if run = w.head(s); i == starter && s.holder() >= 0 {
			run = -1
		}
	}
	if run < 0 {
		return "", 0, false
	}
	s.tx[i] = lockTx{open: true, run: run, row: -1, live: -1, ahead: s.line()}
	return fmt.Sprintf("%s of run %d begins", lockActorName(i), run), 0, true
}

func lockActorName(i int) string {
	return [...]string{"trigger", "trigger", "end", "cancel", "start"}[i]
}

// trigger: INSERT of the key unless a run waits, ON CONFLICT DO NOTHING; tenant; commit.
func (w *lockWorld) trigger(s *lockState, i int) (by string, blockers Set, can bool) {
	tx := &s.tx[i]
	describe := func(what string) string { return fmt.Sprintf("trigger of run %d %s", tx.run, what) }
	switch tx.step {
	case 0: // the statement's snapshot
		tx.lineEmpty = s.line() == 0 || !w.rules.LooksAtLine
		tx.step = 1
		if !tx.lineEmpty {
			tx.step = 2
		}
		return describe("looks at the line"), 0, true
	case 1:
		if blockers = s.others(i, func(o *lockTx) bool { return o.key }); blockers != 0 {
			return "", blockers, false
		}
		tx.takes = s.holder() < 0
		tx.key = tx.takes
		tx.step = 2
		return describe("asks for the lock"), 0, true
	case 2:
		if !tx.takes {
			tx.turn = s.next
			s.next++
		}
		tx.step = 3
		return describe("draws its turn if it waits"), 0, true
	case 3:
		return w.lockTenant(s, i, describe, 4)
	}
	s.before[tx.run] = tx.ahead
	if tx.takes {
		w.hold(s, tx.run)
	} else {
		s.phase[tx.run], s.turn[tx.run] = inLine, tx.turn
	}
	s.made[i] = true
	s.close(i)
	return fmt.Sprintf("trigger of run %d commits", 2+i), 0, true
}

func (w *lockWorld) hold(s *lockState, run int8) {
	if s.holder() >= 0 {
		w.broken = "one run holds the lock"
	}
	if s.before[run]&s.line() != 0 {
		w.broken = "no run takes a lock ahead of one that waits"
	}
	s.phase[run] = holding
}

// start: run row, key, tenant; commit. The rules set the order of the three.
func (w *lockWorld) start(s *lockState, i int) (by string, blockers Set, can bool) {
	const (
		runRow uint8 = iota
		key
		tenantRow
	)
	order := [3]uint8{runRow, key, tenantRow}
	switch {
	case !w.rules.KeyBeforeTenant:
		order = [3]uint8{runRow, tenantRow, key}
	case !w.rules.RunBeforeKey:
		order = [3]uint8{key, runRow, tenantRow}
	}
	tx := &s.tx[i]
	describe := func(what string) string { return fmt.Sprintf("start of run %d %s", tx.run, what) }
	if int(tx.step) == len(order) {
		if tx.takes && s.phase[tx.run] == inLine {
			w.hold(s, tx.run)
		}
		run := tx.run
		s.close(i)
		return fmt.Sprintf("start of run %d commits", run), 0, true
	}
	switch order[tx.step] {
	case runRow:
		return s.lockRun(i, describe)
	case tenantRow:
		return w.lockTenant(s, i, describe, tx.step+1)
	}
	if !tx.snapshot { // the UPDATE's snapshot: is the lock free, is it this run's turn
		tx.snapshot = true
		if s.holder() >= 0 || w.head(s) != tx.run {
			tx.step++
		}
		return describe("looks whether the lock is its own"), 0, true
	}
	if blockers = s.others(i, func(o *lockTx) bool { return o.live == tx.run }); blockers != 0 && tx.live < 0 {
		return "", blockers, false
	}
	if tx.live < 0 {
		tx.live = tx.run
		return describe("locks its row among the live runs"), 0, true
	}
	if blockers = s.others(i, func(o *lockTx) bool { return o.key }); blockers != 0 {
		return "", blockers, false
	}
	if s.holder() >= 0 { // a unique violation: it is rolled back, and the run still waits
		s.close(i)
		return "start finds the lock taken and is rolled back", 0, true
	}
	tx.key, tx.takes = true, true
	tx.step++
	return describe("takes the lock"), 0, true
}

// end: run row; the row among the live runs, with the key; commit.
func (w *lockWorld) end(s *lockState, i int) (by string, blockers Set, can bool) {
	tx := &s.tx[i]
	describe := func(what string) string { return fmt.Sprintf("%s of run %d %s", lockActorName(i), tx.run, what) }
	switch tx.step {
	case 0:
		return s.lockRun(i, describe)
	case 1:
		if blockers = s.others(i, func(o *lockTx) bool { return o.live == tx.run }); blockers != 0 {
			return "", blockers, false
		}
		tx.live, tx.key = tx.run, s.phase[tx.run] == holding
		tx.step = 2
		return describe("deletes its row among the live runs"), 0, true
	}
	run := tx.run
	s.phase[run], s.turn[run] = over, 0
	s.close(i)
	return fmt.Sprintf("%s of run %d commits", lockActorName(i), run), 0, true
}

func (s *lockState) lockRun(i int, describe func(string) string) (by string, blockers Set, can bool) {
	tx := &s.tx[i]
	if blockers = s.others(i, func(o *lockTx) bool { return o.row == tx.run }); blockers != 0 {
		return "", blockers, false
	}
	tx.row = tx.run
	tx.step++
	return describe("locks the run"), 0, true
}

func (w *lockWorld) lockTenant(s *lockState, i int, describe func(string) string, then uint8) (by string, blockers Set, can bool) {
	if blockers = s.others(i, func(o *lockTx) bool { return o.tenant }); blockers != 0 {
		return "", blockers, false
	}
	s.tx[i].tenant, s.tx[i].step = true, then
	return describe("locks the tenant"), 0, true
}

// others are the transactions except i that hold a lock.
func (s *lockState) others(i int, holds func(*lockTx) bool) (who Set) {
	for j := range s.tx {
		if j != i && s.tx[j].open && holds(&s.tx[j]) {
			who |= set(j)
		}
	}
	return who
}

func (s *lockState) close(i int) { s.tx[i] = lockTx{row: -1, live: -1} }
