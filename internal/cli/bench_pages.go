package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/devkit/bench"
)

func newBenchPages() *cobra.Command {
	var (
		options bench.PagesOptions
		form    output
	)
	cmd := &cobra.Command{
		Use:   "pages",
		Short: "Measure every page of the web UI over a long history",
		Long: `Measure every page of the web UI over a long history, on a private PostgreSQL with fsync on:
runs of one task are triggered and executed through the API, and then each page is requested, one
after the other.`,
		Example: "  servo bench pages\n  servo bench pages --runs 1000000",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if options.Executable, err = os.Executable(); err != nil {
				return fmt.Errorf("find this binary: %w", err)
			}
			if form.forPeople() {
				options.Progress = func(r bench.PageResult) error {
					_, err := fmt.Fprintf(cmd.OutOrStdout(), "%-60s p50 %7.1f ms  worst %7.1f ms  %7d bytes\n", r.Page, r.P50, r.Worst, r.Bytes)
					return err
				}
			}
			figures, err := bench.RunPages(cmd.Context(), options)
			if err != nil {
				return err
			}
			if !form.forPeople() {
				return render(cmd.OutOrStdout(), form, figures, nil)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "over %d runs and %d events\n", figures.Runs, figures.Events)
			return err
		},
	}
	cmd.Flags().IntVar(&options.Runs, "runs", 100_000, "number of runs")
	cmd.Flags().IntVar(&options.Tenants, "tenants", 20, "number of tenants of the runs")
	cmd.Flags().IntVar(&options.Looks, "looks", 15, "number of requests for each page")
	addOutput(cmd, &form)
	return cmd
}
