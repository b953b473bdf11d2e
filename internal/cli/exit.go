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

// exitError is an error that has an exit code of its own. Without an error inside, what
// there is to say was said.
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

// exitCode tells mistakes of the caller, which no repetition mends, from failures.
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
		Short: "What the exit codes mean",
		Long: `Exit codes are part of the interface and do not change:

  0  done
  1  it failed: the server refused, the database is away, the disk is full
  2  bad usage or invalid input: the same command can never work
  3  the run that was waited for did not succeed
  4  there is no such tenant, run, task, asset or pipeline
  5  no server answers, or not now: the same command may work later
  6  the server refuses the key of the worker`,
	}
}
