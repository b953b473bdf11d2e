package store

import (
	"context"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store/internal/db"
)

// HoursKept is how long sums by hour are kept: a week and the current day.
const HoursKept = 8 * 24 * time.Hour

// Hour counts the runs that ended and the breaches in an hour.
type Hour struct {
	At                                     time.Time // its beginning
	Succeeded, Failed, TimedOut, Cancelled int64

	Started  int64   // of the ended runs: those that had started, and have Seconds
	Seconds  float64 // from start to end
	Breaches int64   // of any run, in this hour
	Delay    float64 // the longest start delay of the ended runs, in seconds
}

// Hours reads the sums of a tenant, or of all together, from one hour to another, both included.
// It omits hours without runs and breaches. The sums are exact: deltas that are not merged yet are
// included.
func (s *Store) Hours(ctx context.Context, owner id.Tenant, from, to time.Time) ([]Hour, error) {
	from, to = from.UTC().Truncate(time.Hour), to.UTC().Truncate(time.Hour)
	if owner == (id.Tenant{}) {
		return read(ctx, s.Snapshot, func(ctx context.Context, tx *Tx) ([]Hour, error) {
			return list(func(r db.AllHoursRow) Hour { return hourOf(db.TenantHoursRow(r)) })(tx.q.AllHours(ctx, db.AllHoursParams{FromHour: from, ToHour: to}))
		})
	}
	return read(ctx, s.tenant(owner), func(ctx context.Context, tx *Tx) ([]Hour, error) {
		return list(hourOf)(tx.q.TenantHours(ctx, db.TenantHoursParams{TenantID: owner.UUID, FromHour: from, ToHour: to}))
	})
}

func hourOf(r db.TenantHoursRow) Hour {
	return Hour{
		At: r.Hour.UTC(), Succeeded: r.Succeeded, Failed: r.Failed, TimedOut: r.TimedOut, Cancelled: r.Cancelled,
		Started: r.Started, Seconds: r.Seconds, Breaches: r.Breaches, Delay: r.Delay,
	}
}

// ForgetHours deletes sums by hour that are too old to be shown. More is true if there may be
// others.
func (s *Store) ForgetHours(ctx context.Context) (n int64, more bool, err error) {
	err = s.engineAt(ctx, func(ctx context.Context, tx *Tx, now time.Time) error {
		n, err = tx.q.ForgetHours(ctx, db.ForgetHoursParams{Before: now.Add(-HoursKept), Most: forgottenAtOnce})
		return err
	})
	return n, n == forgottenAtOnce, err
}
