// Package ledger keeps what the processes of a chaos test note, in append-only files that outlive
// the processes. It does not interpret the notes.
package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Suffix is the end of the name of each ledger.
const Suffix = ".ledger"

// Ledger is an append-only file of notes. A note is in the file when Write returns: a process that is
// killed afterwards loses none.
type Ledger struct {
	mu   sync.Mutex
	file *os.File
}

// Open opens or creates the ledger of one process.
func Open(path string) (*Ledger, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // a path of the test
	return &Ledger{file: file}, err
}

// Path is the path of the file.
func (l *Ledger) Path() string { return l.file.Name() }

// Write appends a note as JSON.
func (l *Ledger) Write(note any) error {
	line, err := json.Marshal(note)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.file.Write(append(line, '\n'))
	return err
}

// Read reads the notes of all ledgers of a directory, each in its order. It calls named with each note and the name
// of the process that wrote it.
func Read[T any](dir string, named func(note *T, process string)) ([]T, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+Suffix))
	if err != nil {
		return nil, err
	}
	var all []T
	for _, path := range paths {
		data, err := os.ReadFile(path) //nolint:gosec // a path of the test
		if err != nil {
			return nil, err
		}
		// The last line of a killed process may be cut short: then the process did not continue after it.
		for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
			var note T
			if err := json.Unmarshal(line, &note); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			named(&note, strings.TrimSuffix(filepath.Base(path), Suffix))
			all = append(all, note)
		}
	}
	return all, nil
}
