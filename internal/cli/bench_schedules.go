package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/devkit/bench"
)

func newBenchSchedules() *cobra.Command {
	var (
		options bench.SchedulesOptions
		form    output
	)
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "Measure how fast due configs fire",
		Long: `Measure firing on a private PostgreSQL with fsync on.

Configs of many tenants are all due at the same second: how long until each has its run, with
its task ready? First one loop with many configs, then many loops at the same time with few.`,
		Example: "  servo bench schedules\n  servo bench schedules --configs 100000",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if form.forPeople() {
				options.Progress = func(r bench.SchedulesResult) error {
					_, err := fmt.Fprintf(cmd.OutOrStdout(), `%d configs, %d loops, %d at a time: %.3f s, %.0f slots/s
  %d looks      p50 %.1f ms, p99 %.1f ms
  per slot     %.3f statements, %.0f bytes of WAL, %.0f µs of PostgreSQL, %.0f µs of Go
  memory       %.0f MiB live at most
`, r.Configs, r.Loops, r.Batch, r.Seconds, r.PerSecond, r.Looks, r.BatchP50, r.BatchP99, r.Statements, r.WALBytes, r.PostgresUS, r.GoUS, r.HeapMiB)
					for _, s := range r.Expensive {
						_, err = fmt.Fprintf(cmd.OutOrStdout(), "    %-40s %6d calls %8.1f ms %7d rows\n", s.Name, s.Calls, s.MS, s.Rows)
					}
					return err
				}
			}
			results, err := bench.RunSchedules(cmd.Context(), options)
			if err != nil || form.forPeople() {
				return err
			}
			return render(cmd.OutOrStdout(), form, results, nil)
		},
	}
	cmd.Flags().IntSliceVar(&options.Configs, "configs", []int{10_000, 100_000}, "numbers of due configs, one measurement each")
	cmd.Flags().IntVar(&options.Loops, "loops", 50, "number of concurrent loops in the last measurement")
	cmd.Flags().IntVar(&options.Due, "due", 1000, "number of configs in the last measurement")
	cmd.Flags().IntVar(&options.Batch, "batch", 0, "batch size of a loop in the last measurement (default: an equal share)")
	cmd.Flags().BoolVar(&options.Profile, "profile", false, "show the most expensive statements")
	cmd.Flags().IntVar(&options.Tenants, "tenants", 100, "number of tenants")
	cmd.Flags().StringVar(&options.Database, "database", "", "URL of a PostgreSQL (default: a private one)")
	addOutput(cmd, &form)
	return cmd
}
