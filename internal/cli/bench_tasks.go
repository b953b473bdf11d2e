package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/devkit/bench"
)

func newBenchTasks() *cobra.Command {
	var (
		options bench.TaskOptions
		form    output
	)
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "Measure an installation over the network",
		Long: `Measure a whole installation: a private PostgreSQL with fsync on, a server and a worker,
each a process of its own, talking over the network. The tasks do nothing, so what is
measured is Servo.

Scenarios: ` + strings.Join(bench.TaskScenarioNames(), ", ") + `. Without --scenario all are run.`,
		Example: `  servo bench tasks
  servo bench tasks --scenario latency --scenario chain
  servo bench tasks --scenario slots-1000 --tasks 200000`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if options.Executable, err = os.Executable(); err != nil {
				return fmt.Errorf("find this binary: %w", err)
			}
			if form.forPeople() {
				options.Progress = func(r bench.TaskResult) error { return wrote(figureLines(cmd.OutOrStdout(), r)) }
			}
			results, err := bench.Tasks(cmd.Context(), options)
			if err != nil || form.forPeople() {
				return err
			}
			return render(cmd.OutOrStdout(), form, results, nil)
		},
	}
	cmd.Flags().StringArrayVar(&options.Scenarios, "scenario", nil, "scenario, repeatable (default: all)")
	cmd.Flags().IntVar(&options.Tasks, "tasks", 0, "number of tasks of the throughput scenarios (0: 50,000)")
	addOutput(cmd, &form)
	return cmd
}

// figureLines prints one scenario, a figure a line.
func figureLines(w io.Writer, r bench.TaskResult) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n", r.Scenario)
	for _, f := range r.Figures {
		fmt.Fprintf(&text, "  %-36s %10.1f %s\n", f.Name, f.Value, f.Unit)
	}
	_, err := io.WriteString(w, text.String())
	return err
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
