package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
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

// ledger is an append-only file of answers. An entry is in the file when write returns: a
// process that is killed afterwards takes nothing with it.
type ledger struct {
	mu   sync.Mutex
	file *os.File
}

func openLedger(path string) (*ledger, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return &ledger{file: file}, err
}

func (l *ledger) write(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.file.Write(append(line, '\n'))
	return err
}

// readLedgers reads all entries of all processes. The last line of a killed process may be
// cut short; then the process did not continue from it either.
func readLedgers(dir string) ([]entry, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.ledger"))
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, path := range paths {
		read, err := readLedger(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		entries = append(entries, read...)
	}
	return entries, nil
}

func readLedger(path string) ([]entry, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var entries []entry
	for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}
