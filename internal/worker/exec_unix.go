//go:build unix

package worker

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a command the leader of a process group, so that all that it starts can be
// ended with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup signals a command and everything that it has started. A group that is gone is
// what was wanted.
func killGroup(cmd *exec.Cmd, signal syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, signal) }

func signalOf(exit *exec.ExitError) (syscall.Signal, bool) {
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0, false
	}
	return status.Signal(), true
}
