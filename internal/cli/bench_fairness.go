package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/devkit/bench"
)

func newBenchFairness() *cobra.Command {
	var (
		options bench.FairnessOptions
		form    output
	)
	cmd := &cobra.Command{
		Use:   "fairness",
		Short: "Measure the sharing of a pool under overload",
		Long: `Measure fairness on a private PostgreSQL with fsync on.

First a noisy neighbour: one tenant has a backlog of ready tasks, another wants one task each
second. How long does the second wait to be queued, against the time between two rounds of
admission? Then a crowd: many tenants with ready tasks and one worker with a capacity of 32 and
no-op tasks. How many tasks are served each second? Then three tenants with weights 1, 2 and 4 and tasks of different length that
always wait: what part of the worker-seconds does each get?`,
		Example: "  servo bench fairness\n  servo bench fairness --backlog 10000 --for 10s",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := bench.RunFairness(cmd.Context(), options)
			if err != nil {
				return err
			}
			return render(cmd.OutOrStdout(), form, result, func(w io.Writer) { fairnessLines(w, result) })
		},
	}
	cmd.Flags().IntVar(&options.Backlog, "backlog", 100_000, "number of ready tasks of the noisy tenant")
	cmd.Flags().IntVar(&options.Tenants, "tenants", 20_000, "number of waiting tenants (0: skip this part)")
	cmd.Flags().IntVar(&options.Tasks, "tasks", 10_000, "number of tasks of the tenants with weights")
	cmd.Flags().DurationVar(&options.For, "for", 60*time.Second, "time for which the quiet tenant requests a task each second")
	cmd.Flags().StringVar(&options.Database, "database", "", "URL of a PostgreSQL (default: a private one)")
	addOutput(cmd, &form)
	return cmd
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
