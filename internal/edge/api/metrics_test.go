package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// requireMessage wants a message to be as it is written.
func requireMessage(t testing.TB, want, got proto.Message) {
	t.Helper()
	require.True(t, proto.Equal(want, got), "want %v\ngot  %v", want, got)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	b := setupConfigs(t)
	metrics := servov1.NewMetricsServiceClient(b.conn)
	ask := func(from, to string) (*servov1.TenantMetrics, error) {
		return metrics.GetTenantMetrics(t.Context(), &servov1.GetTenantMetricsRequest{Tenant: "acme", From: from, To: to, GroupBy: "provider"})
	}

	// one in time with labels, one that is late, and one without a promise
	spec := hourly()
	spec.Labels = map[string]string{"provider": "aws", "tier": "<1>"}
	b.create(t, "aws", spec)
	b.at(t, noon.Add(time.Hour))
	lease := b.one(t)
	b.db.SetClock(t, noon.Add(time.Hour+90*time.Second))
	b.report(t, complete(lease, nil))
	b.at(t, noon.Add(13*time.Hour)) // the next day
	b.trigger(t, "single")
	b.db.SetClock(t, noon.Add(14*time.Hour))
	_, err := b.engine.RecordLateStarts(t.Context(), 10)
	require.NoError(t, err)
	byHand := b.trigger(t, "single")
	_, err = b.runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: byHand.GetId()})
	require.NoError(t, err)

	{ // the runs of the last thirty days are added up, in all, by a label and by day
		got, err := ask("", "")
		require.NoError(t, err)
		requireMessage(t, &servov1.TenantMetrics{
			Tenant: "acme", From: "2027-01-03", To: "2027-02-01", TotalRuns: 2, SuccessfulRuns: 1, CancelledRuns: 1,
			AverageDuration: durationpb.New(45 * time.Second), SlaCompliance: 1, Breaches: 1,
			Labels: []string{"provider", "tier"},
			ByLabel: []*servov1.LabelMetrics{
				{TotalRuns: 1, CancelledRuns: 1, AverageDuration: durationpb.New(0), SlaCompliance: 1},
				{Value: "aws", TotalRuns: 1, SuccessfulRuns: 1, AverageDuration: durationpb.New(90 * time.Second), SlaCompliance: 1, Breaches: 1},
			},
			ByDay: []*servov1.DayMetrics{
				{Day: "2027-01-31", TotalRuns: 1, SuccessfulRuns: 1, AverageDuration: durationpb.New(90 * time.Second), SlaCompliance: 1},
				{Day: "2027-02-01", TotalRuns: 1, CancelledRuns: 1, AverageDuration: durationpb.New(0), SlaCompliance: 1, Breaches: 1},
			},
		}, got)
	}

	{ // any label groups them, and none does if none is asked for
		for label, want := range map[string][]string{"tier": {"", "<1>"}, "unknown": {""}, "": nil} {
			got, err := metrics.GetTenantMetrics(t.Context(), &servov1.GetTenantMetricsRequest{Tenant: "acme", GroupBy: label})
			require.NoError(t, err)
			var values []string
			runs := int64(0)
			for _, v := range got.GetByLabel() {
				values = append(values, v.GetValue())
				runs += v.GetTotalRuns()
			}
			require.Equal(t, want, values, label)
			require.True(t, label == "" || runs == got.GetTotalRuns(), "each run counts once")
		}
	}

	{ // the installation counts today's outcomes
		status, err := b.status.GetStatus(t.Context(), &servov1.GetStatusRequest{})
		require.NoError(t, err)
		requireMessage(t, &servov1.Today{Day: "2027-02-01", RunningRuns: 2, CompletedRuns: 1, SlaBreaches: 1, AverageDuration: durationpb.New(0)}, status.GetToday())
	}

	{ // a run that ends with a breach counts against the promise
		for range 2 {
			b.report(t, complete(b.one(t), nil))
		}
		got, err := ask("2027-02-01", "2027-02-01T23:00:00-05:00")
		require.NoError(t, err)
		require.Equal(t, "2027-02-02", got.GetTo(), "the day in UTC")
		require.InDelta(t, 2.0/3, got.GetSlaCompliance(), 1e-9)
		require.Zero(t, got.GetByLabel()[1].GetSlaCompliance())
		require.EqualValues(t, 3, got.GetTotalRuns())
	}

	{ // days without runs keep every promise
		got, err := ask("2026-01-01", "2026-01-01")
		require.NoError(t, err)
		requireMessage(t, &servov1.TenantMetrics{Tenant: "acme", From: "2026-01-01", To: "2026-01-01", SlaCompliance: 1}, got)
		other, err := metrics.GetTenantMetrics(t.Context(), &servov1.GetTenantMetricsRequest{Tenant: "brick"})
		require.NoError(t, err)
		require.Zero(t, other.GetTotalRuns(), "they are acme's")
	}

	{ // what cannot be read is named
		_, err := ask("yesterday", "")
		requireRefused(t, err, codes.InvalidArgument, "from")
		_, err = ask("", "2026-02-30")
		requireRefused(t, err, codes.InvalidArgument, "to")
		_, err = ask("2026-02-02", "2026-02-01")
		requireRefused(t, err, codes.InvalidArgument, "from")
		_, err = ask("2025-12-28", "2027-02-01")
		requireRefused(t, err, codes.InvalidArgument, "from")
		_, err = ask("2025-12-29", "2027-02-01")
		require.NoError(t, err, "400 days")
		_, err = metrics.GetTenantMetrics(t.Context(), &servov1.GetTenantMetricsRequest{Tenant: "missing"})
		requireRefused(t, err, codes.NotFound, "tenant")
	}
}
