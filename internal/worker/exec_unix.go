//go:build unix

package worker

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a command the leader of a process group, so that all processes that it starts can be
// killed with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup sends a signal to a command and all processes that it has started. An error means that
// the group has ended.
func killGroup(cmd *exec.Cmd, signal syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, signal) }

func signalOf(exit *exec.ExitError) (syscall.Signal, bool) {
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0, false
	}
	return status.Signal(), true
}
