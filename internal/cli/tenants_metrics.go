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

func newTenantsMetrics() *cobra.Command {
	var from, to, by string
	return newShow(spec{
		use: "metrics TENANT", short: "Show the results of a tenant's runs",
		long: `Count the runs of a tenant that have ended, by result, over days in UTC.

SLA is the part of them without a breach: they started in time, and did not exceed their maximum
duration. BREACHES are those that happened in these days. --by adds a row for each value of a
label, as the config of a run had it when the run was created.`,
		example: "  servo tenants metrics acme\n  servo tenants metrics acme --from 2026-01-01 --to 2026-01-31\n  servo tenants metrics acme --by provider",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&from, "from", "", "first day, such as 2026-01-31 (default: 29 days before the last)")
			cmd.Flags().StringVar(&to, "to", "", "last day, such as 2026-01-31 (default: today)")
			cmd.Flags().StringVar(&by, "by", "", "label of configs to group by, such as provider")
		},
	}, func(ctx context.Context, s *session) (*servov1.TenantMetrics, error) {
		return s.client.Metrics().GetTenantMetrics(ctx, &servov1.GetTenantMetricsRequest{Tenant: s.args[0], From: from, To: to, GroupBy: by})
	}, func(w io.Writer, _ *session, m *servov1.TenantMetrics) { metricsText(w, m, by) })
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

// averageOf is a duration, or - for none.
func averageOf(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return d.AsDuration().Round(time.Millisecond).String()
}
