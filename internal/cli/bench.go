package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/devkit/bench"
)

// newBench measures Servo on this machine.
func newBench() *cobra.Command {
	return group("bench", "Measure Servo on this machine", newBenchAPI(), newBenchEngine(), newBenchFairness(), newBenchPages(), newBenchSchedules(), newBenchTasks(), newBenchWorker())
}

func newBenchEngine() *cobra.Command {
	var (
		options bench.Options
		profile bool
		form    output
	)
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Measure tasks per second in one process",
		Long: `Measure how many tasks a second go from READY through QUEUED, DISPATCHED and RUNNING
to SUCCEEDED, with the full event log, in process, on a private PostgreSQL with fsync on.

Scenarios: single (single-task runs, triggered while workers drain them), drain (the same,
all triggered before), chain and diamond (runs of 10 tasks), fanout (10,000 tasks and a
join), mixed (tenants with singles, chains and diamonds, of which one first attempt in 50
fails and is tried again). Without --scenario all are run.`,
		Example: `  servo bench engine
  servo bench engine --scenario single --tasks 1000000
  servo bench engine --scenario chain --profile`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if form.forPeople() {
				options.Progress = func(r bench.Result) error { return wrote(benchLines(cmd.OutOrStdout(), r, profile)) }
			}
			results, err := bench.Run(cmd.Context(), options)
			if err != nil || form.forPeople() {
				return err
			}
			return render(cmd.OutOrStdout(), form, results, nil)
		},
	}
	cmd.Flags().StringArrayVar(&options.Scenarios, "scenario", nil, "scenario, repeatable (default: all)")
	cmd.Flags().IntVar(&options.Tasks, "tasks", 0, "number of tasks (0: the default of the scenario)")
	cmd.Flags().IntVar(&options.Tenants, "tenants", 50, "number of tenants")
	cmd.Flags().IntVar(&options.Slots, "slots", 1000, "capacity of the workers")
	cmd.Flags().StringVar(&options.Database, "database", "", "URL of a PostgreSQL (default: a private one)")
	cmd.Flags().BoolVar(&profile, "profile", false, "show the most expensive statements (pg_stat_statements)")
	addOutput(cmd, &form)
	return cmd
}

// benchLines prints one scenario: the figure first, then what each task cost.
func benchLines(w io.Writer, r bench.Result, profile bool) error {
	var text strings.Builder
	per := func(n int64) float64 { return float64(n) / float64(max(r.Tasks, 1)) }
	c := r.Cost
	fmt.Fprintf(&text, "%s: %.0f tasks/s (%d tasks in %d runs, %.1f s)\n", r.Scenario, r.PerSecond(), r.Tasks, r.Runs, c.Elapsed.Seconds())
	fmt.Fprintf(&text, "  per task     %.4f transactions, %.4f statements, rows %.2f inserted %.2f updated %.2f deleted, %.0f bytes of WAL\n",
		per(c.Transactions), per(c.Statements), per(c.Inserted), per(c.Updated), per(c.Deleted), per(c.WALBytes))
	fmt.Fprintf(&text, "  processor    PostgreSQL %.1f s, Go %.1f s\n", c.PostgresCPU.Round(time.Millisecond).Seconds(), c.GoCPU.Seconds())
	fmt.Fprintf(&text, "  tenths       %.0f tasks/s\n", r.Pace)
	text.WriteString("  queue tables")
	for _, q := range r.Queues {
		fmt.Fprintf(&text, " %s %d kB", q.Table, q.Bytes>>10)
	}
	text.WriteString("\n")
	if profile {
		for _, s := range r.Statements {
			fmt.Fprintf(&text, "  %8.0f ms %7d calls %9d rows  %s\n", s.MS, s.Calls, s.Rows, s.Name)
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}
