package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/quality"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/worker"
	"go.arco.dev/servo/internal/worker/host"
	"go.arco.dev/servo/internal/worker/local"
)

// localRun is the flags of a local run.
type localRun struct {
	local       bool
	python      string
	interpreter string
	pipeline    string
	partitions  []string
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
host processes as under a worker, and outputs are checked and committed. Results and outputs are stored
in the directory .servo of the project: a later run of a part reads those of its upstreams there.

Without a selection and --pipeline all assets run. A failed task is not retried; tasks downstream of
it are skipped, and the exit code is 3. To run deployed assets, use servo runs trigger.`,
		Example: `  servo run --local '*'
  servo run --local gold/revenue --python ./shop
  servo run --local '*' --partition date=2026-01-01..2026-01-07
  servo run --local --pipeline daily --param day=2026-01-31`,
		RunE: o.run,
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.local, "local", false, "run on this machine; required")
	flags.StringVar(&o.python, "python", ".", "directory of the Python project, or DIR:MODULE")
	flags.StringVar(&o.interpreter, "interpreter", "", "interpreter of Python (default: .venv of the project, VIRTUAL_ENV or python3)")
	flags.StringVar(&o.pipeline, "pipeline", "", "pipeline to run, instead of a selection")
	addPartitions(cmd, &o.partitions)
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
	planner, err := plan.NewPlanner(manifest)
	if err != nil {
		return err
	}
	if request.Partitions, err = engine.SelectPartitions(o.partitions, time.Now(), planner.SchemesOf(request)); err != nil {
		return err
	}
	planned, err := planner.Plan(request)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(cmp.Or(environmentOf(cmd.Context()).path(o.dir), filepath.Join(project.Dir, ".servo")))
	if err != nil {
		return err
	}
	shown := &localLines{to: cmd.ErrOrStderr()}
	r := &local.Run{
		Plan: planned, Planner: planner, Manifest: manifest, Pool: pool, Code: project.Host("local"), Concurrency: o.concurrency,
		Dir: dir, Log: shown.log, End: shown.end,
	}
	tasks, succeeded, err := r.Execute(cmd.Context())
	if err != nil {
		return err
	}
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
	name := t.Key
	if t.Partition != "" {
		name += "[" + partition.Bare(t.Partition) + "]"
	}
	fmt.Fprintf(l.to, "%s %s %s: %s\n", clean(name), t.State, t.Failure.Class, clean(t.Failure.Message))
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
		name, result := t.Key, shownResult(t.Result)
		if t.Partition != "" {
			name += "[" + partition.Bare(t.Partition) + "]"
		}
		if runes := []rune(result); len(runes) > maxShownResult {
			result = string(runes[:maxShownResult]) + "…"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", clean(name), t.State, t.Took.Round(time.Millisecond), clean(cmp.Or(result, "-")))
	}
}

// shownResult is a result as the table shows it: of an output, its size.
func shownResult(result json.RawMessage) string {
	var version struct {
		Output *worker.Committed `json:"servo_output"`
	}
	if json.Unmarshal(result, &version) != nil || version.Output == nil {
		return string(result)
	}
	out := version.Output
	text := fmt.Sprintf("%s, %s of %s", count(int(out.Rows), "row"), count(out.Files, "file"), out.Format)
	if !out.Format.HasRows() {
		text = count(out.Files, "file")
	}
	if out.Gate == quality.Warn {
		text += ", WARN"
	}
	return text
}
