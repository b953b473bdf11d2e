package store

import (
	"context"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Live counts the waiting and running tasks and runs at one moment, for operators. Each table is
// counted up to MaxDepth.
type Live struct {
	At     time.Time
	Depths []TenantDepth         // of the tenants that have the most tasks
	All    map[run.TaskState]int // of all tenants together
	Quotas []QuotaUsage          // those closest to their limit
	Duties []DutyView

	RunningRuns, PendingRuns, Locks int
	// NearestLock is the lock whose run is timed out next.
	NearestLock *LockAge
	// Alerts counts open alerts by kind, Messages the undelivered messages about alerts.
	Alerts   map[alert.Kind]int
	Messages int
	Feed     FeedState
}

// TenantDepth is how many live tasks a tenant has, by state.
type TenantDepth struct {
	Tenant id.Tenant
	Tasks  map[run.TaskState]int
}

// QuotaUsage is how much of a quota is used.
type QuotaUsage struct {
	Tenant id.Tenant
	Quota  string
	Used   int64
	Limit  int
}

// LockAge is the time since when a lock is held, and the time limit of its run.
type LockAge struct{ LockedAt, DueAt time.Time }

// nearestLocks is how many runs are read to find the lock that is due next.
const nearestLocks = 1000

// Live reads the counts, with separate counts for up to tenants tenants.
func (s *Store) Live(ctx context.Context, tenants int) (Live, error) {
	return s.live(ctx, tenants, MaxDepth)
}

func (s *Store) live(ctx context.Context, tenants int, most int32) (Live, error) {
	var live Live
	top := int32(tenants) //nolint:gosec // a small number
	err := s.Snapshot(ctx, func(ctx context.Context, tx *Tx) (err error) {
		live = Live{All: map[run.TaskState]int{}}
		if live.At, err = tx.Clock(ctx); err != nil {
			return err
		}
		depths, err := tx.q.TenantDepths(ctx, db.TenantDepthsParams{Most: most, Tenants: top})
		if err != nil {
			return err
		}
		for _, d := range depths {
			live.Depths = append(live.Depths, TenantDepth{
				Tenant: id.Of[id.Tenant](d.TenantID), Tasks: byState(d.Pending, d.Ready, d.Queued, d.Dispatched, d.Running, d.RetryWait),
			})
			live.All = byState(d.AllPending, d.AllReady, d.AllQueued, d.AllDispatched, d.AllRunning, d.AllRetryWait)
		}
		usages, err := tx.q.QuotaUsages(ctx, db.QuotaUsagesParams{Most: most, Usages: top})
		if err != nil {
			return err
		}
		live.Quotas = column(usages, func(u db.QuotaUsagesRow) QuotaUsage {
			return QuotaUsage{Tenant: id.Of[id.Tenant](u.TenantID), Quota: u.Quota, Used: u.Used, Limit: int(u.QuotaLimit)}
		})
		if err := tx.liveAlerts(ctx, &live, most); err != nil {
			return err
		}
		return tx.liveRuns(ctx, &live, most)
	})
	if err == nil {
		live.Feed, err = s.FeedState(ctx)
	}
	return live, err
}

func (tx *Tx) liveAlerts(ctx context.Context, live *Live, most int32) error {
	open, err := tx.q.AlertCounts(ctx, most)
	if err != nil {
		return err
	}
	live.Alerts = make(map[alert.Kind]int, len(open))
	for _, kind := range open {
		live.Alerts[alert.Kind(kind.Kind)] = int(kind.Open)
	}
	waiting, err := tx.q.MessagesWaiting(ctx, most)
	live.Messages = int(waiting)
	return err
}

func (tx *Tx) liveRuns(ctx context.Context, live *Live, most int32) error {
	counts, err := tx.q.LiveRunCounts(ctx, most)
	if err != nil {
		return err
	}
	live.RunningRuns, live.PendingRuns, live.Locks = int(counts.Running), int(counts.Pending), int(counts.Locks)
	nearest, err := tx.q.NearestLock(ctx, nearestLocks)
	if err != nil {
		return err
	}
	for _, l := range nearest {
		live.NearestLock = &LockAge{LockedAt: l.CreatedAt, DueAt: l.DueAt}
	}
	rows, err := tx.q.Duties(ctx)
	live.Duties = column(rows, func(r db.DutiesRow) DutyView {
		return DutyView{Duty: Duty{Name: r.Name, Holder: r.Holder, Epoch: r.Epoch}, ExpiresAt: r.ExpiresAt}
	})
	return err
}

func byState(pending, ready, queued, dispatched, running, retryWait int32) map[run.TaskState]int {
	return map[run.TaskState]int{
		run.Pending: int(pending), run.Ready: int(ready), run.Queued: int(queued),
		run.Dispatched: int(dispatched), run.Running: int(running), run.RetryWait: int(retryWait),
	}
}
