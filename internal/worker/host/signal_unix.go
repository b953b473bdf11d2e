//go:build unix

package host

import (
	"os/exec"
	"strings"
	"syscall"
)

// ownGroup keeps signals of a terminal from the supervisor: the worker decides when it ends.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// readNow reads what is available.
func readNow(fd uintptr, buffer []byte) (int, error) { return syscall.Read(int(fd), buffer) }

// signalNames are the signals that end a process by a mistake or a kill.
var signalNames = map[int]string{
	int(syscall.SIGABRT): "SIGABRT", int(syscall.SIGBUS): "SIGBUS", int(syscall.SIGFPE): "SIGFPE", int(syscall.SIGHUP): "SIGHUP",
	int(syscall.SIGILL): "SIGILL", int(syscall.SIGINT): "SIGINT", int(syscall.SIGKILL): "SIGKILL", int(syscall.SIGPIPE): "SIGPIPE",
	int(syscall.SIGSEGV): "SIGSEGV", int(syscall.SIGTERM): "SIGTERM", int(syscall.SIGTRAP): "SIGTRAP", int(syscall.SIGXCPU): "SIGXCPU",
}

// signalName returns the name of a signal and its description.
func signalName(signal int) string {
	name, description := signalNames[signal], syscall.Signal(signal).String()
	return strings.TrimSpace(name + " (" + description + ")")
}
