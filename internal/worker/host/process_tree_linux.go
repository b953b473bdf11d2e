package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const prSetChildSubreaper = 36

// becomeSubreaper makes orphaned descendants children of this process.
func becomeSubreaper() error {
	if _, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); failed != 0 {
		return fmt.Errorf("become a subreaper: %w", failed)
	}
	return nil
}

// startHost starts the host in a session of its own. It dies with the supervisor.
func startHost(command []string) (pid int, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), os.Stdout.Fd(), os.Stderr.Fd(), fdDown, fdUp, fdLog}
	pid, err = syscall.ForkExec(command[0], command, &syscall.ProcAttr{ //nolint:gosec // the worker's own command line
		Env: os.Environ(), Files: files, Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", command[0], err)
	}
	return pid, nil
}

// reapPause is the time between two rounds that kill the rest of a host.
const reapPause = 2 * time.Millisecond

// reapAll waits for the host, kills its descendants and waits for all of them.
func reapAll(pid int) status {
	end := status{Ended: true}
	var gone bool
	for {
		options := 0
		if gone {
			killTree(os.Getpid())
			options = syscall.WNOHANG
		}
		var wait syscall.WaitStatus
		var used syscall.Rusage
		reaped, err := syscall.Wait4(-1, &wait, options, &used)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil: // no children are left
			return end
		case reaped == 0:
			time.Sleep(reapPause)
			continue
		}
		end.CPU += time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
		end.MaxRSS = max(end.MaxRSS, used.Maxrss<<10)
		if reaped == pid {
			gone = true
			if wait.Signaled() {
				end.Signal = int(wait.Signal())
			} else {
				end.Exit = wait.ExitStatus()
			}
		}
	}
}

func terminateGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) } // an error means that it has ended

// killTree kills all descendants of a process. Those that are created meanwhile are found in the next
// round of the caller.
func killTree(of int) {
	for _, pid := range descendants(of) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// descendants returns the processes below a process, parents first.
func descendants(of int) []int {
	var found []int
	for _, pid := range children(of) {
		found = append(found, pid)
		found = append(found, descendants(pid)...)
	}
	return found
}

// children returns the children of all threads of a process; none if it has ended.
func children(of int) []int {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", of))
	if err != nil {
		return nil
	}
	var found []int
	for _, thread := range threads {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", of, thread.Name()))
		if errors.Is(err, os.ErrNotExist) && thread.Name() == strconv.Itoa(of) {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", of)); err == nil {
				return childrenByScan(of) // a kernel without this file
			}
		}
		for _, field := range bytes.Fields(data) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				found = append(found, pid)
			}
		}
	}
	return found
}

// childrenByScan finds the children of a process among all processes.
func childrenByScan(of int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(of) {
			found = append(found, pid)
		}
	}
	return found
}

// residentSet returns the memory of a process that is in RAM; 0 if it has ended.
func residentSet(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// outOfMemoryKills returns how many processes of this cgroup the kernel has killed for memory.
func outOfMemoryKills() int64 {
	for _, name := range []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"} {
		data, err := os.ReadFile(name) //nolint:gosec // one of the two
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if count, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
				n, err := strconv.ParseInt(count, 10, 64)
				if err == nil {
					return n
				}
			}
		}
	}
	return 0
}
