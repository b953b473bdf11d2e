package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
)

// The exit codes. They are part of the interface and do not change.
const (
	exitDone         = 0
	exitFailed       = 1
	exitInvalid      = 2
	exitNotSucceeded = 3
	exitNotFound     = 4
	exitUnavailable  = 5
	exitRefused      = 6
)

// exitError is an error with an exit code. Without an error inside, nothing is printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// withExit gives an error an exit code.
func withExit(code int, err error) error { return &exitError{code: code, err: err} }

// exitCode distinguishes mistakes of the caller, for which a repetition is useless, from failures.
func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	switch fault.CodeOf(err) {
	case fault.InvalidArgument, fault.InvalidManifest, fault.CycleDetected, fault.LimitExceeded:
		return exitInvalid
	case fault.NotFound:
		return exitNotFound
	default:
		return exitFailed
	}
}

// newExitCodes is a topic of the help, not a command.
func newExitCodes() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "Show the meaning of the exit codes",
		Long: `Exit codes are part of the interface and do not change:

  0  done
  1  failure: the server refused, the database is unavailable, the disk is full
  2  bad usage or invalid input: the same command can never succeed
  3  the watched run did not succeed
  4  unknown tenant, run, task, asset or pipeline
  5  no server answers, or not now: the same command may succeed later
  6  the server refuses the key of the worker`,
	}
}
