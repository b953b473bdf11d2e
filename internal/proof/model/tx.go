package model

// Kind is a kind of transaction.
type Kind uint8

// The transactions of the write path.
const (
	None Kind = iota
	Admit
	Claim
	Start
	Complete
	Fail
	Yield
	FanOut
	Expire
	RetryDue
	Cancel
	Mixed
	TakeOver
	StartRun
	Withdraw
	Advance
	numKinds
)

func (k Kind) String() string {
	return [...]string{
		"", "admit", "claim", "start", "complete", "fail", "yield", "fan-out", "expire", "retry due", "cancel", "batch", "take over", "start run", "withdraw", "advance",
	}[k]
}

// target is the kind of row that a statement reads or locks.
type target uint8

const (
	onRuns target = iota
	onQueue
	onClaim
	onDuty
	onUsage
	onRoom
)

// stmt is one statement of a transaction. A plain read is one step. A locking select is one step
// that takes the snapshot, and then one step for each row of it: lock the row and read it again,
// or wait, or skip.
type stmt struct {
	on    target
	queue Queue
	mode  Mode
	skip  bool                                  // SKIP LOCKED
	peek  bool                                  // chooses the tasks of the transaction, and remembers no row
	blind bool                                  // an UPDATE or DELETE: locks, and uses the values that were read before
	try   bool                                  // pg_try_advisory_lock: one step
	when  func(w *World, s *State, tx *Tx) bool // the statement is sent only if it returns true
	keep  bool                                  // no snapshot of its own: uses that of an earlier statement
	pick  func(w *World, s *State, tx *Tx) Set
}

func (st stmt) String() string {
	text := [...]string{"run", st.queue.String(), "advisory lock of the claim id", "duty", "usage", "room"}[st.on]
	if st.blind {
		return "write " + text
	}
	if st.on != onClaim {
		text += st.mode.String()
	}
	if st.skip {
		text += " SKIP LOCKED"
	}
	return text
}

// todo is the set of rows that a statement has still to lock.
func (st stmt) todo(tx *Tx) *Set {
	if st.on == onQueue {
		return &tx.Todo[st.queue]
	}
	return &tx.Others
}

// begin takes the statement's snapshot, which completes a plain read.
func (w *World) begin(s *State, tx *Tx, st stmt) {
	if !st.keep {
		*st.todo(tx) = st.pick(w, s, tx)
	}
	tx.Begun = true
	if st.mode == Unlocked || st.try {
		for *st.todo(tx) != 0 {
			row := st.todo(tx).first(false)
			if st.mode != Unlocked && w.blockers(s, int(tx.Actor), st, row) != 0 {
				*st.todo(tx) &^= set(row)
				tx.Offer = 0
				continue
			}
			w.take(s, tx, st, row)
		}
	}
	w.settle(s, tx)
}

// blockers is the set of transactions that hold the next lock of the statement.
func (w *World) blockers(s *State, me int, st stmt, row int) (who Set) {
	for i := range s.Tx {
		if i == me || s.Tx[i].Kind == None {
			continue
		}
		held := &s.Tx[i].Locks
		var blocked bool
		switch st.on {
		case onRuns:
			blocked = held.Runs[row].conflicts(st.mode)
		case onQueue:
			blocked = held.Rows[st.queue].has(row)
		case onClaim:
			blocked = held.Claim != 0 && held.Claim == s.Tx[me].Claim
		case onDuty:
			blocked = held.Duty.conflicts(st.mode)
		case onUsage, onRoom: // plain reads
		}
		if blocked {
			who |= set(i)
		}
	}
	return who
}

// take locks one row and reads its current version.
func (w *World) take(s *State, tx *Tx, st stmt, row int) {
	*st.todo(tx) &^= set(row)
	switch st.on {
	case onRuns:
		tx.Locks.Runs[row] = max(tx.Locks.Runs[row], st.mode)
		if !st.blind {
			tx.Run[row] = s.DB.Runs[row]
		}
	case onQueue:
		if st.mode != Unlocked {
			tx.Locks.Rows[st.queue] |= set(row)
		}
		if st.blind || st.peek {
			return
		}
		tx.Got[st.queue] |= set(row)
		tx.Seen[row] = s.DB.Rows[st.queue][row]
		if st.skip && tx.Limit > 0 && tx.Got[st.queue].size() >= tx.Limit {
			*st.todo(tx) = 0
		}
	case onClaim:
		if st.mode != Unlocked {
			tx.Locks.Claim = tx.Claim
		}
	case onDuty:
		tx.Locks.Duty = max(tx.Locks.Duty, st.mode)
		tx.Epoch = s.DB.Epoch
	case onUsage:
		if st.queue == Leases || w.Rules.QuotaAtOnce {
			tx.Limit = w.Quota - s.DB.rows(Leases).size()
		}
		if st.queue == Pool || w.Rules.QuotaAtOnce {
			tx.Limit -= s.DB.rows(Pool).size()
		}
	case onRoom:
		w.readRoom(s, tx)
	}
}

// settle moves on from a statement that has no row left, to the next that is sent.
func (w *World) settle(s *State, tx *Tx) {
	if !tx.Begun {
		return
	}
	p := w.programs[tx.Kind]
	if st := p[tx.PC]; *st.todo(tx) != 0 {
		return
	}
	tx.Begun = false
	for tx.PC++; int(tx.PC) < len(p) && p[tx.PC].when != nil && !p[tx.PC].when(w, s, tx); {
		tx.PC++
	}
}

// advance executes the next step of a transaction that has statements left. A statement that must
// wait is not a step: advance returns the transactions that it waits for.
func (w *World) advance(s *State, me int) (step Step, waits Set) {
	tx := &s.Tx[me]
	st := w.programs[tx.Kind][tx.PC]
	step = Step{Actor: int8(me), Kind: tx.Kind, Stmt: tx.PC, Row: -1} //nolint:gosec // small
	if !tx.Begun {
		w.begin(s, tx, st)
		step.What = snapshots
		switch {
		case st.try && tx.Offer > 0:
			step.What = tries
		case st.try:
			step.What = triesWithoutEffect
		case st.mode == Unlocked:
			step.What = reads
		}
		return step, 0
	}

	row := st.todo(tx).first(!w.Rules.RowsInOrder && me%2 == 1)
	step.Row = int8(row) //nolint:gosec // small
	step.What = locks
	if blockers := w.blockers(s, me, st, row); blockers != 0 {
		if !st.skip {
			return step, blockers
		}
		step.What = skips
		*st.todo(tx) &^= set(row)
	} else {
		w.take(s, tx, st, row)
	}
	w.settle(s, tx)
	return step, 0
}
