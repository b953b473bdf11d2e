package model

import "fmt"

// OutputRules are the rules of docs/adr/0045-commit-of-outputs.md about promoted versions. Each can
// be switched off to show which promise breaks without it.
type OutputRules struct {
	LeaseBeforePointer bool // off: a completion locks pointers before leases
	PointersInOrder    bool // off: every second actor locks pointers by descending key
	PointerReadLocked  bool // off: a completion compares with a pointer that it read without a lock
	TokenCompared      bool // off: the last completion wins
	HighestKept        bool // off: a completion is compared with the current version only
	TokenMatches       bool // off: a report of an expired lease is accepted
	GateHonoured       bool // off: a quarantined version is promoted
	ExpectedCompared   bool // off: approve and rollback do not compare the current version
}

// OutputResult is the result of an exploration of outputs.
type OutputResult struct {
	States int
	Broken string   // "" if every promise holds
	Trace  []string // the shortest list of steps to the broken promise
}

// The world has two partitions. Task 0 writes both (a range), and its first attempt was given up: its
// lease expired and a second attempt holds a newer one. Task 1 belongs to another run and writes both
// too; it completes in a batch that also has a late report about task 0, and so locks both leases.
// In the second world, its version of the second partition is quarantined. An operator approves that
// version, and another rolls the second partition back to its first version, in a transaction that
// locks both.
const (
	outPartitions = 2
	outActors     = 5
	outVersions   = 5 // tokens 1 to 4; 1 is promoted at the start
)

// The actors.
const (
	oldAttempt = iota // token 2, of task 0, whose lease expired
	newAttempt        // token 3, of task 0
	otherTask         // token 4, of task 1
	approver          // approves token 4
	rollbacker        // rolls the second partition back to token 1
)

// outVersion is the state of a version.
type outVersion uint8

const (
	unwritten outVersion = iota
	committed            // the marker is written, nothing is reported
	promoted
	superseded
	inQuarantine
)

type outTx struct {
	open     bool
	step     uint8
	leases   Set                 // leases that it holds, by task
	pointers Set                 // pointers that it holds
	read     [outPartitions]int8 // current versions as read
	highest  [outPartitions]int8
	saw      int8 // the current version that an operator saw before the command
}

// outState is the committed state and that of each transaction.
type outState struct {
	version [outVersions][outPartitions]outVersion
	current [outPartitions]int8
	highest [outPartitions]int8
	ended   [2]bool // of the tasks
	tx      [outActors]outTx
	done    [outActors]bool
	saw     [outActors]int8
}

type outWorld struct {
	rules      OutputRules
	quarantine bool
	broken     string
}

func tokenOf(actor int) int8 { return int8(actor + 2) } //nolint:gosec // small

func taskOf(actor int) int {
	if actor == otherTask {
		return 1
	}
	return 0
}

// writes are the partitions of an actor, in key order.
func (w *outWorld) writes(actor int) []int {
	switch {
	case actor > otherTask:
		return []int{1}
	case !w.rules.PointersInOrder && actor%2 == 1:
		return []int{1, 0}
	}
	return []int{0, 1}
}

// ExploreOutputs visits every interleaving of completions, an approval and a rollback of two
// partitions, statement by statement, breadth first.
func ExploreOutputs(rules OutputRules, quarantine bool) OutputResult {
	type reached struct {
		parent int
		by     string
	}
	first := outState{}
	for p := range outPartitions {
		first.version[1][p], first.current[p], first.highest[p] = promoted, 1, 1
	}
	ids, states, nodes := map[outState]int{first: 0}, []outState{first}, []reached{{parent: -1}}
	trace := func(at int, broken string) OutputResult {
		r := OutputResult{States: len(states), Broken: broken}
		for ; nodes[at].parent >= 0; at = nodes[at].parent {
			r.Trace = append([]string{nodes[at].by}, r.Trace...)
		}
		return r
	}
	for at := 0; at < len(states); at++ {
		w := outWorld{rules: rules, quarantine: quarantine}
		var waits [maxTx]Set
		for i := range outActors {
			s := states[at]
			by, blockers, can := w.act(&s, i)
			if waits[i] = blockers; blockers != 0 || !can {
				continue
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
	}
	return OutputResult{States: len(states)}
}

// check compares a step with the promises about pointers.
func (w *outWorld) check(before, after *outState, actor int) {
	for p := range outPartitions {
		was, is := before.current[p], after.current[p]
		if state := after.version[is][p]; state != promoted {
			w.broken = "readers see promoted versions only"
		}
		if is < was && actor != rollbacker {
			w.broken = "the pointer moves backwards by a rollback only"
		}
		if was != is && actor == rollbacker && before.tx[actor].saw != was {
			w.broken = "a rollback replaces the version that the operator saw"
		}
	}
	if after.version[2][0] == promoted && before.version[2][0] != promoted {
		w.broken = "only the holder of the lease promotes"
	}
	if after.version[4][1] == promoted && w.quarantine && actor != approver && before.version[4][1] != promoted {
		w.broken = "a quarantined version is promoted by a reviewer only"
	}
	// After a rollback, a version that was completed before it does not return.
	for p := range outPartitions {
		if before.current[p] != after.current[p] && actor <= otherTask && after.current[p] < before.highest[p] {
			w.broken = "a version older than one that was promoted does not become current by completing"
		}
	}
}

func outActorName(i int) string {
	return [...]string{"old attempt", "new attempt", "other task", "approve", "rollback"}[i]
}

// act executes the next statement of an actor.
func (w *outWorld) act(s *outState, i int) (by string, blockers Set, can bool) {
	tx := &s.tx[i]
	describe := func(what string) string { return outActorName(i) + " " + what }
	if s.done[i] {
		return "", 0, false
	}
	if !tx.open {
		return w.open(s, i, describe)
	}
	if i == approver || i == rollbacker {
		return w.operate(s, i, describe)
	}
	return w.complete(s, i, describe)
}

func (w *outWorld) open(s *outState, i int, describe func(string) string) (string, Set, bool) {
	token := tokenOf(i)
	switch i {
	case oldAttempt, newAttempt, otherTask:
		if s.version[token][1] == unwritten {
			for _, p := range w.writes(i) {
				s.version[token][p] = committed
			}
			return describe("writes its marker"), 0, true
		}
	case approver:
		if s.version[4][1] != inQuarantine {
			return "", 0, false
		}
		fallthrough
	case rollbacker:
		if s.saw[i] == 0 {
			s.saw[i] = s.current[1]
			return describe(fmt.Sprintf("sees version %d", s.current[1])), 0, true
		}
	}
	s.tx[i] = outTx{open: true, saw: s.saw[i]}
	return describe("begins"), 0, true
}

// complete: lease, pointers in key order; commit. The lease of the old attempt has expired.
func (w *outWorld) complete(s *outState, i int, describe func(string) string) (string, Set, bool) {
	tx := &s.tx[i]
	order := w.writes(i)
	leaseAt := uint8(0)
	if !w.rules.LeaseBeforePointer && i == newAttempt {
		leaseAt = uint8(len(order)) //nolint:gosec // small
	}
	switch {
	case tx.step == leaseAt:
		wanted := set(taskOf(i))
		if i == otherTask {
			wanted |= set(0) // of the late report in its batch
		}
		if blockers := s.others(i, func(o *outTx) bool { return o.leases&wanted != 0 }); blockers != 0 {
			return "", blockers, false
		}
		tx.leases = wanted
		tx.step++
		if s.ended[taskOf(i)] || i == oldAttempt && w.rules.TokenMatches {
			s.tx[i], s.done[i] = outTx{}, true
			return describe("finds no lease of its token, and is refused"), 0, true
		}
		return describe("locks its lease"), 0, true
	case int(tx.step) <= len(order):
		at := int(tx.step)
		if tx.step > leaseAt {
			at--
		}
		p := order[at]
		if w.rules.PointerReadLocked {
			if blockers := s.others(i, func(o *outTx) bool { return o.pointers.has(p) }); blockers != 0 {
				return "", blockers, false
			}
			tx.pointers |= set(p)
		}
		tx.read[p], tx.highest[p] = s.current[p], s.highest[p]
		tx.step++
		return describe(fmt.Sprintf("reads pointer %d", p)), 0, true
	}
	token := tokenOf(i)
	for _, p := range order {
		w.promote(s, tx, token, p, i == otherTask && p == 1 && w.quarantine && w.rules.GateHonoured)
	}
	s.ended[taskOf(i)] = true
	s.tx[i], s.done[i] = outTx{}, true
	return describe("commits"), 0, true
}

// promote decides about one partition with what the transaction has read.
func (w *outWorld) promote(s *outState, tx *outTx, token int8, p int, quarantined bool) {
	bound := tx.highest[p]
	if !w.rules.HighestKept {
		bound = tx.read[p]
	}
	switch {
	case quarantined:
		s.version[token][p] = inQuarantine
	case w.rules.TokenCompared && token <= bound:
		s.version[token][p] = superseded
	default:
		s.version[token][p], s.current[p] = promoted, token
		s.highest[p] = max(s.highest[p], token)
	}
}

// operate: pointers; compare with what the operator saw; commit.
func (w *outWorld) operate(s *outState, i int, describe func(string) string) (string, Set, bool) {
	tx := &s.tx[i]
	if p := int(tx.step); p < outPartitions {
		if i == approver {
			p = 1
		}
		if blockers := s.others(i, func(o *outTx) bool { return o.pointers.has(p) }); blockers != 0 {
			return "", blockers, false
		}
		tx.pointers |= set(p)
		tx.step = uint8(p + 1)
		tx.read[p], tx.highest[p] = s.current[p], s.highest[p]
		return describe(fmt.Sprintf("locks pointer %d", p)), 0, true
	}
	fresh := tx.read[1] == tx.saw || !w.rules.ExpectedCompared
	switch {
	case !fresh:
	case i == rollbacker:
		s.current[1] = 1
	case s.version[4][1] == inQuarantine && 4 >= tx.highest[1]:
		s.version[4][1], s.current[1] = promoted, 4
		s.highest[1] = max(s.highest[1], 4)
	}
	s.tx[i], s.done[i] = outTx{}, true
	if !fresh {
		return describe("finds another version, and is refused"), 0, true
	}
	return describe("commits"), 0, true
}

// others are the transactions except i that hold a lock.
func (s *outState) others(i int, holds func(*outTx) bool) (who Set) {
	for j := range s.tx {
		if j != i && s.tx[j].open && holds(&s.tx[j]) {
			who |= set(j)
		}
	}
	return who
}
