package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// InlineQuestion asks whether tasks that a transaction has made ready may be queued, and
// leased, by that transaction itself.
type InlineQuestion struct {
	Duty       string
	Tasks      []run.Task // without an asset if it is not known
	Claims     []id.Claim // that could take them
	Alive      time.Duration
	MostQueued int
}

// Inline is the answer: for as long as the transaction lasts nobody else admits.
type Inline struct {
	Held       bool // false if somebody else admits just now: then nothing else was read
	Dispatches bool // claims may take tasks
	Shares     []InlineShare
	Tasks      []InlineTask // in the order of the question
	Claims     []bool       // which of them may take tasks, in the order of the question
}

// InlineShare is a tenant in a pool.
type InlineShare struct {
	ReadyShare

	Backlog bool // somebody waits for the pool already
}

// InlineTask is a task of the question.
type InlineTask struct {
	ReadyTask

	Token int64 // for its lease
}

// mostReady is among how many tenants and pools with ready tasks it is looked for a backlog.
const mostReady = 20

// Inline takes the admission duty for this transaction, without waiting for anybody, and reads
// what a round of admission would for these tasks. It is one round trip.
func (tx *Tx) Inline(ctx context.Context, q InlineQuestion) (Inline, error) {
	shares := sharesOf(q.Tasks)
	claims := column(q.Claims, func(c id.Claim) uuid.UUID { return c.UUID })
	nths := make([]int32, len(q.Tasks))
	for i := range nths {
		nths[i] = int32(i)
	}
	found, err := readInline(ctx, tx.tx, db.HoldInlineParams{Duty: q.Duty, Keys: column(q.Claims, claimLock)},
		db.InlineSharesParams{
			TenantIds: column(shares, ShareKey.tenantID), Pools: column(shares, ShareKey.pool),
			Alive: q.Alive.Seconds(), MostQueued: int32(q.MostQueued), MostReady: mostReady, //nolint:gosec // a queue length
		},
		db.InlineTasksParams{
			Nths: nths, TenantIds: column(q.Tasks, func(t run.Task) uuid.UUID { return t.Tenant.UUID }),
			RunIds:  column(q.Tasks, func(t run.Task) uuid.UUID { return t.Run.UUID }),
			TaskIds: column(q.Tasks, func(t run.Task) uuid.UUID { return t.ID.UUID }),
			Assets:  column(q.Tasks, func(t run.Task) string { return t.Asset }),
		}, claims)
	if err != nil || !found.Hold.Held {
		return Inline{}, err
	}
	answer := Inline{Held: true, Dispatches: found.Hold.Dispatches, Claims: found.Hold.Claims}
	for _, r := range found.Shares {
		answer.Dispatches = answer.Dispatches && !r.DispatchOff
		answer.Shares = append(answer.Shares, InlineShare{Backlog: r.Backlog, ReadyShare: ReadyShare{
			ShareKey: ShareKey{Tenant: id.Of[id.Tenant](r.TenantID), Pool: r.Pool},
			PoolRoom: PoolRoom{
				PoolClock: r.PoolClock, PoolMaxInFlight: int(r.PoolMaxConcurrency), PoolInFlight: int(r.PoolInFlight),
				PoolQueued: int(r.PoolQueued), PoolWorkers: int(r.PoolWorkers), PoolSlots: int(r.PoolSlots), PoolSets: r.PoolSets,
			},
			Weight: r.FairnessWeight, EvenAt: r.EvenAt,
			MaxInFlight: int(r.MaxConcurrentTasks), InFlight: int(r.TenantInFlight), Pauses: r.Pauses,
		}})
	}
	answer.Tasks = make([]InlineTask, len(q.Tasks))
	for _, r := range found.Tasks {
		t := q.Tasks[r.Nth]
		t.Asset = r.Asset
		answer.Tasks[r.Nth] = InlineTask{ReadyTask: ReadyTask{Task: t, Seconds: r.Seconds}, Token: r.Token}
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

// Flush writes what was collected so far, so that reads of this transaction see it.
func (tx *Tx) Flush(ctx context.Context) error { return tx.writes.flush(ctx, tx.tx) }
