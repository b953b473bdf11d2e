package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

// ledger is an append-only file of notes. A note is in the file when write returns: a
// process that is killed afterwards takes nothing with it.
type ledger struct {
	mu   sync.Mutex
	file *os.File
}

func openLedger(path string) (*ledger, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &ledger{file: file}, err
}

func (l *ledger) write(n note) error {
	n.At = time.Now()
	line, err := json.Marshal(n)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.file.Write(append(line, '\n'))
	return err
}

const ledgerSuffix = ".ledger"

// readLedgers reads all notes of all workers' lives, each in its order.
func readLedgers(dir string) ([]note, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+ledgerSuffix))
	if err != nil {
		return nil, err
	}
	var all []note
	for _, path := range paths {
		notes, err := readLedger(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, notes...)
	}
	return all, nil
}

// readLedger reads one. The last line of a killed process may be cut short: then the process
// did not continue from it either.
func readLedger(path string) ([]note, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	who := strings.TrimSuffix(filepath.Base(path), ledgerSuffix)
	var notes []note
	for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
		n := note{who: who}
		if err := json.Unmarshal(line, &n); err != nil {
			return nil, err
		}
		notes = append(notes, n)
	}
	return notes, nil
}

func TestLedger(t *testing.T) {
	t.Parallel()

	t.Run("what was written before a crash is there, and half a line is not", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		l, err := openLedger(filepath.Join(dir, "w0-1"+ledgerSuffix))
		require.NoError(t, err)
		require.NoError(t, l.write(note{Task: "a", Attempt: 1, What: noteBegin}))
		require.NoError(t, l.write(note{Task: "a", Attempt: 1, What: noteResult, Stamp: "s"}))
		_, err = l.file.WriteString(`{"task":"b","att`)
		require.NoError(t, err)
		notes, err := readLedgers(dir)
		require.NoError(t, err)
		require.Len(t, notes, 2)
		require.Equal(t, "w0-1", notes[1].who)
		require.Equal(t, holding{"a", 1}, notes[1].holding())
	})
}
