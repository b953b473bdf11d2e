package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/devkit/bench"
)

func newBenchAPI() *cobra.Command {
	var (
		options bench.APIOptions
		form    output
	)
	cmd := &cobra.Command{
		Use:   "api",
		Short: "Measure the latency of reads with a key",
		Long: `Measure reads over REST and over gRPC: a private PostgreSQL with fsync on and a server that
asks for keys and counts rates, each a process of its own. Calls are due at a steady pace, and
are measured from the moment that they were due.`,
		Example: "  servo bench api\n  servo bench api --rate 500 --for 1m",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if options.Executable, err = os.Executable(); err != nil {
				return fmt.Errorf("find this binary: %w", err)
			}
			if form.forPeople() {
				options.Progress = func(r bench.APIResult) error {
					_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %d calls, %d failed, p50 %.2f ms, p99 %.2f ms, max %.1f ms\n", r.Edge, r.Calls, r.Failed, r.P50, r.P99, r.Max)
					return err
				}
			}
			results, err := bench.RunAPI(cmd.Context(), options)
			if err != nil || form.forPeople() {
				return err
			}
			return render(cmd.OutOrStdout(), form, results, nil)
		},
	}
	cmd.Flags().IntVar(&options.Rate, "rate", 200, "calls per second")
	cmd.Flags().DurationVar(&options.For, "for", 20*time.Second, "duration of the measurement, for each protocol")
	addOutput(cmd, &form)
	return cmd
}
