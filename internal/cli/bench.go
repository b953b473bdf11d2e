package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/devkit/bench"
)

// newBench is the group of commands that measure Servo on this machine.
func newBench() *cobra.Command {
	return group("bench", "Measure Servo on this machine", newBenchAPI(), newBenchEngine(), newBenchFairness(), newBenchPages(), newBenchReleases(), newBenchSchedules(), newBenchTasks(), newBenchWorker())
}

// newMeasurement builds a benchmark. For people it prints each result when it is measured, and the
// last lines from all results.
func newMeasurement[R, All any](c spec, measure func(ctx context.Context, progress func(R) error) (All, error),
	lines func(w io.Writer, r R), last ...func(w io.Writer, all All),
) *cobra.Command {
	cmd := &cobra.Command{Use: c.use, Short: c.short, Long: c.long, Example: c.example, Args: exactly(0)}
	c.flags(cmd)
	var form output
	addOutput(cmd, &form)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !form.forPeople() {
			results, err := measure(cmd.Context(), nil)
			if err != nil {
				return err
			}
			return render(cmd.OutOrStdout(), form, results, nil)
		}
		results, err := measure(cmd.Context(), func(r R) error {
			var text strings.Builder
			lines(&text, r)
			_, err := io.WriteString(cmd.OutOrStdout(), text.String())
			return wrote(err)
		})
		if err != nil {
			return err
		}
		for _, summary := range last {
			summary(cmd.OutOrStdout(), results)
		}
		return nil
	}
	return cmd
}

// executable is the path of this binary, which benchmarks start as servers and workers.
func executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this binary: %w", err)
	}
	return path, nil
}

func addBenchDatabase(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "database", "", "URL of a PostgreSQL (default: a private one)")
}

func newBenchEngine() *cobra.Command {
	var (
		options bench.Options
		profile bool
	)
	return newMeasurement(spec{
		use: "engine", short: "Measure tasks per second in one process",
		long: `Measure the rate of tasks from READY through QUEUED, DISPATCHED and RUNNING to SUCCEEDED, with the
full event log, in one process, on a private PostgreSQL with fsync on.

Scenarios: single (single-task runs, triggered while workers drain them), drain (the same,
all triggered before), chain and diamond (runs of 10 tasks), fanout (10,000 tasks and a
join), mixed (tenants with singles, chains and diamonds, of which one first attempt in 50
fails and is retried).`,
		example: `  servo bench engine
  servo bench engine --scenario single --tasks 1000000
  servo bench engine --scenario chain --profile`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringArrayVar(&options.Scenarios, "scenario", nil, "scenario, repeatable (default: all)")
			cmd.Flags().IntVar(&options.Tasks, "tasks", 0, "number of tasks (0: the default of the scenario)")
			cmd.Flags().IntVar(&options.Tenants, "tenants", 50, "number of tenants")
			cmd.Flags().IntVar(&options.Slots, "slots", 1000, "capacity of the workers")
			cmd.Flags().BoolVar(&profile, "profile", false, "show the most expensive statements (pg_stat_statements)")
			addBenchDatabase(cmd, &options.Database)
		},
	}, func(ctx context.Context, progress func(bench.Result) error) ([]bench.Result, error) {
		options.Progress = progress
		return bench.Run(ctx, options)
	}, func(w io.Writer, r bench.Result) { benchLines(w, r, profile) })
}

// benchLines prints one scenario: the rate first, then the cost of a task.
func benchLines(w io.Writer, r bench.Result, profile bool) {
	per := func(n int64) float64 { return float64(n) / float64(max(r.Tasks, 1)) }
	c := r.Cost
	fmt.Fprintf(w, "%s: %.0f tasks/s (%d tasks in %d runs, %.1f s)\n", r.Scenario, r.PerSecond(), r.Tasks, r.Runs, c.Elapsed.Seconds())
	fmt.Fprintf(w, "  per task     %.4f transactions, %.4f statements, rows %.2f inserted %.2f updated %.2f deleted, %.0f bytes of WAL\n",
		per(c.Transactions), per(c.Statements), per(c.Inserted), per(c.Updated), per(c.Deleted), per(c.WALBytes))
	fmt.Fprintf(w, "  processor    PostgreSQL %.1f s, Go %.1f s\n", c.PostgresCPU.Round(time.Millisecond).Seconds(), c.GoCPU.Seconds())
	fmt.Fprintf(w, "  tenths       %.0f tasks/s\n", r.Pace)
	fmt.Fprint(w, "  queue tables")
	for _, q := range r.Queues {
		fmt.Fprintf(w, " %s %d kB", q.Table, q.Bytes>>10)
	}
	fmt.Fprintln(w)
	if profile {
		for _, s := range r.Statements {
			fmt.Fprintf(w, "  %8.0f ms %7d calls %9d rows  %s\n", s.MS, s.Calls, s.Rows, s.Name)
		}
	}
}

func newBenchAPI() *cobra.Command {
	var options bench.APIOptions
	return newMeasurement(spec{
		use: "api", short: "Measure the latency of reads with a key",
		long: `Measure reads over REST and over gRPC: a private PostgreSQL with fsync on and a server with
authentication and rate limits, each a process of its own. Calls are due at a steady rate, and
measured from the time at which they were due.`,
		example: "  servo bench api\n  servo bench api --rate 500 --for 1m",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&options.Rate, "rate", 200, "calls per second")
			cmd.Flags().DurationVar(&options.For, "for", 20*time.Second, "duration of the measurement, for each protocol")
		},
	}, func(ctx context.Context, progress func(bench.APIResult) error) (results []bench.APIResult, err error) {
		if options.Executable, err = executable(); err != nil {
			return nil, err
		}
		options.Progress = progress
		return bench.RunAPI(ctx, options)
	}, func(w io.Writer, r bench.APIResult) {
		fmt.Fprintf(w, "%s: %d calls, %d failed, p50 %.2f ms, p99 %.2f ms, max %.1f ms\n", r.Edge, r.Calls, r.Failed, r.P50, r.P99, r.Max)
	})
}

func newBenchFairness() *cobra.Command {
	var options bench.FairnessOptions
	return newLocal(spec{
		use: "fairness", short: "Measure the sharing of a pool under overload",
		long: `Measure fairness on a private PostgreSQL with fsync on.

First a noisy neighbour: one tenant has a backlog of ready tasks, another creates one task each
second. How long does the second wait to be queued, against the time between two rounds of
admission? Then a crowd: many tenants with ready tasks and one worker with a capacity of 32 and
no-op tasks. How many tasks are served each second? Then three tenants with weights 1, 2 and 4 and
tasks of different length that always wait: which part of the worker-seconds does each get?`,
		example: "  servo bench fairness\n  servo bench fairness --backlog 10000 --for 10s",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&options.Backlog, "backlog", 100_000, "number of ready tasks of the noisy tenant")
			cmd.Flags().IntVar(&options.Tenants, "tenants", 20_000, "number of waiting tenants (0: skip this part)")
			cmd.Flags().IntVar(&options.Tasks, "tasks", 10_000, "number of tasks of the tenants with weights")
			cmd.Flags().DurationVar(&options.For, "for", 60*time.Second, "time for which the quiet tenant requests a task each second")
			addBenchDatabase(cmd, &options.Database)
		},
	}, func(cmd *cobra.Command, _ []string) (bench.FairnessResult, error) {
		return bench.RunFairness(cmd.Context(), options)
	}, fairnessLines)
}

func fairnessLines(w io.Writer, r bench.FairnessResult) {
	n := r.Neighbour
	fmt.Fprintf(w, "neighbour: %d tasks beside a backlog of %d (served at %.0f tasks/s)\n", n.Tasks, n.Backlog, n.NoisyRate)
	fmt.Fprintf(w, "  READY to QUEUED   p50 %.1f ms, p99 %.1f ms, at most %d rounds\n", n.WaitP50, n.WaitP99, n.Rounds)
	fmt.Fprintf(w, "  READY to RUNNING  p50 %.1f ms, p99 %.1f ms\n", n.StartP50, n.StartP99)
	fmt.Fprintf(w, "  between rounds    p50 %.1f ms, p99 %.1f ms\n", n.RoundP50, n.RoundP99)
	fmt.Fprintf(w, "  while it is alone p50 %.1f ms, p99 %.1f ms (READY to RUNNING; tasks of the neighbour take %.0f ms)\n", n.IdleP50, n.IdleP99, n.Length)
	if c := r.Crowd; c.Tenants > 0 {
		fmt.Fprintf(w, "crowd: %d tenants wait, a worker with capacity %d is served %.0f tasks/s; between rounds p50 %.1f ms, p99 %.1f ms\n",
			c.Tenants, c.Capacity, c.Rate, c.RoundP50, c.RoundP99)
	}
	fmt.Fprintln(w, "weights:")
	var t table
	t.add("TENANT", "WEIGHT", "TASK", "TASKS", "SERVED", "SHARE", "ENTITLED")
	for _, s := range r.Weights {
		t.add(s.Tenant, fmt.Sprint(s.Weight), fmt.Sprintf("%.0f ms", s.Length), fmt.Sprint(s.Tasks), fmt.Sprintf("%.1f s", s.Seconds),
			fmt.Sprintf("%.1f %%", 100*s.Share), fmt.Sprintf("%.1f %%", 100*s.Entitled))
	}
	t.print(w)
}

func newBenchPages() *cobra.Command {
	var options bench.PagesOptions
	return newMeasurement(spec{
		use: "pages", short: "Measure every page of the web UI over a long history",
		long: `Measure every page of the web UI over a long history, on a private PostgreSQL with fsync on:
runs of one task are triggered and executed through the API, and then each page is requested, one
after the other.`,
		example: "  servo bench pages\n  servo bench pages --runs 1000000",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&options.Runs, "runs", 100_000, "number of runs")
			cmd.Flags().IntVar(&options.Tenants, "tenants", 20, "number of tenants of the runs")
			cmd.Flags().IntVar(&options.Looks, "looks", 15, "number of requests for each page")
		},
	}, func(ctx context.Context, progress func(bench.PageResult) error) (figures bench.PagesFigures, err error) {
		if options.Executable, err = executable(); err != nil {
			return figures, err
		}
		options.Progress = progress
		return bench.RunPages(ctx, options)
	}, func(w io.Writer, r bench.PageResult) {
		fmt.Fprintf(w, "%-60s p50 %7.1f ms  worst %7.1f ms  %7d bytes\n", r.Page, r.P50, r.Worst, r.Bytes)
	}, func(w io.Writer, figures bench.PagesFigures) {
		fmt.Fprintf(w, "over %d runs and %d events\n", figures.Runs, figures.Events)
	})
}

func newBenchReleases() *cobra.Command {
	var options bench.ReleasesOptions
	return newMeasurement(spec{
		use: "releases", short: "Measure releases that many tenants follow",
		long: `Measure releases on a private PostgreSQL with fsync on.

Tenants follow one channel: how long does the check of a release against all their configs take,
how many rows does a wave write, and how large are the stored manifests? Then configs are due: by
turns those of followers and those of tenants with deployments of their own.`,
		example: "  servo bench releases\n  servo bench releases --tenants 1000 --due 1000",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&options.Tenants, "tenants", 50_000, "number of tenants that follow the channel")
			cmd.Flags().IntVar(&options.Configs, "configs", 2, "number of configs of each of them")
			cmd.Flags().IntVar(&options.Due, "due", 10_000, "number of due configs in one round")
			cmd.Flags().IntVar(&options.Firing, "firing", 500, "number of tenants with due configs, in each group")
			cmd.Flags().IntVar(&options.Rounds, "rounds", 5, "number of rounds of each group")
			addBenchDatabase(cmd, &options.Database)
		},
	}, func(ctx context.Context, progress func(bench.Figure) error) ([]bench.Figure, error) {
		options.Firing = min(options.Firing, options.Tenants)
		options.Progress = progress
		return bench.RunReleases(ctx, options)
	}, func(w io.Writer, f bench.Figure) {
		fmt.Fprintf(w, "%-52s %12.1f %s\n", f.Name, f.Value, f.Unit)
	})
}

func newBenchTasks() *cobra.Command {
	var options bench.TaskOptions
	return newMeasurement(spec{
		use: "tasks", short: "Measure an installation over the network",
		long: `Measure an installation: a private PostgreSQL with fsync on, a server and a worker, each a process
of its own, connected over the network. The tasks do nothing.

Scenarios: ` + strings.Join(bench.TaskScenarioNames(), ", ") + `.`,
		example: `  servo bench tasks
  servo bench tasks --scenario latency --scenario chain
  servo bench tasks --scenario slots-1000 --tasks 200000`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringArrayVar(&options.Scenarios, "scenario", nil, "scenario, repeatable (default: all)")
			cmd.Flags().IntVar(&options.Tasks, "tasks", 0, "number of tasks of the throughput scenarios (0: 50,000)")
		},
	}, func(ctx context.Context, progress func(bench.TaskResult) error) (results []bench.TaskResult, err error) {
		if options.Executable, err = executable(); err != nil {
			return nil, err
		}
		options.Progress = progress
		return bench.Tasks(ctx, options)
	}, func(w io.Writer, r bench.TaskResult) {
		fmt.Fprintln(w, r.Scenario)
		for _, f := range r.Figures {
			fmt.Fprintf(w, "  %-36s %10.1f %s\n", f.Name, f.Value, f.Unit)
		}
	})
}

// newBenchWorker is the worker process of bench tasks.
func newBenchWorker() *cobra.Command {
	var options bench.WorkerOptions
	cmd := &cobra.Command{
		Use:    "worker",
		Short:  "Run tasks that do nothing, for bench tasks",
		Hidden: true,
		Args:   exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			return bench.RunWorker(cmd.Context(), options)
		},
	}
	cmd.Flags().StringVar(&options.Server, "server", "", "address of the server")
	cmd.Flags().IntVar(&options.Slots, "slots", 200, "capacity of the worker")
	return cmd
}

func newBenchSchedules() *cobra.Command {
	var options bench.SchedulesOptions
	return newMeasurement(spec{
		use: "schedules", short: "Measure how fast due configs fire",
		long: `Measure firing on a private PostgreSQL with fsync on.

Configs of many tenants are all due at the same second: how long until each has its run, with
its task ready? First one loop with many configs, then many loops at the same time with few.`,
		example: "  servo bench schedules\n  servo bench schedules --configs 100000",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntSliceVar(&options.Configs, "configs", []int{10_000, 100_000}, "numbers of due configs, one measurement each")
			cmd.Flags().IntVar(&options.Loops, "loops", 50, "number of concurrent loops in the last measurement")
			cmd.Flags().IntVar(&options.Due, "due", 1000, "number of configs in the last measurement")
			cmd.Flags().IntVar(&options.Batch, "batch", 0, "batch size of a loop in the last measurement (default: an equal share)")
			cmd.Flags().BoolVar(&options.Profile, "profile", false, "show the most expensive statements")
			cmd.Flags().IntVar(&options.Tenants, "tenants", 100, "number of tenants")
			addBenchDatabase(cmd, &options.Database)
		},
	}, func(ctx context.Context, progress func(bench.SchedulesResult) error) ([]bench.SchedulesResult, error) {
		options.Progress = progress
		return bench.RunSchedules(ctx, options)
	}, func(w io.Writer, r bench.SchedulesResult) {
		fmt.Fprintf(w, `%d configs, %d loops, %d at a time: %.3f s, %.0f slots/s
  %d looks      p50 %.1f ms, p99 %.1f ms
  per slot     %.3f statements, %.0f bytes of WAL, %.0f µs of PostgreSQL, %.0f µs of Go
  memory       %.0f MiB live at most
`, r.Configs, r.Loops, r.Batch, r.Seconds, r.PerSecond, r.Looks, r.BatchP50, r.BatchP99, r.Statements, r.WALBytes, r.PostgresUS, r.GoUS, r.HeapMiB)
		for _, s := range r.Expensive {
			fmt.Fprintf(w, "    %-40s %6d calls %8.1f ms %7d rows\n", s.Name, s.Calls, s.MS, s.Rows)
		}
	})
}
