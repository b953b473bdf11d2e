package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

func isLate(r run.Run) bool { return r.Late }

// The bits of live_runs.breaches.
const (
	BreachedStart     int16 = 1 // it began late, or has not begun
	BreachedExecution int16 = 2 // it took too long
)

// BreachesOf returns the breaches of a run as the bits of live_runs.breaches.
func BreachesOf(r run.Run) (breaches int16) {
	if r.Late {
		breaches |= BreachedStart
	}
	if r.TimedOut {
		breaches |= BreachedExecution
	}
	return breaches
}

// LateRuns returns runs that should have begun by now, which are checked again under their locks.
func (tx *Tx) LateRuns(ctx context.Context, now time.Time, most int) ([]RunKey, error) {
	return list(func(r db.LateRunsRow) RunKey { return runKey(r.TenantID, r.RunID) })(tx.q.LateRuns(ctx, db.LateRunsParams{Now: now, Most: int32(most)})) //nolint:gosec // a batch size
}

// BegunInTime returns which runs had a task that was started in time.
func (tx *Tx) BegunInTime(ctx context.Context, runs []run.Run) (map[id.Run]bool, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	return index(func(r uuid.UUID) (id.Run, bool) {
		return id.Of[id.Run](r), true
	})(tx.q.BegunInTime(ctx, db.BegunInTimeParams{
		TenantIds: column(runs, func(r run.Run) uuid.UUID { return r.Tenant.UUID }),
		RunIds:    column(runs, func(r run.Run) uuid.UUID { return r.ID.UUID }),
		StartBys:  column(runs, func(r run.Run) time.Time { return r.StartBy }),
	}))
}

// LockStarts waits for transactions that start a task of these runs, and excludes others until the
// transaction ends. It returns the pools of the queued tasks that it locked.
func (tx *Tx) LockStarts(ctx context.Context, runs []run.Run) (pools []string, err error) {
	ids := column(runs, func(r run.Run) uuid.UUID { return r.ID.UUID })
	queued, err := tx.q.SweepQueued(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, q := range queued {
		pools = append(pools, q.Pool)
	}
	_, err = tx.q.SweepLeases(ctx, ids)
	return pools, err
}

// lookedLate writes that the start of runs was checked.
func (tx *Tx) lookedLate(ctx context.Context, c Changes) error {
	rows := c.Looked
	return tx.writes.write("looked late", len(rows), func(q *db.Queries) error {
		return q.LookedLate(ctx, db.LookedLateParams{
			TenantIds: column(rows, func(r run.Run) uuid.UUID { return r.Tenant.UUID }),
			RunIds:    column(rows, func(r run.Run) uuid.UUID { return r.ID.UUID }),
			Breaches:  column(rows, BreachesOf),
		})
	})
}

// Totals are sums of ended runs and breaches.
type Totals struct {
	Ended, Succeeded, Failed, TimedOut, Cancelled int64

	Started  int64   // of the ended runs: those that had started, and have Seconds
	Seconds  float64 // from start to end
	Breached int64   // runs that ended with a breach
	Breaches int64   // of any run, on this day
}

// Add adds other sums.
func (t *Totals) Add(o Totals) {
	t.Ended += o.Ended
	t.Succeeded += o.Succeeded
	t.Failed += o.Failed
	t.TimedOut += o.TimedOut
	t.Cancelled += o.Cancelled
	t.Started += o.Started
	t.Seconds += o.Seconds
	t.Breached += o.Breached
	t.Breaches += o.Breaches
}

// RunDelta is an addition to the totals of a tenant and a set of labels on a day.
type RunDelta struct {
	Totals

	Tenant id.Tenant
	Labels string  // of the config, as in run.Run
	Delay  float64 // the longest start delay of these runs, in seconds
}

func (tx *Tx) insertRunDeltas(ctx context.Context, c Changes) error {
	rows := c.Deltas
	of := func(count func(RunDelta) int64) []int32 {
		return column(rows, func(d RunDelta) int32 { return int32(count(d)) }) //nolint:gosec // a batch size
	}
	return tx.writes.write("insert run_deltas", len(rows), func(q *db.Queries) error {
		return q.InsertRunDeltas(ctx, db.InsertRunDeltasParams{
			Day:        dayOf(c.Now),
			Hour:       int16(c.Now.UTC().Hour()), //nolint:gosec // of a day
			TenantIds:  column(rows, func(d RunDelta) uuid.UUID { return d.Tenant.UUID }),
			LabelSets:  column(rows, func(d RunDelta) string { return d.Labels }),
			Endeds:     of(func(d RunDelta) int64 { return d.Ended }),
			Succeededs: of(func(d RunDelta) int64 { return d.Succeeded }),
			Faileds:    of(func(d RunDelta) int64 { return d.Failed }),
			TimedOuts:  of(func(d RunDelta) int64 { return d.TimedOut }),
			Cancelleds: of(func(d RunDelta) int64 { return d.Cancelled }),
			Starteds:   of(func(d RunDelta) int64 { return d.Started }),
			Seconds:    column(rows, func(d RunDelta) float64 { return d.Seconds }),
			Breacheds:  of(func(d RunDelta) int64 { return d.Breached }),
			Breaches:   of(func(d RunDelta) int64 { return d.Breaches }),
			Delays:     column(rows, func(d RunDelta) float64 { return d.Delay }),
		})
	})
}

// dayOf is the day of a time in UTC.
func dayOf(t time.Time) pgtype.Date {
	year, month, day := t.UTC().Date()
	return pgtype.Date{Time: time.Date(year, month, day, 0, 0, 0, 0, time.UTC), Valid: true}
}

// MergeTotals adds up to most deltas to the totals by day and by hour, and returns their number. Any
// server may call it at any time.
func (s *Store) MergeTotals(ctx context.Context, most int) (int, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (int, error) {
		return tx.MergeTotals(ctx, most)
	})
}

// MergeTotals is Store.MergeTotals inside a transaction.
func (tx *Tx) MergeTotals(ctx context.Context, most int) (int, error) {
	taken, err := tx.q.MergeRunDeltas(ctx, int32(most)) //nolint:gosec // a batch size
	return int(taken), err
}

// DayTotals are the totals of a day in UTC and a set of labels.
type DayTotals struct {
	Totals

	Day    time.Time
	Labels string
}

// TenantTotals reads the sums of a tenant from one day to another, both included, by day and
// labels. They are exact: deltas that are not merged yet are included.
func (s *Store) TenantTotals(ctx context.Context, owner id.Tenant, from, to time.Time) ([]DayTotals, error) {
	return read(ctx, s.tenant(owner), func(ctx context.Context, tx *Tx) ([]DayTotals, error) {
		return list(func(r db.TenantTotalsRow) DayTotals {
			return DayTotals{Day: r.Day.Time, Labels: r.Labels, Totals: Totals{
				Ended: r.Ended, Succeeded: r.Succeeded, Failed: r.Failed, TimedOut: r.TimedOut, Cancelled: r.Cancelled,
				Started: r.Started, Seconds: r.Seconds, Breached: r.Breached, Breaches: r.Breaches,
			}}
		})(tx.q.TenantTotals(ctx, db.TenantTotalsParams{TenantID: owner.UUID, FromDay: dayOf(from), ToDay: dayOf(to)}))
	})
}

// Today counts the runs of all tenants on a day in UTC.
type Today struct {
	Day      time.Time
	Ended    int64
	Failed   int64 // FAILED and TIMED_OUT
	Breaches int64
	Started  int64 // of the ended runs: those that had started, and have Seconds
	Seconds  float64
	// Pending and Running are counted up to MaxDepth.
	Pending, Running int64
}

// Today reads the counts of the day of a time.
func (s *Store) Today(ctx context.Context, now time.Time) (Today, error) {
	return read(ctx, s.Snapshot, func(ctx context.Context, tx *Tx) (Today, error) {
		row, err := tx.q.TodayTotals(ctx, db.TodayTotalsParams{Day: dayOf(now), Most: MaxDepth})
		return Today{
			Day: dayOf(now).Time, Ended: row.Ended, Failed: row.Failed, Breaches: row.Breaches, Started: row.Started, Seconds: row.Seconds,
			Pending: row.Pending, Running: row.Running,
		}, err
	})
}

// TotalsRow is a sum that differs from the runs.
type TotalsRow = db.VerifyTotalsRow

// WrongTotals finds the sums that differ from the runs and their breaches, of one tenant or of all.
func (tx *Tx) WrongTotals(ctx context.Context, tenant *id.Tenant, each func(TotalsRow) error) error {
	first, _ := bounds(tenant)
	return stream(ctx, tx, each, db.VerifyTotals, tenant == nil, first)()
}
