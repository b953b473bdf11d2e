package worker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// The fields of /proc/self/stat with the bounds of the initial environment, counted after the name.
const (
	fieldEnvStart = 47
	fieldEnvEnd   = 48
	maxEnviron    = 8 << 20
)

// prSetDumpable is the option of prctl that decides whether other processes may inspect a process.
const prSetDumpable = 4

// Hide prevents other processes of this user from reading the keys that this process was started
// with. It overwrites the variables in the initial environment, which /proc/PID/environ shows even
// after os.Unsetenv, and makes the process non-dumpable, which closes its memory and descriptors to
// them. A process with CAP_SYS_PTRACE, such as one of root, can still read its memory.
func Hide(variables ...string) error {
	// First, because a non-dumpable process cannot open its own memory.
	err := overwriteEnvironment(variables)
	if _, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0); failed != 0 {
		err = errors.Join(err, fmt.Errorf("make the process non-dumpable: %w", failed))
	}
	return err
}

func overwriteEnvironment(variables []string) error {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= fieldEnvEnd {
		return errors.New("/proc/self/stat does not contain the bounds of the environment")
	}
	from, err := strconv.ParseInt(fields[fieldEnvStart], 10, 64)
	if err != nil {
		return err
	}
	to, err := strconv.ParseInt(fields[fieldEnvEnd], 10, 64)
	if err != nil || to < from || to-from > maxEnviron {
		return fmt.Errorf("the environment is at %d to %d: %w", from, to, errors.Join(errors.ErrUnsupported, err))
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if errors.Is(err, os.ErrPermission) {
		return nil // the process is non-dumpable already, so its environment is closed
	}
	if err != nil {
		return err
	}
	defer memory.Close()
	environment := make([]byte, to-from)
	if _, err := memory.ReadAt(environment, from); err != nil {
		return err
	}
	at := 0
	for entry := range bytes.SplitSeq(environment, []byte{0}) {
		name, value, _ := bytes.Cut(entry, []byte{'='})
		for _, hidden := range variables {
			if string(name) == hidden && len(value) > 0 {
				if _, err := memory.WriteAt(bytes.Repeat([]byte{'x'}, len(value)), from+int64(at+len(name)+1)); err != nil {
					return err
				}
			}
		}
		at += len(entry) + 1
	}
	return nil
}
