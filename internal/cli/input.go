package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
)

// stdinName stands for standard input where a file is expected.
const stdinName = "-"

// readInput reads a file, or standard input, up to a limit.
func readInput(cmd *cobra.Command, field, name string, limit int) ([]byte, error) {
	var from io.Reader
	if name == stdinName {
		from = cmd.InOrStdin()
	} else {
		file, err := os.Open(environmentOf(cmd.Context()).path(name))
		if err != nil {
			return nil, unreadable(field, name, err)
		}
		defer file.Close()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, int64(limit)+1))
	if err != nil {
		return nil, unreadable(field, name, err)
	}
	if len(data) > limit {
		return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("%s has more than %d bytes", name, limit),
			fault.Field(field), fault.Remedy("split it"), fault.Value("limit", limit))
	}
	return data, nil
}

func unreadable(field, name string, err error) error {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err
	}
	return fault.New(fault.InvalidArgument, fmt.Sprintf("cannot read %s: %v", name, err), fault.Field(field),
		fault.Remedy("give a file that can be read, or - for standard input"), fault.Cause(err))
}
