package devpg

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	logLimit       = 16 << 20 // when a kept log is put aside at the next start
	complaintLimit = 8 << 10  // how much of the log is looked through for a reason
)

// logFile is the log that initdb and postgres print to, and where this start begins in it.
type logFile struct {
	file  *os.File
	begin int64
}

// openLog opens the log for appending and puts one that has grown long aside.
func (s *Server) openLog() (*logFile, error) {
	if info, err := os.Stat(s.files.log); err == nil && info.Size() > logLimit {
		if err := os.Rename(s.files.log, s.files.log+".old"); err != nil {
			return nil, fmt.Errorf("put the log aside: %w", err)
		}
	}
	file, err := os.OpenFile(s.files.log, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log: %w", err), file.Close())
	}
	return &logFile{file: file, begin: info.Size()}, nil
}

// close gives up our handle; the child that writes has its own.
func (l *logFile) close() { _ = l.file.Close() }

// complaint returns the reason why a program ended: its fatal lines, or its last one.
func (l *logFile) complaint() string {
	text, err := io.ReadAll(io.NewSectionReader(l.file, l.begin, complaintLimit))
	if err != nil {
		return err.Error()
	}
	last := "it has no output"
	var fatal []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		last = line
		for _, mark := range []string{"FATAL:", "PANIC:", "error:"} {
			if _, what, ok := strings.Cut(line, mark); ok {
				fatal = append(fatal, strings.TrimSpace(what))
			}
		}
	}
	if len(fatal) == 0 {
		return last
	}
	return strings.Join(fatal, "; ")
}
