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
runs of one task are triggered and worked off as everybody would, and then each page is
asked for, one after the other.`,
		Example: "  servo bench pages\n  servo bench pages --runs 1000000",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if options.Executable, err = os.Executable(); err != nil {
				return fmt.Errorf("find this binary: %w", err)
			}
			if form.forPeople() {
				options.Told = func(r bench.PageResult) error {
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
	cmd.Flags().IntVar(&options.Runs, "runs", 100_000, "how many runs there have been")
	cmd.Flags().IntVar(&options.Tenants, "tenants", 20, "how many tenants they belong to")
	cmd.Flags().IntVar(&options.Looks, "looks", 15, "how often each page is asked for")
	addOutput(cmd, &form)
	return cmd
}
