package host

import (
	"encoding/json"
	"io"
	"os"
	"runtime"
	"strings"
)

// SupervisorCommand is the hidden command of the binary that calls Supervise.
const SupervisorCommand = "host-supervisor"

// The descriptors of a supervisor, besides standard output and error, which the host inherits. The
// first three are the host's own.
const (
	fdDown   = 3 // frames to the host
	fdUp     = 4 // frames of the host
	fdLog    = 5 // log records of the host
	fdStatus = 6 // status of the supervisor
)

// The commands of the worker on the supervisor's standard input. Its end means that the worker has died.
const (
	commandTerminate = 'T' // SIGTERM to the host's process group
	commandKill      = 'K' // SIGKILL to the host and all descendants
)

// status is what a supervisor reports: first the host's process id, then its end.
type status struct {
	PID    int     `json:"pid,omitempty"`
	Ended  bool    `json:"ended,omitempty"`
	Exit   int     `json:"exit,omitempty"`
	Signal int     `json:"signal,omitempty"`
	CPU    float64 `json:"cpu,omitempty"`     // seconds, with all waited descendants
	MaxRSS int64   `json:"max_rss,omitempty"` // bytes, of the largest process
	Error  string  `json:"error,omitempty"`   // the host could not be started
}

// Supervise starts a host and returns when it and all its descendants have ended. It is the main
// function of a supervisor process; the worker passes it descriptors 3 to 6. A process that outlives
// its parent becomes a child of the supervisor, also after setsid, so that it can be killed.
func Supervise(command []string) int {
	// The host receives SIGKILL when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	report := json.NewEncoder(os.NewFile(fdStatus, "status"))
	fail := func(err error) int {
		_ = report.Encode(status{Error: err.Error()}) // the worker may have died
		return 1
	}
	if err := becomeSubreaper(); err != nil {
		return fail(err)
	}
	pid, err := startHost(command)
	if err != nil {
		return fail(err)
	}
	for _, fd := range []uintptr{fdDown, fdUp, fdLog} { // the host has its own copies
		_ = os.NewFile(fd, "").Close()
	}
	_ = os.Stdout.Close()
	_ = os.Stderr.Close()
	_ = report.Encode(status{PID: pid})
	go obey(os.Stdin, pid)
	_ = report.Encode(reapAll(pid))
	return 0
}

// obey executes the commands of the worker until its end.
func obey(commands io.Reader, pid int) {
	one := make([]byte, 1)
	for {
		if _, err := io.ReadFull(commands, one); err != nil {
			killTree(os.Getpid())
			return
		}
		switch one[0] {
		case commandTerminate:
			terminateGroup(pid)
		case commandKill:
			killTree(os.Getpid())
		}
	}
}

// lookPath makes the program absolute, because the supervisor starts it without a search.
func lookPath(program string, environment []string) string {
	if strings.ContainsRune(program, os.PathSeparator) {
		return program
	}
	for _, entry := range environment {
		if path, ok := strings.CutPrefix(entry, "PATH="); ok {
			for dir := range strings.SplitSeq(path, string(os.PathListSeparator)) {
				name := dir + string(os.PathSeparator) + program
				if info, err := os.Stat(name); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
					return name
				}
			}
		}
	}
	return program
}
