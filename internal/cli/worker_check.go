package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/worker"
)

// describePatience is how long a worker program may take to describe itself.
const describePatience = 20 * time.Second

// newWorkerWithCheck is the command worker with its subcommand.
func newWorkerWithCheck() *cobra.Command {
	cmd := newWorker()
	cmd.AddCommand(newWorkerCheck())
	return cmd
}

// newWorkerCheck compares a worker program with a manifest.
func newWorkerCheck() *cobra.Command {
	var (
		file string
		form output
	)
	cmd := &cobra.Command{
		Use:   "check -- PROGRAM [ARGUMENT]...",
		Short: "Compare a Go worker with a manifest",
		Long: `Compare a Go worker with a manifest before a run does. The program is started with
SERVO_WORKER_DESCRIBE=1: servo.Main then prints the registered handlers and the pools, and ends
without contacting a server.

An asset whose handler is missing is an error, and so is a handler that reads an asset (servo.Reads)
which the manifest does not declare as upstream. Assets of pools that the program does not serve
are left to other workers. Exits with 1 if there is an error.`,
		Example: `  servo worker check -f servo.yaml -- ./shop`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.InvalidArgument, "is missing", fault.Field("PROGRAM"), fault.Remedy("name the worker's program after --: servo worker check -- ./shop"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readInput(cmd, "--file", file, asset.MaxBytes)
			if err != nil {
				return err
			}
			manifest, err := asset.Parse(data, file)
			if err != nil {
				return err
			}
			description, err := describeWorker(cmd.Context(), args)
			if err != nil {
				return err
			}
			report := compareWorker(manifest, description)
			if err := render(cmd.OutOrStdout(), form, report, report.print); err != nil {
				return err
			}
			if len(report.Errors) > 0 {
				return withExit(exitFailed, fault.New(fault.Conflict, "the worker does not fit the manifest", fault.Remedy("correct the errors listed above")))
			}
			return nil
		},
	}
	addManifest(cmd, &file)
	addOutput(cmd, &form)
	return cmd
}

// describeWorker reads the handlers and pools of a program.
func describeWorker(ctx context.Context, args []string) (d worker.Description, err error) {
	ctx, cancel := context.WithTimeout(ctx, describePatience)
	defer cancel()
	program := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the caller's own program
	var out, problems bytes.Buffer
	program.Dir = environmentOf(ctx).Dir
	program.Env, program.Stdout, program.Stderr = append(os.Environ(), worker.DescribeVariable+"=1"), &out, &problems
	if err := program.Run(); err != nil {
		message := fmt.Sprintf("%s failed: %s", args[0], strings.TrimSpace(problems.String()))
		if problems.Len() == 0 {
			message = args[0] + " cannot be run"
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			message = fmt.Sprintf("%s did not end within %s", args[0], describePatience)
		}
		return d, fault.New(fault.InvalidArgument, message, fault.Field("PROGRAM"),
			fault.Remedy("name a program that calls servo.Main, built with this version of the package"), fault.Cause(err))
	}
	if err := json.Unmarshal(out.Bytes(), &d); err != nil {
		return d, fault.New(fault.InvalidArgument, args[0]+" printed no description of a worker", fault.Field("PROGRAM"),
			fault.Remedy("name a program that calls servo.Main before it prints anything"), fault.Cause(err))
	}
	return d, nil
}

// workerReport lists the mismatches between a worker and a manifest.
type workerReport struct {
	Fits     int      `json:"fits"` // assets that the worker can run
	Errors   []string `json:"errors"`
	Warnings []string `json:"warnings"`
}

func (r *workerReport) print(w io.Writer) {
	for _, e := range r.Errors {
		fmt.Fprintln(w, "error: "+clean(e))
	}
	for _, e := range r.Warnings {
		fmt.Fprintln(w, "warning: "+clean(e))
	}
	fmt.Fprintf(w, "this worker can run %s of the manifest\n", count(r.Fits, "asset"))
}

func (r *workerReport) fail(format string, args ...any) {
	r.Errors = append(r.Errors, fmt.Sprintf(format, args...))
}

func (r *workerReport) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// compareWorker compares the handlers of a worker with the assets of a manifest.
func compareWorker(m *asset.Manifest, d worker.Description) *workerReport {
	report := &workerReport{Errors: []string{}, Warnings: []string{}}
	used := map[string]bool{}
	for _, a := range m.Assets {
		if a.Kind() == asset.KindGo {
			used[report.compareGo(a, d)] = true
		} else if slices.Contains(d.Pools, a.Pool) && (a.Kind() == asset.KindExec && d.Exec || a.Kind() == asset.KindHTTP && d.HTTP) {
			report.Fits++
		}
	}
	for _, handler := range d.Handlers {
		if !used[handler] {
			report.warn("handler %s is registered, and no asset of the manifest needs it", handler)
		}
	}
	return report
}

// compareGo compares a Go asset with the handlers, and returns the one that it needs.
func (r *workerReport) compareGo(a asset.Asset, d worker.Description) (handler string) {
	handler = a.Go.Handler
	if handler == "" {
		handler = a.Key
	}
	served, has := slices.Contains(d.Pools, a.Pool), slices.Contains(d.Handlers, handler)
	switch {
	case served && !has:
		r.fail("asset %s needs the handler %s, which the worker does not register%s", a.Key, handler, suggest.DidYouMean(handler, d.Handlers))
	case has && !served:
		r.warn("asset %s is in pool %s, which the worker does not serve (it serves %s)", a.Key, a.Pool, strings.Join(d.Pools, ", "))
	case has:
		r.Fits++
		for _, read := range d.Reads[handler] {
			if !slices.Contains(a.Upstream, read) {
				r.fail("handler %s reads %s, which asset %s does not declare as upstream%s", handler, read, a.Key, suggest.DidYouMean(read, a.Upstream))
			}
		}
	}
	return handler
}
