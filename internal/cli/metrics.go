package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newTenantsMetrics shows what has become of a tenant's runs.
func newTenantsMetrics() *cobra.Command {
	var (
		r        remote
		from, to string
	)
	cmd := &cobra.Command{
		Use:   "metrics TENANT",
		Short: "Show what has become of a tenant's runs: in all, and by provider",
		Long: `Show how many runs of a tenant have ended, and how, over days in UTC.

SLA is the part of them without a breach: they began in time, and took no longer than they
may. BREACHES are those that happened in these days. PROVIDER is the label of that name that
the config of a run had when the run was made.`,
		Example: "  servo tenants metrics acme\n  servo tenants metrics acme --from 2026-01-01 --to 2026-01-31",
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			m, err := s.client.Metrics().GetTenantMetrics(ctx, &servov1.GetTenantMetricsRequest{Tenant: args[0], From: from, To: to})
			if err != nil {
				return err
			}
			return s.show(m, func(w io.Writer) { metricsText(w, m) })
		}),
	}
	cmd.Flags().StringVar(&from, "from", "", "the first day, such as 2026-01-31 (29 days before the last)")
	cmd.Flags().StringVar(&to, "to", "", "the last day (today)")
	addRemote(cmd, &r)
	return cmd
}

func metricsText(w io.Writer, m *servov1.TenantMetrics) {
	fmt.Fprintf(w, "runs of %s that ended from %s to %s\n\n", clean(m.GetTenant()), m.GetFrom(), m.GetTo())
	var t table
	t.add("PROVIDER", "RUNS", "SUCCEEDED", "FAILED", "TIMED OUT", "CANCELLED", "AVERAGE", "SLA", "BREACHES")
	row := func(name string, m interface {
		GetTotalRuns() int64
		GetSuccessfulRuns() int64
		GetFailedRuns() int64
		GetTimedOutRuns() int64
		GetCancelledRuns() int64
		GetAverageDuration() *durationpb.Duration
		GetSlaCompliance() float64
		GetBreaches() int64
	},
	) {
		number := func(n int64) string { return strconv.FormatInt(n, 10) }
		t.add(name, number(m.GetTotalRuns()), number(m.GetSuccessfulRuns()), number(m.GetFailedRuns()), number(m.GetTimedOutRuns()),
			number(m.GetCancelledRuns()), averageOf(m.GetAverageDuration()), fmt.Sprintf("%.2f %%", 100*m.GetSlaCompliance()), number(m.GetBreaches()))
	}
	row("all", m)
	for _, p := range m.GetByProvider() {
		row(orDash(clean(p.GetProvider())), p)
	}
	t.print(w)
}

// averageOf is a duration that may not be there.
func averageOf(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return d.AsDuration().Round(time.Millisecond).String()
}
