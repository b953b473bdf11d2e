package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
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
		by       string
	)
	cmd := &cobra.Command{
		Use:   "metrics TENANT",
		Short: "Show what has become of a tenant's runs: in all, and by a label",
		Long: `Show how many runs of a tenant have ended, and how, over days in UTC.

SLA is the part of them without a breach: they began in time, and took no longer than they
may. BREACHES are those that happened in these days. --by adds a row for each value of a label, as
the config of a run had it when the run was made.`,
		Example: "  servo tenants metrics acme\n  servo tenants metrics acme --from 2026-01-01 --to 2026-01-31\n  servo tenants metrics acme --by provider",
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			m, err := s.client.Metrics().GetTenantMetrics(ctx, &servov1.GetTenantMetricsRequest{Tenant: args[0], From: from, To: to, GroupBy: by})
			if err != nil {
				return err
			}
			return s.show(m, func(w io.Writer) { metricsText(w, m, by) })
		}),
	}
	cmd.Flags().StringVar(&from, "from", "", "the first day, such as 2026-01-31 (29 days before the last)")
	cmd.Flags().StringVar(&to, "to", "", "the last day (today)")
	cmd.Flags().StringVar(&by, "by", "", "a label of configs: show the sums for each of its values, such as provider")
	addRemote(cmd, &r)
	return cmd
}

func metricsText(w io.Writer, m *servov1.TenantMetrics, by string) {
	fmt.Fprintf(w, "runs of %s that ended from %s to %s\n\n", clean(m.GetTenant()), m.GetFrom(), m.GetTo())
	var t table
	t.add(strings.ToUpper(cmp.Or(clean(by), "label")), "RUNS", "SUCCEEDED", "FAILED", "TIMED OUT", "CANCELLED", "AVERAGE", "SLA", "BREACHES")
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
	for _, value := range m.GetByLabel() {
		row(orDash(clean(value.GetValue())), value)
	}
	t.print(w)
	if m.GetMoreValues() {
		fmt.Fprintln(w, "\nThere are more values than are shown.")
	}
	if by == "" && len(m.GetLabels()) > 0 {
		fmt.Fprintf(w, "\nShow each value of a label with --by: %s.\n", clean(strings.Join(m.GetLabels(), ", ")))
	}
}

// averageOf is a duration that may not be there.
func averageOf(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return d.AsDuration().Round(time.Millisecond).String()
}
