package store

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/fair"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Explain reads one moment in two roles: mine as the tenant, which sees its own rows only, then all
// as the engine, which sees the rows of all tenants. It writes nothing and locks nothing.
func (s *Store) Explain(ctx context.Context, owner id.Tenant, mine, all func(ctx context.Context, tx *Tx) error) error {
	return s.tenantSnapshot(owner)(ctx, func(ctx context.Context, tx *Tx) error {
		if err := mine(ctx, tx); err != nil {
			return err
		}
		if err := tx.q.EnterEngine(ctx); err != nil {
			return err
		}
		return all(ctx, tx)
	})
}

// Run reads a run as its tenant.
func (tx *Tx) Run(ctx context.Context, key RunKey) (RunView, error) { return tx.getRun(ctx, key) }

// Task reads a task as its tenant.
func (tx *Tx) Task(ctx context.Context, key TaskKey) (TaskView, error) { return tx.getTask(ctx, key) }

// UnmetUpstream returns up to most upstreams of a task that have not succeeded, in the order of the
// plan.
func (tx *Tx) UnmetUpstream(ctx context.Context, key TaskKey, most int) ([]UpstreamTask, error) {
	return list(func(r db.UnmetUpstreamRow) UpstreamTask {
		return UpstreamTask{
			Task: id.Of[id.Task](r.ID), Index: r.Ix, Asset: r.Asset, Partition: r.Partition, State: run.TaskState(r.State), Outcome: outcomeOf(r.Outcome),
		}
	})(tx.q.UnmetUpstream(ctx, db.UnmetUpstreamParams{
		TenantID: key.Tenant.UUID, RunID: key.Run.UUID, TaskID: key.Task.UUID, Most: int32(most), //nolint:gosec // a short list
	}))
}

// PauseOf returns the pause of an asset; nil if it is not paused.
func (tx *Tx) PauseOf(ctx context.Context, owner id.Tenant, workspace id.Workspace, asset string) (*AssetPause, error) {
	rows, err := tx.q.PauseOfAsset(ctx, db.PauseOfAssetParams{TenantID: owner.UUID, WorkspaceID: workspace.UUID, Asset: asset})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	pause := AssetPause(rows[0])
	return &pause, nil
}

// TasksIn counts the tasks of a run in a state, with the one that has been in it longest.
type TasksIn struct {
	State  run.TaskState
	Tasks  int
	Oldest id.Task
}

// WhereTasksAre counts the live tasks of a run by state.
func (tx *Tx) WhereTasksAre(ctx context.Context, key RunKey) ([]TasksIn, error) {
	return list(func(r db.WhereTasksAreRow) TasksIn {
		return TasksIn{State: run.TaskState(r.State), Tasks: int(r.Tasks), Oldest: id.Of[id.Task](r.TaskID)}
	})(tx.q.WhereTasksAre(ctx, db.WhereTasksAreParams{TenantID: key.Tenant.UUID, RunID: key.Run.UUID}))
}

// LookShares returns the shares that the next round of admission will read after it has folded up to
// mostNotes settlements, and the share own. Function mosts decides how many shares of each pool are
// read. The durations of assets are not updated: the next costs may differ by that.
func (tx *Tx) LookShares(ctx context.Context, own ShareKey, alive time.Duration, mostQueued, mostNotes int, mosts func(ReadyPools) []int32) ([]ReadyShare, error) {
	rows, err := tx.q.UnfoldedSettlements(ctx, int32(mostNotes)) //nolint:gosec // a batch size
	if err != nil {
		return nil, err
	}
	notes := unfoldedNotes(rows, own)
	pools, err := tx.ReadyPools(ctx, PoolQuestion{Alive: alive, MostQueued: mostQueued, Named: slices.Sorted(maps.Keys(notes.left))})
	if err != nil {
		return nil, err
	}
	for i, name := range pools.Names {
		pools.Rooms[i].PoolInFlight -= notes.left[name]
	}
	heads, err := tx.HeadShares(ctx, pools, mosts(pools), id.Tenant{})
	if err != nil {
		return nil, err
	}
	keys := slices.Collect(maps.Keys(notes.arrived))
	known, err := tx.q.SharesOfTenants(ctx, db.SharesOfTenantsParams{
		TenantIds:  column(slices.Collect(maps.Keys(notes.tenants)), func(t id.Tenant) uuid.UUID { return t.UUID }),
		KeyTenants: column(keys, ShareKey.tenantID), KeyPools: column(keys, ShareKey.pool),
	})
	if err != nil {
		return nil, err
	}
	return notes.fold(pools, heads, known), nil
}

// unfolded are the settlements that FoldSettlements will fold, by tenant, pool and share.
type unfolded struct {
	own     ShareKey
	tenants map[id.Tenant]int // tasks that have left flight
	freed   map[id.Tenant]bool
	left    map[string]int // likewise, by pool
	owed    map[ShareKey]float64
	arrived map[ShareKey]bool
}

func unfoldedNotes(rows []db.UnfoldedSettlementsRow, own ShareKey) unfolded {
	u := unfolded{
		own: own, tenants: map[id.Tenant]int{own.Tenant: 0}, freed: map[id.Tenant]bool{}, left: map[string]int{own.Pool: 0},
		owed: map[ShareKey]float64{}, arrived: map[ShareKey]bool{own: false},
	}
	for _, r := range rows {
		key := ShareKey{Tenant: id.Of[id.Tenant](r.TenantID), Pool: r.Pool}
		u.tenants[key.Tenant] += int(r.LeftBy)
		u.freed[key.Tenant] = u.freed[key.Tenant] || r.Freed
		if r.Pool != "" {
			u.left[r.Pool] += int(r.LeftBy)
			u.owed[key] = r.Owed
			u.arrived[key] = r.Arrived
		}
	}
	return u
}

// fold does in memory what FoldSettlements does: the shares with settlements replace those that
// were read, and join if they begin to wait.
func (u unfolded) fold(pools ReadyPools, heads []ReadyShare, known []db.SharesOfTenantsRow) []ReadyShare {
	fronts := map[string]float64{}
	rooms := map[string]PoolRoom{}
	for i, name := range pools.Names {
		fronts[name], rooms[name] = pools.Rooms[i].PoolClock, pools.Rooms[i]
	}
	var shares []ReadyShare
	for _, s := range heads {
		fronts[s.Pool] = min(fronts[s.Pool], s.EvenAt)
		if _, noted := u.tenants[s.Tenant]; !noted {
			shares = append(shares, s)
		}
	}
	for _, r := range known {
		key := ShareKey{Tenant: id.Of[id.Tenant](r.TenantID), Pool: r.Pool}
		room, waited := rooms[key.Pool], r.Waits && !r.OverQuota
		waits := (r.Waits || u.arrived[key]) && (!r.OverQuota || u.freed[key.Tenant])
		evenAt := r.EvenAt
		if !r.Known {
			evenAt = room.PoolClock
		}
		s := ReadyShare{
			ShareKey: key, PoolRoom: room, Weight: r.FairnessWeight, EvenAt: evenAt - u.owed[key]/r.FairnessWeight, Waits: waits, Admitted: r.Admitted,
			MaxInFlight: int(r.MaxConcurrentTasks), InFlight: int(r.TenantInFlight) - u.tenants[key.Tenant], Pauses: r.Pauses,
		}
		if waits && !waited {
			s.EvenAt = fair.Join(s.EvenAt, fronts[key.Pool], room.PoolClock)
		}
		if waits || key == u.own {
			shares = append(shares, s)
		}
	}
	slices.SortStableFunc(shares, func(a, b ReadyShare) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.EvenAt, b.EvenAt), bytes.Compare(a.Tenant.UUID[:], b.Tenant.UUID[:]))
	})
	return shares
}

// LookReady reads the tasks that TakeReady would lock, or TakeOldest if oldest is set, and returns
// which of them belong to paused assets.
func (tx *Tx) LookReady(ctx context.Context, shares []ReadyShare, mosts []int32, oldest bool) (tasks []ReadyTask, paused map[id.Task]bool, err error) {
	paused = map[id.Task]bool{}
	if len(shares) == 0 {
		return nil, paused, nil
	}
	params := db.LookReadyParams{
		TenantIds: column(shares, func(s ReadyShare) uuid.UUID { return s.Tenant.UUID }),
		Pools:     column(shares, func(s ReadyShare) string { return s.Pool }),
		Pauses:    column(shares, func(s ReadyShare) bool { return s.Pauses }),
		Mosts:     mosts,
	}
	var rows []db.LookReadyRow
	if oldest {
		var found []db.LookOldestRow
		found, err = tx.q.LookOldest(ctx, db.LookOldestParams(params))
		rows = column(found, func(r db.LookOldestRow) db.LookReadyRow { return db.LookReadyRow(r) })
	} else {
		rows, err = tx.q.LookReady(ctx, params)
	}
	return column(rows, func(r db.LookReadyRow) ReadyTask {
		t := readyTask(db.TakeReadyRow{
			TenantID: r.TenantID, RunID: r.RunID, TaskID: r.TaskID, Since: r.Since, Version: r.Version, TimeoutS: r.TimeoutS,
			Priority: r.Priority, Dependents: r.Dependents, Pool: r.Pool, Needs: r.Needs, Attempt: r.Attempt, Failures: r.Failures,
			Fruitless: r.Fruitless, Deaths: r.Deaths, FanOuts: r.FanOuts, Cursor: r.Cursor, Asset: r.Asset, Seconds: r.Seconds,
		})
		if r.Paused {
			paused[t.ID] = true
		}
		return t
	}), paused, err
}

// ReadyPlace is the position of a ready task among those of its tenant in its pool.
type ReadyPlace struct {
	Held        bool // its asset is paused, or it lacks a worker
	LacksWorker bool // no live worker could run it
	Ahead       int  // tasks before it by priority and age, counted up to a limit
	Older       int  // tasks that are ready longer, counted up to a limit
}

// ReadyPlace reads the position of a ready task.
func (tx *Tx) ReadyPlace(ctx context.Context, key TaskKey, most int) (ReadyPlace, error) {
	row, err := tx.q.ReadyPlace(ctx, db.ReadyPlaceParams{
		TenantID: key.Tenant.UUID, RunID: key.Run.UUID, TaskID: key.Task.UUID, Most: int32(most), //nolint:gosec // a bound
	})
	return ReadyPlace{Held: row.Held, LacksWorker: row.LacksWorker, Ahead: int(row.Ahead), Older: int(row.Older)}, err
}

// QueuePlace counts the tasks before a queued one in its pool, up to most.
func (tx *Tx) QueuePlace(ctx context.Context, key TaskKey, most int) (int, error) {
	ahead, err := tx.q.QueuePlace(ctx, db.QueuePlaceParams{
		TenantID: key.Tenant.UUID, RunID: key.Run.UUID, TaskID: key.Task.UUID, Most: int32(most), //nolint:gosec // a bound
	})
	return int(ahead), err
}

// PoolWorkers returns the capacity of the workers of a pool that were seen since a time, and how many
// tasks of any pool they hold.
func (tx *Tx) PoolWorkers(ctx context.Context, pool string, since time.Time) (capacity Capacity, busy int, err error) {
	row, err := tx.q.PoolWorkers(ctx, db.PoolWorkersParams{Pool: pool, Since: since, Leases: MaxDepth})
	return Capacity{Workers: int(row.Workers), Slots: int(row.Slots)}, int(row.Busy), err
}

// LookRuns reads runs without a lock.
func (tx *Tx) LookRuns(ctx context.Context, keys []RunKey) ([]run.Run, error) {
	return tryList(runFromRow)(tx.q.LookRuns(ctx, db.LookRunsParams{TenantIds: column(keys, RunKey.tenantID), Ids: column(keys, RunKey.runID)}))
}

// StartPlace counts the runs of its tenant that start before a waiting run, up to most.
func (tx *Tx) StartPlace(ctx context.Context, key RunKey, most int) (int, error) {
	ahead, err := tx.q.StartPlace(ctx, db.StartPlaceParams{TenantID: key.Tenant.UUID, RunID: key.Run.UUID, Most: int32(most)}) //nolint:gosec // a bound
	return int(ahead), err
}

// DutyOf reads the holder of a duty and its expiry.
func (tx *Tx) DutyOf(ctx context.Context, name string) (DutyView, error) {
	rows, err := tx.q.Duties(ctx)
	for _, r := range rows {
		if r.Name == name {
			return DutyView{Duty: Duty{Name: r.Name, Holder: r.Holder, Epoch: r.Epoch}, ExpiresAt: r.ExpiresAt}, err
		}
	}
	return DutyView{Duty: Duty{Name: name}}, err
}

// FirstTaskIn returns the first task of a run in a state, in the order of the plan; nil if there is
// none.
func (tx *Tx) FirstTaskIn(ctx context.Context, key RunKey, state run.TaskState) (*TaskView, error) {
	rows, err := tx.q.ListTasks(ctx, db.ListTasksParams{
		TenantID: key.Tenant.UUID, RunID: key.Run.UUID, States: []int16{int16(state)}, After: BeforeFirst, Most: 1,
	})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	task, err := taskView(rows[0])
	return &task, err
}
