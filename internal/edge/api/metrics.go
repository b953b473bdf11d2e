package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/store"
)

const (
	// defaultMetricsDays is the number of days of a request without a range.
	defaultMetricsDays = 30
	// maxMetricsDays bounds the days of a request.
	maxMetricsDays = 400
	// maxMetricsLabels bounds the labels and the values of one in an answer.
	maxMetricsLabels = 100
)

// metricsService implements servo.v1.MetricsService.
type metricsService struct{ *Server }

// GetTenantMetrics implements servov1.MetricsServiceServer.
func (s metricsService) GetTenantMetrics(ctx context.Context, req *servov1.GetTenantMetricsRequest) (*servov1.TenantMetrics, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	from, to, err := metricsDays(req.GetFrom(), req.GetTo(), now)
	if err != nil {
		return nil, err
	}
	days, err := s.store.TenantTotals(ctx, tenant, from, to)
	if err != nil {
		return nil, err
	}
	answer := metricsToProto(days, req.GetGroupBy())
	answer.Tenant, answer.From, answer.To = req.GetTenant(), from.Format(time.DateOnly), to.Format(time.DateOnly)
	return answer, nil
}

// metricsDays returns the first and the last day.
func metricsDays(first, last string, now time.Time) (from, to time.Time, err error) {
	if to, err = dayOf("to", last, now); err != nil {
		return from, to, err
	}
	if from, err = dayOf("from", first, to.AddDate(0, 0, 1-defaultMetricsDays)); err != nil {
		return from, to, err
	}
	switch days := int(to.Sub(from)/(24*time.Hour)) + 1; {
	case days < 1:
		return from, to, fault.New(fault.InvalidArgument, "is "+from.Format(time.DateOnly)+", after "+to.Format(time.DateOnly), fault.Field("from"),
			fault.Remedy("use a day that is not after the last one"))
	case days > maxMetricsDays:
		return from, to, fault.New(fault.InvalidArgument, fmt.Sprintf("is %d days before the last day; the limit is %d", days-1, maxMetricsDays-1), fault.Field("from"),
			fault.Remedy("request fewer days"), fault.Value("limit", maxMetricsDays))
	}
	return from, to, nil
}

// dayOf parses a day or a time, and returns the day in UTC.
func dayOf(field, text string, otherwise time.Time) (time.Time, error) {
	at := otherwise
	if text != "" {
		var err error
		if at, err = time.Parse(time.DateOnly, text); err != nil {
			at, err = time.Parse(time.RFC3339, text)
		}
		if err != nil || at.UTC().Year() < 1970 || at.UTC().Year() > 9999 {
			return time.Time{}, fault.New(fault.InvalidArgument, fmt.Sprintf("%.50q is not a day or a time", text), fault.Field(field),
				fault.Remedy("send a day such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z"))
		}
	}
	return at.UTC().Truncate(24 * time.Hour), nil
}

// metricsToProto sums up days, and groups them by the values of a label.
func metricsToProto(days []store.DayTotals, groupBy string) *servov1.TenantMetrics {
	var all store.Totals
	byDay, byLabel := map[string]*store.Totals{}, map[string]*store.Totals{}
	labels := map[string]bool{}
	add := func(to map[string]*store.Totals, key string, t store.Totals) {
		if to[key] == nil {
			to[key] = &store.Totals{}
		}
		to[key].Add(t)
	}
	for _, d := range days {
		all.Add(d.Totals)
		add(byDay, d.Day.Format(time.DateOnly), d.Totals)
		had := totalLabels(d.Labels)
		for label := range had {
			labels[label] = true
		}
		if groupBy != "" {
			add(byLabel, had[groupBy], d.Totals)
		}
	}
	answer := &servov1.TenantMetrics{
		TotalRuns: all.Ended, SuccessfulRuns: all.Succeeded, FailedRuns: all.Failed, TimedOutRuns: all.TimedOut, CancelledRuns: all.Cancelled,
		AverageDuration: average(all.Seconds, all.Started), SlaCompliance: compliance(all), Breaches: all.Breaches,
	}
	answer.Labels, _ = firstOf(labels)
	values, more := firstOf(byLabel)
	answer.MoreValues = more
	for _, value := range values {
		t := byLabel[value]
		answer.ByLabel = append(answer.ByLabel, &servov1.LabelMetrics{
			Value: value, TotalRuns: t.Ended, SuccessfulRuns: t.Succeeded, FailedRuns: t.Failed, TimedOutRuns: t.TimedOut, CancelledRuns: t.Cancelled,
			AverageDuration: average(t.Seconds, t.Started), SlaCompliance: compliance(*t), Breaches: t.Breaches,
		})
	}
	for _, day := range slices.Sorted(maps.Keys(byDay)) {
		t := byDay[day]
		answer.ByDay = append(answer.ByDay, &servov1.DayMetrics{
			Day: day, TotalRuns: t.Ended, SuccessfulRuns: t.Succeeded, FailedRuns: t.Failed, TimedOutRuns: t.TimedOut, CancelledRuns: t.Cancelled,
			AverageDuration: average(t.Seconds, t.Started), SlaCompliance: compliance(*t), Breaches: t.Breaches,
		})
	}
	return answer
}

// totalLabels parses the labels of totals.
func totalLabels(text string) map[string]string {
	var labels map[string]string
	if text == "" || json.Unmarshal([]byte(text), &labels) != nil { // the engine writes valid JSON
		return nil
	}
	return labels
}

// firstOf returns the first keys in order, and whether there are more.
func firstOf[V any](all map[string]V) (keys []string, more bool) {
	keys = slices.Sorted(maps.Keys(all))
	if len(keys) > maxMetricsLabels {
		return keys[:maxMetricsLabels], true
	}
	return keys, false
}

// average returns the average duration, rounded to the microsecond; nil without runs.
func average(seconds float64, n int64) *durationpb.Duration {
	if n == 0 {
		return nil
	}
	return durationpb.New(time.Duration(seconds / float64(n) * float64(time.Second)).Round(time.Microsecond))
}

// compliance returns the share of the runs that ended without a breach.
func compliance(t store.Totals) float64 {
	if t.Ended == 0 {
		return 1
	}
	return 1 - float64(t.Breached)/float64(t.Ended)
}
