package model

import "slices"

// Role decides which transactions an actor begins.
type Role uint8

// The roles. A server is not an actor: its crash is the crash of what it was doing.
const (
	Admission  Role = iota // moves READY tasks to the pool, sleeps when there are none
	Worker                 // claims, starts, reports
	Reaper                 // expires leases, readies due retries
	Canceller              // cancels all runs of the world, or never does
	Mixer                  // completes the tasks that it holds and cancels the other runs, in one batch
	Withdrawer             // withdraws queued tasks, once
	Starter                // starts runs that wait, under the duty of admission
	Echo                   // a delayed copy of the first claim of the last actor
)

// The roles that sleep and are woken by signals.
const (
	admissions Set = 1 << Admission
	claimers   Set = 1 << Worker
	sleepers       = admissions | claimers
)

// Actor runs transactions, one after the other.
type Actor struct {
	Name     string
	Role     Role
	Max      int8   // how many tasks a worker wants in one claim; 0: it claims none
	Holds    Set    // tasks that it holds in the beginning
	Verdicts []Kind // what it may report
	Heir     bool   // an admission that may take the duty over
}

// looksAt is the queue that a loop takes its work from.
func (a *Actor) looksAt() Queue {
	if a.Role == Admission {
		return Ready
	}
	return Pool
}

// Task is a task of a world.
type Task struct {
	Run int
	Ups Set
	In  Queue // where it is in the beginning; a lease if an actor holds it
}

// World is a small set of tasks and actors that is explored completely.
type World struct {
	Name          string
	Rules         Rules
	Tasks         []Task
	Mapped        Set // tasks that a fan-out makes
	Actors        []Actor
	Attempts      int8 // an attempt of this number is the last
	Duty          bool // admission holds its duty's row, so that two servers may try
	Quota         int8 // tasks admitted at once under the duty; 0: no quota
	SeparateStart bool // otherwise a claim also starts
	Signals       bool // otherwise loops look whenever there is work
	Parked        bool // with Signals: claims sleep as well
	Polls         bool // with Signals: loops poll as well
	Handoff       bool // a transaction that readies tasks queues or leases them itself if no other task waits
	ClaimsAdmit   bool // a claim that finds too few queued tasks admits ready ones and leases them
	Patience      bool // claims that found no task are answered so after a while, and their id is not used again
	Endless       bool // the world has no actor that ends its runs
	Crashes       int8
	Lost          int8 // commits whose answer is lost

	LoseReportsOnly bool // only workers' commits lose their answers
	LateReports     bool // a report is accepted after its lease has expired, as long as no worker has claimed the task
	RetryDueMode    Mode // how retry due locks the run; Unlocked means KeyShare
	StrictFence     bool // checks TokenFences
	ForgiveDeadlock bool // a deadlock only ends the path, to show which other promise breaks

	programs [numKinds][]stmt
}

func (w *World) runs() int {
	n := 0
	for _, t := range w.Tasks {
		n = max(n, t.Run+1)
	}
	return n
}

func (w *World) allRuns() Set { return 1<<w.runs() - 1 }

func (w *World) tasksOf(runs Set) (of Set) {
	for t, task := range w.Tasks {
		if runs.has(task.Run) {
			of |= set(t)
		}
	}
	return of
}

func (w *World) runsOf(tasks Set) (of Set) {
	for t, task := range w.Tasks {
		if tasks.has(t) {
			of |= set(task.Run)
		}
	}
	return of
}

// claimID is the id of a worker's current claim. Two alternating ids are enough: a worker claims
// again only when it holds none of the tasks of its last claim.
func (s *State) claimID(worker int) int8 { return claimIDs(worker) + s.Client[worker].Turn }

// claimIDs is the first of the two.
func claimIDs(worker int) int8 { return int8(worker+1) << 1 } //nolint:gosec // small

// claimer is the worker that made a claim.
func claimer(claim int8) int { return int(claim>>1) - 1 }

// start is the world's first state.
func (w *World) start() (s State) {
	for k := range numKinds {
		w.programs[k] = w.program(k)
	}
	s.Crashes, s.Lost, s.DB.Epoch = w.Crashes, w.Lost, 1
	for t, task := range w.Tasks {
		if w.Mapped.has(t) {
			continue
		}
		s.DB.Tasks[t] = TaskRow{Made: true, Ups: task.Ups}
		s.DB.Runs[task.Run].Remaining++
		s.DB.Rows[task.In][t] = Row{Present: true, Unmet: task.Ups.size()}
	}
	for i, a := range w.Actors {
		c := &s.Client[i]
		if a.Role == Admission && !a.Heir {
			c.Epoch = 1
		}
		for t := range w.Tasks {
			if a.Holds.has(t) {
				s.DB.Rows[Leases][t] = Row{Present: true, Attempt: 1, Running: !w.SeparateStart}
				c.Held[t] = 1
			}
		}
		if !w.SeparateStart {
			c.Running = a.Holds
		}
	}
	return s
}

// intentions are the transactions that an actor may begin now.
func (w *World) intentions(s *State, i int) []Kind {
	a, c := &w.Actors[i], &s.Client[i]
	switch a.Role {
	case Admission:
		switch {
		case a.Heir && c.Epoch == 0:
			return []Kind{TakeOver}
		case w.looks(s, i):
			return []Kind{Admit}
		}
	case Worker:
		held := held(c)
		switch {
		case held&^c.Running != 0:
			return []Kind{Start}
		case held != 0 && (c.Fanned || c.Moved):
			return slices.DeleteFunc(slices.Clone(a.Verdicts), func(k Kind) bool { return k == FanOut && c.Fanned || k == Advance && c.Moved })
		case held != 0:
			return a.Verdicts
		case a.Max > 0 && w.looks(s, i):
			return []Kind{Claim}
		}
	case Reaper:
		var kinds []Kind
		if s.DB.expired() != 0 {
			kinds = append(kinds, Expire)
		}
		if s.DB.rows(Retry) != 0 {
			kinds = append(kinds, RetryDue)
		}
		return kinds
	case Canceller:
		return []Kind{Cancel}
	case Mixer:
		return []Kind{Mixed}
	case Withdrawer:
		if s.DB.rows(Pool) != 0 {
			return []Kind{Withdraw}
		}
	case Starter:
		if s.DB.unstarted() != 0 {
			return []Kind{StartRun}
		}
	case Echo:
		return []Kind{Claim}
	}
	return nil
}

// looks reports whether a loop has a reason to look at its queue.
func (w *World) looks(s *State, i int) bool {
	a, c := &w.Actors[i], &s.Client[i]
	something := w.findable(s, i) || w.Patience && a.Role == Worker && !c.Looked
	if !w.sleeps(a) || something && w.Polls && w.Rules.LoopPolls {
		return something
	}
	return !c.Asleep || c.Wake
}

// sleeps reports whether a loop waits for signals in this world.
func (w *World) sleeps(a *Actor) bool { return w.Signals && (a.Role == Admission || w.Parked) }

func held(c *Client) (tasks Set) {
	for t, token := range c.Held {
		if token != 0 {
			tasks |= set(t)
		}
	}
	return tasks
}

// open begins a transaction of an actor.
func (w *World) open(s *State, i int, k Kind) {
	a, c, tx := &w.Actors[i], &s.Client[i], &s.Tx[i]
	*tx = Tx{Kind: k, Actor: int8(i)} //nolint:gosec // small
	switch k {
	case Admit:
		c.Asleep, c.Wake = false, false
	case Claim:
		c.Asleep, c.Wake, c.Taken, c.Looked = false, false, 0, false
		tx.Claim, tx.Limit = s.claimID(i), a.Max
		if a.Role == Echo {
			tx.Claim, tx.Limit = claimIDs(len(w.Actors)-1), 1
		}
	case Start:
		tx.Tasks, tx.Token = held(c)&^c.Running, c.Held
	case Advance:
		tx.Tasks, tx.Token = held(c), c.Held
	case Complete, Fail, Yield, FanOut:
		tx.Tasks, tx.Token = held(c), c.Held
		tx.Runs = w.runsOf(tx.Tasks)
	case Cancel:
		tx.Sweeps = w.allRuns()
	case Mixed:
		tx.Tasks, tx.Token = held(c), c.Held
		tx.Runs = w.runsOf(tx.Tasks)
		tx.Sweeps = w.allRuns() &^ tx.Runs
	default:
	}
}

// receive gives an actor the answer of its transaction.
func (w *World) receive(s *State, i int, tx *Tx, a answer) {
	c := &s.Client[i]
	if w.Actors[i].Role == Echo {
		c.Done = true
		return
	}
	switch tx.Kind {
	case Admit:
		c.Done = a.refused
		c.Asleep = w.sleeps(&w.Actors[i]) && !a.moved
	case TakeOver:
		c.Epoch = tx.Epoch
	case Claim:
		c.Held = a.tokens
		got := held(c)
		if c.Asleep = w.sleeps(&w.Actors[i]) && got == 0; got != 0 {
			c.Turn ^= 1
		}
		c.Looked = w.Patience && got == 0
		if !w.SeparateStart {
			c.Running = got
		}
	case Start:
		c.Running |= a.accepted
	case FanOut:
		c.Fanned = true
	case Advance:
		c.Moved = true
	case Complete, Fail, Yield:
		a.stale |= a.accepted
	case Cancel, Mixed, Withdraw:
		c.Done = true
	default:
	}
	for t := range maxTasks {
		if a.stale.has(t) && tx.Kind != FanOut {
			c.Held[t] = 0
			c.Running &^= set(t)
		}
	}
	w.serveClaim(s, i, tx, a.handoff)
	if !w.Parked {
		a.signal &^= claimers
	}
	if w.Signals && w.Rules.SignalAfterCommit {
		c.Signal = a.signal
	}
}

// replaceWorker puts a new worker in the place of one that has died. No worker repeats the claims
// of the old one.
func (w *World) replaceWorker(s *State, i int) {
	for t := range maxTasks {
		if lease := &s.DB.Rows[Leases][t]; lease.Present && claimer(lease.Claim) == i {
			lease.Claim = 0
		}
	}
	for j := range s.Tx {
		if tx := &s.Tx[j]; tx.Claim != 0 && claimer(tx.Claim) == i && (tx.Kind != Claim || j == unanswered) {
			tx.Claim = 0
		}
	}
	s.Client[i] = Client{Turn: s.Client[i].Turn ^ 1}
}

// signal wakes the loops of these roles.
func (w *World) signal(s *State, roles Set) {
	for i := range w.Actors {
		a, c := &w.Actors[i], &s.Client[i]
		if roles.has(int(a.Role)) && w.sleeps(a) && (w.Rules.SignalLatched || c.Asleep) {
			c.Wake = true
		}
	}
}
