package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

// The lines of postmaster.pid that matter here; PostgreSQL documents them.
const (
	pidLine    = 0
	statusLine = 7
)

// pidFile is the content of postmaster.pid.
type pidFile struct {
	pid   int
	ready bool
}

// readPidFile reads postmaster.pid; false if there is none or it names no process.
func readPidFile(data string) (pidFile, bool) {
	content, err := os.ReadFile(filepath.Join(data, "postmaster.pid")) //nolint:gosec // our own directory
	if err != nil {
		return pidFile{}, false
	}
	return parsePidFile(string(content))
}

func parsePidFile(content string) (pidFile, bool) {
	lines := strings.Split(content, "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[pidLine]))
	if err != nil || pid <= 0 {
		return pidFile{}, false
	}
	ready := len(lines) > statusLine && strings.TrimSpace(lines[statusLine]) == "ready"
	return pidFile{pid: pid, ready: ready}, true
}

// alive reports whether a process runs. A zombie does not: it only waits for its parent.
func alive(pid int) bool {
	if err := syscall.Kill(pid, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// isPostmaster reports whether a process is a PostgreSQL of this data directory: PostgreSQL
// works inside it. Without /proc its command line is compared.
func isPostmaster(ctx context.Context, pid int, data string) bool {
	if at, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil {
		return at == data && isPostgres(pid)
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	command, err := exec.CommandContext(ctx, "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output() //nolint:gosec // a number
	return err == nil && strings.Contains(string(command), "postgres") && strings.Contains(string(command), data)
}

// isPostgres distinguishes PostgreSQL from a shell in the same directory.
func isPostgres(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	program := strings.TrimSpace(string(name))
	return err == nil && (program == "postgres" || program == "postmaster")
}

// stopLeftover shuts down a postmaster whose parent has ended.
func stopLeftover(ctx context.Context, pid int, data string) error {
	for _, step := range []struct {
		signal   syscall.Signal
		patience time.Duration
	}{{syscall.SIGINT, fastPatience}, {syscall.SIGQUIT, immediatePatience}} {
		if !isPostmaster(ctx, pid, data) {
			return nil // it has ended meanwhile, and the pid may be another's
		}
		if err := syscall.Kill(pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the PostgreSQL left behind (pid %d): %w", pid, err)
		}
		gone, err := poll(ctx, step.patience, func() bool { return !alive(pid) })
		if gone || err != nil {
			return err
		}
	}
	return fault.New(fault.Unavailable, fmt.Sprintf("a PostgreSQL left behind (pid %d) in %s does not stop", pid, data),
		fault.Remedy(fmt.Sprintf("end its clients, then run `kill -QUIT %d`", pid)))
}

// endOrphans kills the backends of a dead postmaster. They end by themselves when they next
// wait, but one in a long query would keep the next start away. It is safe, since recovery
// follows anyway, and it is only called when no postmaster of this directory is alive. Where
// there is no /proc, PostgreSQL's own check refuses the start until they are gone.
func endOrphans(ctx context.Context, data string) error {
	gone, err := poll(ctx, killPatience, func() bool {
		left := processesIn(data)
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may end before the signal comes
		}
		return len(left) == 0
	})
	if err != nil || gone {
		return err
	}
	return fault.New(fault.Unavailable, "processes of a dead PostgreSQL do not end in "+data,
		fault.Value("pids", processesIn(data)), fault.Remedy("look at its disk: they may be waiting for it"))
}

// processesIn lists the living PostgreSQL processes that work in a data directory.
func processesIn(data string) []int {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is well-formed
	var found []int
	for _, link := range links {
		if at, err := os.Readlink(link); err != nil || at != data {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err == nil && isPostgres(pid) && alive(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// poll asks until the answer is yes, the patience is over or the context ends.
func poll(ctx context.Context, patience time.Duration, yes func() bool) (bool, error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if yes() {
			return true, nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return false, nil
		case <-ctx.Done():
			return false, fmt.Errorf("wait for PostgreSQL's processes: %w", context.Cause(ctx))
		}
	}
}
