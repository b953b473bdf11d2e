package fleet

import (
	"fmt"
	"time"

	"go.arco.dev/servo/internal/devkit/servotest/ledger"
)

// What a worker takes note of. The first are its own doings, noted before it does them; the
// last what it was answered, noted before it continues.
const (
	noteBegin  = "begin"
	noteResult = "result"
	noteNone   = "none" // it ends without a result

	noteAnswer = "answer" // to a report
	noteLost   = "lost"   // the answer to a heartbeat: the lease is over
)

// note is one line of a worker's ledger.
type note struct {
	At      time.Time `json:"at"`
	Task    string    `json:"task"`
	Attempt int       `json:"attempt"`
	What    string    `json:"what"`
	Stamp   string    `json:"stamp,omitempty"`  // of a result: there is no other with it
	Action  string    `json:"action,omitempty"` // that was answered
	Refused string    `json:"refused,omitempty"`
	Repeat  bool      `json:"repeat,omitempty"` // the server had received it before

	who string // the life that wrote it, from the file's name
}

func (n note) holding() holding { return holding{n.Task, n.Attempt} }

// holding is an attempt: the time in which one worker holds a task.
type holding struct {
	task    string
	attempt int
}

func (h holding) String() string { return fmt.Sprintf("attempt %d of task %s", h.attempt, h.task) }

// readLedgers reads all notes of all workers' lives, each in its order.
func readLedgers(dir string) ([]note, error) {
	return ledger.Read(dir, func(n *note, process string) { n.who = process })
}
