//go:build !unix

package worker

import (
	"os/exec"
	"syscall"
)

// Without process groups only the command itself can be killed.
func ownGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd, _ syscall.Signal) { _ = cmd.Process.Kill() }

func signalOf(*exec.ExitError) (syscall.Signal, bool) { return 0, false }
