package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/worker/host"
	"go.arco.dev/servo/internal/worker/local"
)

// localRun is the flags of a local run.
type localRun struct {
	local       bool
	python      string
	interpreter string
	pipeline    string
	partition   string
	dir         string
	concurrency int
	memory      byteSize
	params      parameters
	form        output
}

// newRun runs assets on this machine.
func newRun() *cobra.Command {
	var o localRun
	cmd := &cobra.Command{
		Use:   "run --local [SELECTION]...",
		Short: "Run assets of a Python project on this machine",
		Long: `Run assets of a Python project on this machine, without a server and a database. Functions run in
host processes as under a worker. Results are stored in the directory .servo of the project: a later
run of a part reads the results of its upstreams there.

Without a selection and --pipeline all assets run. A failed task is not retried; tasks downstream of
it are skipped, and the exit code is 3. To run deployed assets, use servo runs trigger.`,
		Example: `  servo run --local '*'
  servo run --local gold/revenue --python ./shop
  servo run --local --pipeline daily --param day=2026-01-31`,
		RunE: o.run,
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.local, "local", false, "run on this machine; required")
	flags.StringVar(&o.python, "python", ".", "directory of the Python project, or DIR:MODULE")
	flags.StringVar(&o.interpreter, "interpreter", "", "interpreter of Python (default: .venv of the project, VIRTUAL_ENV or python3)")
	flags.StringVar(&o.pipeline, "pipeline", "", "pipeline to run, instead of a selection")
	flags.StringVar(&o.partition, "partition", "", "partition of the tasks")
	flags.StringVar(&o.dir, "dir", "", "directory of results (default: .servo in the project)")
	flags.IntVar(&o.concurrency, "concurrency", 4, "tasks that run at once")
	flags.Var(&o.memory, "host-memory", "memory limit of a host with its child processes, such as 2GiB (default: none)")
	o.params.add(cmd)
	addOutput(cmd, &o.form)
	return cmd
}

func (o *localRun) run(cmd *cobra.Command, args []string) error {
	if !o.local {
		return fault.New(fault.InvalidArgument, "is missing", fault.Field("--local"), fault.Remedy("add --local, or start a run on a server: servo runs trigger"))
	}
	project, pool, err := openProject(cmd, o.python, o.interpreter, host.Options{Hosts: o.concurrency, MemoryLimit: int64(o.memory)})
	if err != nil {
		return err
	}
	defer project.Close()
	defer pool.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), importPatience)
	document, err := project.Manifest(ctx, pool, cmd.ErrOrStderr())
	cancel()
	if err != nil {
		return err
	}
	manifest, err := asset.Parse(document, "manifest.json")
	if err != nil {
		return err
	}
	request := plan.Request{Pipeline: o.pipeline, Select: args}
	if request.Parameters, err = o.params.ofManifest(cmd, manifest, o.pipeline); err != nil {
		return err
	}
	planned, err := plan.New(manifest, request)
	if err != nil {
		return err
	}
	shown := &localLines{to: cmd.ErrOrStderr()}
	r := &local.Run{
		Plan: planned, Manifest: manifest, Pool: pool, Code: project.Host("local"), Partition: o.partition, Concurrency: o.concurrency,
		Dir: cmp.Or(environmentOf(cmd.Context()).path(o.dir), filepath.Join(project.Dir, ".servo")), Log: shown.log, End: shown.end,
	}
	tasks, succeeded := r.Execute(cmd.Context())
	err = render(cmd.OutOrStdout(), o.form, tasks, func(w io.Writer) { localTable(w, tasks) })
	if err == nil && !succeeded {
		return withExit(exitNotSucceeded, nil)
	}
	return err
}

// localLines shows log lines and ends while tasks run.
type localLines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *localLines) log(key, level, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.to, "%s %s %s\n", key, level, clean(line))
}

func (l *localLines) end(t local.Task) {
	if t.Failure == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.to, "%s %s %s: %s\n", t.Key, t.State, t.Failure.Class, clean(t.Failure.Message))
	for line := range strings.Lines(t.Failure.Traceback) {
		fmt.Fprintln(l.to, "  "+clean(strings.TrimRight(line, "\n")))
	}
	if t.Failure.Remedy != "" {
		fmt.Fprintln(l.to, "  "+clean(t.Failure.Remedy))
	}
}

// maxShownResult is how much of a result the table shows.
const maxShownResult = 60

func localTable(w io.Writer, tasks []local.Task) {
	fmt.Fprintln(w, "ASSET\tSTATE\tDURATION\tRESULT")
	for _, t := range tasks {
		name, result := t.Key, string(t.Result)
		if t.Partition != "" {
			name += "[" + t.Partition + "]"
		}
		if runes := []rune(result); len(runes) > maxShownResult {
			result = string(runes[:maxShownResult]) + "…"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", clean(name), t.State, t.Took.Round(time.Millisecond), clean(cmp.Or(result, "-")))
	}
}
