package model

// The sizes of the largest world. Everything in a State is a byte, so that two states
// are compared and hashed as plain memory.
const (
	maxTasks   = 4
	maxRuns    = 2
	maxActors  = 5
	unanswered = maxActors // the transaction whose client gets no answer
	maxTx      = maxActors + 1
)

// Set is a set of tasks, or of runs, by number.
type Set uint8

func set(members ...int) (s Set) {
	for _, m := range members {
		s |= 1 << m
	}
	return s
}

func (s Set) has(i int) bool { return s&(1<<i) != 0 }

func (s Set) size() (n int8) {
	for ; s != 0; s &= s - 1 {
		n++
	}
	return n
}

// first is the lowest or, if falling, the highest member.
func (s Set) first(falling bool) int {
	at := -1
	for i := range 8 {
		if s.has(i) && (at < 0 || falling) {
			at = i
		}
	}
	return at
}

// Queue is a queue table. A task that has not ended is in exactly one.
type Queue uint8

// The queue tables, in lock order.
const (
	Waiting Queue = iota
	Ready
	Pool
	Leases
	Retry
	numQueues
)

func (q Queue) String() string {
	return [...]string{"waiting", "ready_q", "pool_q", "leases", "retry_q"}[q]
}

// Outcome is how a task or a run has ended; Live means that it has not.
type Outcome uint8

// The outcomes.
const (
	Live Outcome = iota
	Succeeded
	Failed
	Skipped
	Cancelled
	numOutcomes
)

// Row is a row of a queue table. It carries the columns of all of them.
type Row struct {
	Present bool
	Unmet   int8 // waiting
	Attempt int8 // travels with the task; in leases it is the attempt's token
	Claim   int8 // leases
	Running bool // leases: RUNNING, otherwise DISPATCHED
	Expired bool // leases: the expiry lies in the past
	Flag    bool // leases: the worker is to stop
	Cursor  int8 // travels with the task; in leases it is where the worker has moved it
	From    int8 // leases: the cursor at the claim
}

// TaskRow is the wide row: written when the task is made and when it ends.
type TaskRow struct {
	Made     bool
	Outcome  Outcome
	Ups      Set  // edges
	Accepted Set  // tokens of accepted reports: the task row and the attempts' events
	Moves    int8 // acknowledged moves of the cursor; no row has them
}

// RunRow is a run's row.
type RunRow struct {
	Mark      bool // a cancel has marked it
	Ended     Outcome
	Remaining int8
	Count     [numOutcomes]int8
}

// DB is the committed state. Writes appear here at commit and nowhere before: a transaction writes
// only rows that it has locked or inserted, so no other transaction can distinguish a write from
// its commit, and the two are one step of the model.
type DB struct {
	Rows  [numQueues][maxTasks]Row
	Tasks [maxTasks]TaskRow
	Runs  [maxRuns]RunRow
	Fans  int8 // fan-outs recorded, by ordinal
	Epoch int8 // of the admission duty
}

// Mode is a row lock mode of PostgreSQL.
type Mode uint8

// The row lock modes, weakest first; Unlocked is a plain read.
const (
	Unlocked Mode = iota
	KeyShare
	Share
	NoKeyUpdate
	Update
)

func (m Mode) String() string {
	return [...]string{"", " FOR KEY SHARE", " FOR SHARE", " FOR NO KEY UPDATE", " FOR UPDATE"}[m]
}

// conflicts is PostgreSQL's table of row lock conflicts.
func (m Mode) conflicts(other Mode) bool {
	if m > other {
		m, other = other, m
	}
	switch m {
	case KeyShare:
		return other == Update
	case Share:
		return other >= NoKeyUpdate
	case NoKeyUpdate, Update:
		return true
	default:
		return false
	}
}

// Locks are the locks that one transaction holds until it ends.
type Locks struct {
	Runs  [maxRuns]Mode
	Rows  [numQueues]Set // always FOR UPDATE
	Duty  Mode
	Claim int8 // advisory, by claim id; 0 is none
}

// Tx is a running transaction: its next statement, its locks, and the rows that it has read and
// will decide on.
type Tx struct {
	Kind   Kind
	Actor  int8
	PC     uint8          // the next statement
	Begun  bool           // that statement has its snapshot and is locking row by row
	Todo   [numQueues]Set // rows of the snapshot that are still to be locked
	Others Set            // the same for runs, the duty and claim ids
	Locks  Locks

	Tasks    Set            // the tasks of the command
	Runs     Set            // the runs of these tasks
	Sweeps   Set            // the runs to cancel
	Token    [maxTasks]int8 // the tokens that a worker's command carries
	Claim    int8
	Limit    int8
	Offer    int8 // how many tasks the waiting claim accepts by a handoff
	Signaled bool
	Repeat   bool // the answer of a first try was lost

	Got   [numQueues]Set // rows read
	Seen  [maxTasks]Row  // as they were when read
	Run   [maxRuns]RunRow
	Dirty Set // runs whose row is to be written
	Epoch int8
}

// Client is the state of an actor between its transactions.
type Client struct {
	Held    [maxTasks]int8 // tokens of the tasks that it holds
	Running Set
	Turn    int8 // which of its two claim ids comes next
	Fanned  bool
	Moved   bool
	Epoch   int8
	Asleep  bool // a loop that waits for its signal
	Wake    bool // the signal, latched
	Signal  Set  // has committed, and has still to signal these roles
	Done    bool
	Taken   int8 // the transaction, counted from 1, that serves its claim
	Looked  bool // its claim has found no task, and none can have come since
}

// State is the committed state, the state of all transactions and clients, and the number of
// crashes and lost answers that may still happen.
type State struct {
	DB      DB
	Tx      [maxTx]Tx
	Client  [maxActors]Client
	Crashes int8
	Lost    int8
	Broken  Invariant // the promise that the last commit broke, if no row shows it afterwards
}

// breaks records a broken promise that shows only at the moment of the commit.
func (s *State) breaks(what Invariant) {
	if s.Broken == Holds {
		s.Broken = what
	}
}

// insert adds a row. A second row of the same key would be a unique violation.
func (s *State) insert(q Queue, t int, row Row) {
	if s.DB.Rows[q][t].Present {
		s.breaks(OneQueue)
	}
	row.Present = true
	s.DB.Rows[q][t] = row
}

// update writes a row if it still exists.
func (s *State) update(q Queue, t int, row Row) {
	if s.DB.Rows[q][t].Present {
		s.DB.Rows[q][t] = row
	}
}

// remove deletes a row. Statements that have it in their snapshot pass over it, and do not see a
// later row of the same key.
func (s *State) remove(q Queue, t int) {
	s.DB.Rows[q][t] = Row{}
	for i := range s.Tx {
		s.Tx[i].Todo[q] &^= set(t)
	}
}

// rows is the set of tasks that a queue holds.
func (db *DB) rows(q Queue) (in Set) {
	for t := range maxTasks {
		if db.Rows[q][t].Present {
			in |= set(t)
		}
	}
	return in
}

// dependents is the set of tasks that have one of these directly upstream.
func (db *DB) dependents(of Set) (down Set) {
	for t := range maxTasks {
		if db.Tasks[t].Ups&of != 0 {
			down |= set(t)
		}
	}
	return down
}

// cone is the set of all tasks downstream.
func (db *DB) cone(of Set) Set {
	all := db.dependents(of)
	for {
		next := all | db.dependents(all)
		if next == all {
			return all
		}
		all = next
	}
}
