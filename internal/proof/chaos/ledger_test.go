package chaos

import (
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/ledger"
	"go.arco.dev/servo/internal/domain/run"
)

// What an entry of the ledger is about.
const (
	kindTrigger = "trigger"
	kindCancel  = "cancel"
	kindClaim   = "claim" // only if it was refused
	kindReport  = "report"
)

// The reports of a worker.
const (
	actStart    = "start"
	actAdvance  = "advance"
	actFanOut   = "fan-out"
	actComplete = "complete"
	actFail     = "fail"
	actYield    = "yield"
)

// entry is one answer of the engine, as it arrived. Whatever was never answered is in no
// entry: it may have happened or not.
type entry struct {
	At     time.Time `json:"at"`
	Who    string    `json:"who"`
	Kind   string    `json:"kind"`
	Trace  string    `json:"trace"` // the name of the request; its events carry it
	Tenant id.Tenant `json:"tenant,omitzero"`
	Run    id.Run    `json:"run,omitzero"`
	Task   id.Task   `json:"task,omitzero"`
	Token  int64     `json:"token,omitempty"`
	Action string    `json:"action,omitempty"`
	Key    string    `json:"key,omitempty"` // of a trigger

	Refused  string        `json:"refused,omitempty"` // the code of the fault; "" is accepted
	Broken   string        `json:"broken,omitempty"`  // an answer that no caller should ever get
	State    run.TaskState `json:"state,omitempty"`   // of the task
	RunState run.State     `json:"run_state,omitempty"`
	Late     bool          `json:"late,omitempty"`
	Repeat   bool          `json:"repeat,omitempty"`
	Cursor   string        `json:"cursor,omitempty"`
	Added    []id.Task     `json:"added,omitempty"`
}

func (e entry) accepted() bool { return e.Refused == "" && e.Broken == "" }

// unfounded reports that a request was refused without a reason. Workers may be
// late and runs may be over; there was nothing wrong with what was asked.
func (e entry) unfounded() bool {
	switch fault.Code(e.Refused) {
	case "":
		return false
	case fault.Stale:
		return e.Kind != kindReport
	case fault.Conflict:
		return e.Kind == kindTrigger || e.Kind == kindClaim
	default:
		return true
	}
}

// readLedgers reads all entries of all processes.
func readLedgers(dir string) ([]entry, error) {
	return ledger.Read(dir, func(*entry, string) {})
}
