package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/worker"
)

// buildPatience is how long the build of a Go worker may take.
const buildPatience = 10 * time.Minute

// goManifest builds a Go worker and returns the manifest that it declares.
func goManifest(cmd *cobra.Command, source string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "servo-worker-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for the worker: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Join(dir, "worker")
	if _, err := runProgram(cmd.Context(), buildPatience, nil, "build it yourself to see all errors: go build "+source, "go", "build", "-o", program, source); err != nil {
		return nil, err
	}
	manifest, err := runProgram(cmd.Context(), describePatience, []string{worker.ManifestVariable + "=1"},
		"correct the declaration, and let the program call servo.Main before it prints anything", program)
	if err != nil {
		return nil, err
	}
	return manifest, nil
}

// runProgram runs a program in the caller's directory and returns its output.
func runProgram(ctx context.Context, patience time.Duration, variables []string, remedy, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	program := exec.CommandContext(ctx, name, args...) //nolint:gosec // the caller's own program
	var out, problems bytes.Buffer
	program.Dir = environmentOf(ctx).Dir
	program.Env, program.Stdout, program.Stderr = append(os.Environ(), variables...), &out, &problems
	err := program.Run()
	if err == nil {
		return out.Bytes(), nil
	}
	message := strings.TrimSpace(problems.String())
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		message = fmt.Sprintf("%s did not end within %s", filepath.Base(name), patience)
	case errors.Is(err, exec.ErrNotFound):
		message, remedy = "go is not installed", "install Go, or deploy a manifest with --file"
	case message == "":
		message = fmt.Sprintf("%s failed: %v", filepath.Base(name), err)
	}
	return nil, fault.New(fault.InvalidArgument, message, fault.Field("--go"), fault.Remedy(remedy), fault.Cause(err))
}
