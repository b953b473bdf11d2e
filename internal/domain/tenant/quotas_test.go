package tenant_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/tenant"
)

func TestQuotasValidate(t *testing.T) {
	t.Parallel()

	t.Run("the defaults and no limits are valid", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, tenant.DefaultQuotas().Validate())
		require.NoError(t, tenant.NoLimits().Validate())
	})

	t.Run("a tenant may be isolated", func(t *testing.T) {
		t.Parallel()
		q := tenant.DefaultQuotas()
		q.MaxConcurrentTasks = 0
		require.NoError(t, q.Validate())
	})

	for field, spoil := range map[string]func(*tenant.Quotas){
		"max_concurrent_tasks": func(q *tenant.Quotas) { q.MaxConcurrentTasks = -2 },
		"max_queued_tasks":     func(q *tenant.Quotas) { q.MaxQueuedTasks = math.MaxInt32 },
		"max_concurrent_runs":  func(q *tenant.Quotas) { q.MaxConcurrentRuns = -2 },
		"max_daily_runs":       func(q *tenant.Quotas) { q.MaxDailyRuns = -7 },
		"max_run_duration":     func(q *tenant.Quotas) { q.MaxRunDuration = 1500 * time.Millisecond },
		"max_tasks_per_run":    func(q *tenant.Quotas) { q.MaxTasksPerRun = 0 },
		"max_backfill_runs":    func(q *tenant.Quotas) { q.MaxBackfillRuns = -2 },
		"fairness_weight":      func(q *tenant.Quotas) { q.FairnessWeight = math.NaN() },
		"zone":                 func(q *tenant.Quotas) { q.Zone = "Mars/Olympus" },
	} {
		t.Run("a wrong "+field+" is named, with what helps", func(t *testing.T) {
			t.Parallel()
			q := tenant.DefaultQuotas()
			spoil(&q)
			f, ok := fault.As(q.Validate())
			require.True(t, ok)
			require.Equal(t, fault.InvalidArgument, f.Code)
			require.Equal(t, field, f.Violation.Field)
			require.NotEmpty(t, f.Violation.Remedy)
			require.Empty(t, f.Others)
		})
	}

	for _, zone := range []string{"", "Local", "../etc/passwd"} {
		t.Run("the zone "+zone+" does not exist", func(t *testing.T) {
			t.Parallel()
			q := tenant.DefaultQuotas()
			q.Zone = zone
			require.Error(t, q.Validate())
		})
	}

	t.Run("all mistakes are reported at once", func(t *testing.T) {
		t.Parallel()
		f, ok := fault.As(tenant.Quotas{MaxConcurrentTasks: -5}.Validate())
		require.True(t, ok)
		require.Len(t, f.Violations(), 5)
	})
}

func TestDay(t *testing.T) {
	t.Parallel()
	day := func(t *testing.T, zone, now string) (from, until string) {
		t.Helper()
		at, err := time.Parse(time.RFC3339, now)
		require.NoError(t, err)
		f, u, err := tenant.Quotas{Zone: zone}.Day(at)
		require.NoError(t, err)
		return f.UTC().Format(time.RFC3339), u.UTC().Format(time.RFC3339)
	}
	for name, c := range map[string]struct{ zone, now, from, until string }{
		"of UTC":                                   {"UTC", "2026-11-15T23:59:59Z", "2026-11-15T00:00:00Z", "2026-11-16T00:00:00Z"},
		"of a zone is not that of UTC":             {"Asia/Tokyo", "2026-11-15T23:00:00Z", "2026-11-15T15:00:00Z", "2026-11-16T15:00:00Z"},
		"with a change of clocks has 25 hours":     {"Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		"whose midnight is skipped begins later":   {"Africa/Cairo", "2026-04-24T12:00:00Z", "2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"},
		"with two midnights begins with the first": {"America/Havana", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
	} {
		t.Run("a day "+name, func(t *testing.T) {
			t.Parallel()
			from, until := day(t, c.zone, c.now)
			require.Equal(t, c.from, from)
			require.Equal(t, c.until, until)
		})
	}

	t.Run("now is always within its day, and a day has 23 to 25 hours", func(t *testing.T) {
		t.Parallel()
		zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Chatham", "Australia/Lord_Howe", "Africa/Cairo", "America/Havana", "Asia/Beirut"}
		rapid.Check(t, func(t *rapid.T) {
			q := tenant.Quotas{Zone: rapid.SampledFrom(zones).Draw(t, "zone")}
			now := time.Unix(rapid.Int64Range(1_600_000_000, 2_000_000_000).Draw(t, "now"), 0)
			from, until, err := q.Day(now)
			require.NoError(t, err)
			require.False(t, now.Before(from))
			require.True(t, now.Before(until))
			require.GreaterOrEqual(t, until.Sub(from), 23*time.Hour)
			require.LessOrEqual(t, until.Sub(from), 25*time.Hour)
			again, _, err := q.Day(from)
			require.NoError(t, err)
			require.True(t, again.Equal(from), "a day begins with itself")
			before, next, err := q.Day(from.Add(-time.Second))
			require.NoError(t, err)
			require.True(t, next.Equal(from), "days follow each other: %v, %v", before, next)
		})
	})
}

func TestQuotasFold(t *testing.T) {
	t.Parallel()
	step := func(t *testing.T, en tenant.Entity, body event.Body) tenant.Entity {
		t.Helper()
		next, err := en.Evolve(event.Event{Tenant: id.Tenant{}, Version: en.Version + 1, Body: body})
		require.NoError(t, err)
		return next
	}

	t.Run("a tenant from before quotas has the defaults of their first day", func(t *testing.T) {
		t.Parallel()
		var created tenant.Created
		require.NoError(t, json.Unmarshal([]byte(`{"name": "acme"}`), &created))
		require.Equal(t, tenant.DefaultQuotas(), step(t, tenant.Entity{}, created).Quotas)
	})

	t.Run("quotas are those of the last event", func(t *testing.T) {
		t.Parallel()
		first, second := tenant.NoLimits(), tenant.DefaultQuotas()
		second.Zone = "Europe/Berlin"
		en := step(t, tenant.Entity{}, tenant.Created{Name: "acme", Quotas: &first})
		require.Equal(t, first, en.Quotas)
		en = step(t, en, tenant.QuotasSet{Quotas: second})
		require.Equal(t, second, en.Quotas)
		require.Equal(t, "acme", en.Name)
	})
}
