package host

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"time"
)

// maxLine is the length at which a line of output is split.
const maxLine = 16 << 10

// pipeCapacity bounds how much output is read for one task after its end: more than a pipe can contain
// was written after it.
const pipeCapacity = 1 << 20

// output reads a pipe of a host line by line. It always reads, so that a host never waits for its log.
type output struct {
	file *os.File
	line func([]byte)
	rest []byte

	mu      sync.Mutex
	waiting []chan struct{} // drains that wait for the reader
	done    chan struct{}
}

func newOutput(file *os.File, line func([]byte)) *output {
	o := &output{file: file, line: line, done: make(chan struct{})}
	go o.read()
	return o
}

// close ends the reader after it has read everything that is in the pipe. A process that has escaped may
// keep the pipe open, so the reader does not wait for its end.
func (o *output) close() {
	o.drain()
	_ = o.file.Close()
	<-o.done
}

// drain returns when everything that was in the pipe at its call was passed on.
func (o *output) drain() {
	answer := make(chan struct{})
	o.mu.Lock()
	o.waiting = append(o.waiting, answer)
	_ = o.file.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
	o.mu.Unlock()
	select {
	case <-answer:
	case <-o.done:
	}
}

func (o *output) read() {
	defer close(o.done)
	buffer := make([]byte, 64<<10)
	for {
		n, err := o.file.Read(buffer)
		o.pass(buffer[:n])
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			o.flush()
			return
		}
		o.mu.Lock()
		waiting := o.waiting
		o.waiting = nil
		_ = o.file.SetReadDeadline(time.Time{})
		o.mu.Unlock()
		o.readAvailable(buffer)
		o.flush()
		for _, answer := range waiting {
			close(answer)
		}
	}
}

// readAvailable reads what is in the pipe without waiting.
func (o *output) readAvailable(buffer []byte) {
	raw, err := o.file.SyscallConn()
	if err != nil {
		return
	}
	for total := 0; total < pipeCapacity; {
		var n int
		if err := raw.Read(func(fd uintptr) bool { n, err = readNow(fd, buffer); return true }); err != nil || n <= 0 {
			return
		}
		total += n
		o.pass(buffer[:n])
	}
}

// pass splits output into lines.
func (o *output) pass(data []byte) {
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			o.rest = append(o.rest, data...)
			for len(o.rest) >= maxLine {
				o.line(o.rest[:maxLine])
				o.rest = append(o.rest[:0], o.rest[maxLine:]...)
			}
			return
		}
		line := data[:end]
		if len(o.rest) > 0 {
			o.rest = append(o.rest, line...)
			line = o.rest
		}
		for len(line) > maxLine {
			o.line(line[:maxLine])
			line = line[maxLine:]
		}
		o.line(line)
		o.rest = o.rest[:0]
		data = data[end+1:]
	}
}

// flush passes an incomplete last line.
func (o *output) flush() {
	if len(o.rest) > 0 {
		o.line(o.rest)
		o.rest = o.rest[:0]
	}
}
