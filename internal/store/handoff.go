package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// HandoffQuestion names tasks that a transaction has made ready and wants to queue and lease itself.
type HandoffQuestion struct {
	Duty       string
	Tasks      []run.Task
	Claims     []id.Claim // that could get them
	Alive      time.Duration
	MostQueued int
}

// Handoff is what a transaction may hand off. No other transaction admits until it has ended.
type Handoff struct {
	Held       bool // false if another transaction admits: then the rest was not read
	Dispatches bool // dispatch is not paused
	Shares     []HandoffShare
	Tasks      []HandoffTask // in the order of the question
	Claims     []bool        // whether each may get tasks, in the order of the question
}

// HandoffShare is a tenant in a pool.
type HandoffShare struct {
	ReadyShare

	Backlog bool // tasks wait for the pool
}

// HandoffTask is a task of the question.
type HandoffTask struct {
	ReadyTask

	Token int64 // for its lease
}

// mostReady is how many tenants and pools with ready tasks are searched for a backlog.
const mostReady = 20

// BeginHandoff takes the admission duty for this transaction, without waiting for a lock, and reads
// what a round of admission reads for these tasks. It is one round trip.
func (tx *Tx) BeginHandoff(ctx context.Context, q HandoffQuestion) (Handoff, error) {
	shares := sharesOf(q.Tasks)
	claims := column(q.Claims, func(c id.Claim) uuid.UUID { return c.UUID })
	found, err := readHandoff(ctx, tx.tx, db.HoldHandoffParams{Duty: q.Duty, Keys: column(q.Claims, claimLock)},
		db.HandoffSharesParams{
			TenantIds: column(shares, ShareKey.tenantID), Pools: column(shares, ShareKey.pool),
			Alive: q.Alive.Seconds(), MostQueued: int32(q.MostQueued), MostReady: mostReady, //nolint:gosec // a queue length
		},
		db.HandoffTasksParams{
			Nths: ordinals(len(q.Tasks)), TenantIds: column(q.Tasks, func(t run.Task) uuid.UUID { return t.Tenant.UUID }),
			Assets: column(q.Tasks, func(t run.Task) string { return t.Asset }),
		}, claims)
	if err != nil || !found.Hold.Held {
		return Handoff{}, err
	}
	answer := Handoff{Held: true, Dispatches: found.Hold.Dispatches, Claims: found.Hold.Claims}
	for _, r := range found.Shares {
		answer.Dispatches = answer.Dispatches && !r.DispatchOff
		answer.Shares = append(answer.Shares, HandoffShare{Backlog: r.Backlog, ReadyShare: ReadyShare{
			ShareKey: ShareKey{Tenant: id.Of[id.Tenant](r.TenantID), Pool: r.Pool},
			PoolRoom: PoolRoom{
				PoolClock: r.PoolClock, PoolMaxInFlight: int(r.PoolMaxConcurrency), PoolInFlight: int(r.PoolInFlight),
				PoolQueued: int(r.PoolQueued), PoolWorkers: int(r.PoolWorkers), PoolCapacity: int(r.PoolSlots), PoolSets: r.PoolSets,
			},
			Weight: r.FairnessWeight, EvenAt: r.EvenAt,
			MaxInFlight: int(r.MaxConcurrentTasks), InFlight: int(r.TenantInFlight), Pauses: r.Pauses,
		}})
	}
	answer.Tasks = make([]HandoffTask, len(q.Tasks))
	for _, r := range found.Tasks {
		answer.Tasks[r.Nth] = HandoffTask{ReadyTask: ReadyTask{Task: q.Tasks[r.Nth], Seconds: r.Seconds}, Token: r.Token}
	}
	for _, repeat := range found.Repeats {
		for i, c := range claims {
			answer.Claims[i] = answer.Claims[i] && c != repeat
		}
	}
	return answer, nil
}

// sharesOf are the tenants and pools of tasks, each once.
func sharesOf(tasks []run.Task) []ShareKey {
	seen := make(map[ShareKey]bool, len(tasks))
	var keys []ShareKey
	for _, t := range tasks {
		if key := (ShareKey{Tenant: t.Tenant, Pool: t.Pool}); !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// Flush writes the collected changes, so that reads of this transaction see them.
func (tx *Tx) Flush(ctx context.Context) error { return tx.writes.flush(ctx, tx.tx) }
