package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/store"
)

// sendTotals has the store send what looks for late runs and adds up those that have ended.
func (w *world) sendTotals(t testing.TB, keys []store.RunKey) {
	t.Helper()
	ctx := t.Context()
	w.undone(t, func(tx *Tx) {
		require.Len(t, must(tx.LateRuns(ctx, w.now.Add(time.Hour), probe))(t), probe)
		runs := must(tx.LockRuns(ctx, store.LockForMove, keys))(t)
		require.Empty(t, must(tx.BegunInTime(ctx, runs))(t))
		deltas := []store.RunDelta{{Tenant: runs[0].Tenant, Labels: "aws", Totals: store.Totals{Ended: 1, Succeeded: 1}}}
		require.NoError(t, tx.Apply(ctx, store.Changes{Now: w.now, Looked: runs, Deltas: deltas}))
		require.NoError(t, tx.Flush(ctx))
		require.Equal(t, probe, must(tx.MergeTotals(ctx, probe))(t))
	})
}

// delta is what a transaction with one run that has ended adds.
func delta(owner id.Tenant, labels string, seconds float64) store.RunDelta {
	return store.RunDelta{Tenant: owner, Labels: labels, Totals: store.Totals{Ended: 1, Failed: 1, Started: 1, Seconds: seconds, Breached: 1, Breaches: 2}}
}

func TestTotals(t *testing.T) {
	t.Parallel()

	t.Run("what is added up and what is not yet are read together, of one tenant and of the days asked for", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		mine, other := id.New[id.Tenant](w.mint), id.New[id.Tenant](w.mint)
		day := time.Date(2026, 3, 1, 23, 59, 59, 0, time.UTC)
		for i, at := range []time.Time{day, day, day.Add(time.Second), day.AddDate(0, 0, 5)} {
			w.engine(t, func(tx *Tx) {
				changes := store.Changes{Now: at, Deltas: []store.RunDelta{delta(mine, "aws", 2), delta(mine, "gcp", 1), delta(other, "aws", 100)}}
				require.NoError(t, tx.Apply(t.Context(), changes))
			})
			if i == 1 {
				require.Equal(t, 4, must(w.MergeTotals(t.Context(), 4))(t))
			}
		}
		read := func() []store.DayTotals { return must(w.TenantTotals(t.Context(), mine, day, day.AddDate(0, 0, 1)))(t) }
		before := read()
		sum := func(n int64, seconds float64) store.Totals {
			return store.Totals{Ended: n, Failed: n, Started: n, Seconds: seconds, Breached: n, Breaches: 2 * n}
		}
		first, second := day.Truncate(24*time.Hour), day.Truncate(24*time.Hour).AddDate(0, 0, 1)
		require.Equal(t, []store.DayTotals{
			{Day: first, Labels: "aws", Totals: sum(2, 4)},
			{Day: first, Labels: "gcp", Totals: sum(2, 2)},
			{Day: second, Labels: "aws", Totals: sum(1, 2)},
			{Day: second, Labels: "gcp", Totals: sum(1, 1)},
		}, before)
		require.Equal(t, 8, must(w.MergeTotals(t.Context(), 100))(t))
		require.Zero(t, must(w.MergeTotals(t.Context(), 100))(t))
		require.Equal(t, before, read(), "merging changes nothing")
		require.Equal(t, store.Today{Day: first, Ended: 6, Failed: 6, Breaches: 12, Started: 6, Seconds: 206}, must(w.Today(t.Context(), day))(t))
	})

	t.Run("a merge that does not commit has taken nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		mine := id.New[id.Tenant](w.mint)
		w.engine(t, func(tx *Tx) {
			require.NoError(t, tx.Apply(t.Context(), store.Changes{Now: w.now, Deltas: []store.RunDelta{delta(mine, "aws", 2)}}))
		})
		before := must(w.TenantTotals(t.Context(), mine, w.now, w.now))(t)
		killed := errors.New("killed")
		err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
			require.Equal(t, 1, must(tx.MergeTotals(ctx, 10))(t))
			require.Zero(t, must(w.MergeTotals(ctx, 10))(t), "another passes over what is taken")
			return killed
		})
		require.ErrorIs(t, err, killed)
		require.Equal(t, before, must(w.TenantTotals(t.Context(), mine, w.now, w.now))(t))
		require.Equal(t, 1, must(w.MergeTotals(t.Context(), 10))(t))
		require.Equal(t, before, must(w.TenantTotals(t.Context(), mine, w.now, w.now))(t))
	})
}

// TestTotalsPlans holds the reads of totals to their indexes: they must not grow with the days
// and the tenants that were not asked for.
func TestTotalsPlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(t, 2000)
	for name, send := range map[string]func(){
		"run_totals_pkey": func() { must(w.TenantTotals(t.Context(), tenantOf(t, w), w.now.AddDate(0, 0, -9), w.now))(t) },
		"run_totals_day":  func() { must(w.Today(t.Context(), w.now))(t) },
		"run_hours_pkey of a tenant": func() {
			require.Len(t, must(w.Hours(t.Context(), tenantOf(t, w), w.now.Add(-9*time.Hour), w.now))(t), 10)
		},
		"run_hours_pkey of all": func() { require.Len(t, must(w.Hours(t.Context(), id.Tenant{}, w.now.Add(-9*time.Hour), w.now))(t), 10) },
	} {
		sent := w.last(t, "", send)
		index, _, _ := strings.Cut(name, " ")
		for _, when := range []string{"no statistics", "some"} {
			conn := w.connection(t)
			asEngine(t, conn, func(tx pgx.Tx) {
				root := explain(t, tx, name, sent)
				used, rows := map[string]bool{}, 0.0
				root.walk(func(n *node) {
					used[n.Index] = true
					if n.Relation == "run_totals" || n.Relation == "run_hours" {
						require.NotEqual(t, "Seq Scan", n.NodeType)
						rows += n.RemovedByFilter
					}
				})
				require.True(t, used[index], "%s with %s", name, when)
				require.Zero(t, rows, "rows of totals that were read for nothing")
			})
			w.Exec(t, `ANALYZE`)
		}
	}
}

func tenantOf(t testing.TB, w *world) (owner id.Tenant) {
	t.Helper()
	require.NoError(t, w.Pool().QueryRow(t.Context(), `SELECT md5('tenant 1')::uuid`).Scan(&owner.UUID))
	return owner
}

// BenchmarkTotals reads the sums of a tenant and of a day among 10,000 tenants with five
// labels: 400 days of the tenant that is asked for, and 40 of the others.
func BenchmarkTotals(b *testing.B) {
	db := servotest.DB(b)
	day := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	db.Exec(b, `SET ROLE servo_engine;
		INSERT INTO servo.run_totals (tenant_id, day, labels, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches)
		SELECT md5('tenant ' || n)::uuid, '2026-03-01'::date - m, 'provider ' || p, 5, 4, 1, 0, 0, 5, 300, 1, 1
		FROM   generate_series(0, 9999) AS n, generate_series(0, 399) AS m, generate_series(1, 5) AS p WHERE m < 40 OR n = 0;
		INSERT INTO servo.run_deltas (tenant_id, day, labels, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches)
		SELECT md5('tenant ' || n)::uuid, '2026-03-01', 'provider 1', 1, 1, 0, 0, 0, 1, 60, 0, 0 FROM generate_series(0, 9999) AS n;
		RESET ROLE`)
	db.Exec(b, `VACUUM ANALYZE servo.run_totals`)
	var owner id.Tenant
	require.NoError(b, db.Pool().QueryRow(b.Context(), `SELECT md5('tenant 0')::uuid`).Scan(&owner.UUID))
	b.Run("400 days of a tenant", func(b *testing.B) {
		for b.Loop() {
			require.Len(b, must(db.TenantTotals(b.Context(), owner, day.AddDate(0, 0, -399), day))(b), 2000)
		}
	})
	b.Run("today of all", func(b *testing.B) {
		for b.Loop() {
			require.EqualValues(b, 260_000, must(db.Today(b.Context(), day))(b).Ended)
		}
	})
}
