package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/proof/verify"
	"go.arco.dev/servo/internal/store"
)

// newAdmin is the group of commands for operators.
func newAdmin() *cobra.Command {
	return group("admin", "Manage an installation and its database",
		newBackup(),
		newDispatch(),
		newDrain(),
		group("feed", "Manage the event feed", newEpoch()),
		group("projections", "Verify the tables that derive from events", newVerify()),
		newRepair(),
	)
}

// newVerify compares the tables with the events.
func newVerify() *cobra.Command {
	var (
		database, tenant string
		options          verify.Options
		form             output
	)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify the tables against the events",
		Long: `Verify the tables against the events: every row of tenants, runs, tasks and queues is compared
with the fold of its events, in one snapshot, and conditions between rows are checked.

The snapshot stays open until the end and delays the vacuum of the whole database: in a large one
verify one tenant (--tenant) or some runs (--sample). A sample omits checks of whole tables, such
as rows without their run.

Exits with 1 if anything diverges.`,
		Example: `  servo admin projections verify
  servo admin projections verify --tenant acme --output json
  servo admin projections verify --sample 1000`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if options.Sample < 0 {
				return fault.New(fault.InvalidArgument, "is negative", fault.Field("--sample"), fault.Remedy("give a number of runs, or 0 for all"))
			}
			s, err := openMigrated(ctx, database)
			if err != nil {
				return err
			}
			defer s.Close()
			if tenant != "" {
				found, err := s.TenantByName(ctx, tenant)
				if err != nil {
					return err
				}
				options.Tenant = &found
			}
			report, err := verify.Verify(ctx, s, options)
			if err != nil {
				return err
			}
			if err := render(cmd.OutOrStdout(), form, report, report.Text); err != nil || report.Clean() {
				return err
			}
			return fault.New(fault.Conflict, count(report.Found, "divergence"),
				fault.Remedy("find the cause, then repair a run: servo admin repair RUN --tenant NAME"))
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "filter by tenant")
	cmd.Flags().IntVar(&options.Sample, "sample", 0, "number of random runs (0: all)")
	addDatabase(cmd, &database)
	addOutput(cmd, &form)
	return cmd
}

// newRepair rewrites the rows of one run.
func newRepair() *cobra.Command {
	var (
		tenant string
		run    id.Run
	)
	cmd := newOnDatabase(spec{
		use: "repair RUN", short: "Rewrite the rows of one run from its events",
		long: `Rewrite the rows of one run from its events, under the run's lock, while everything else
continues. It prints the differences; correct rows and events are not changed. A run whose events
cannot be read is refused.`,
		example: `  servo admin repair 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 --tenant acme`,
		flags:   func(cmd *cobra.Command) { cmd.Flags().StringVar(&tenant, "tenant", "", "tenant of the run") },
	}, openMigrated, func(ctx context.Context, s *store.Store, _ []string) (report verify.Report, err error) {
		owner, err := s.TenantByName(ctx, tenant)
		if err != nil {
			return report, err
		}
		return verify.Repair(ctx, s, owner, run)
	}, func(w io.Writer, report verify.Report) {
		if report.Clean() {
			fmt.Fprintln(w, "nothing to repair")
			return
		}
		report.Text(w)
	})
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if run, err = id.Parse[id.Run]("RUN", args[0]); err == nil && tenant == "" {
			return fault.New(fault.InvalidArgument, "is missing", fault.Field("--tenant"), fault.Remedy("name the tenant of the run"))
		}
		return err
	}
	return cmd
}
