package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/id"
	"go.arco.dev/servo/internal/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

const (
	// searchedTenants is among how many tenants something is looked for.
	searchedTenants = 10_000
	// searchedNames is how many names of configs or locks are compared.
	searchedNames = 20_000
	// searchedRuns is among how many runs of each tenant a task is looked for.
	searchedRuns = 200
	// mintedWithin is how much later than its run a task may have been minted: a batch that is
	// tried again keeps the ids of its runs.
	mintedWithin = 10 * time.Second
)

// The kinds of things that are found.
const (
	KindRun          = "run"
	KindTask         = "task"
	KindConfig       = "config"
	KindDeployment   = "deployment"
	KindWorkspace    = "workspace"
	KindEvent        = "event"
	KindAlert        = "alert"
	KindChannel      = "channel"
	KindSubscription = "subscription"
	KindKey          = "key"
	KindTemplate     = "template"
	KindTenant       = "tenant"
	KindLock         = "lock"
)

// Found is something that was looked for.
type Found struct {
	Kind      string
	Name      string
	Tenant    id.Tenant // zero for the installation's own
	Workspace string    // "" for what belongs to the tenant as a whole
	ID        uuid.UUID
	Run       id.Run // of a task, and of a lock
	State     string
}

// FindByID reads what has an id: of one tenant, or of any if it is the zero one.
func (s *Store) FindByID(ctx context.Context, tenant id.Tenant, of uuid.UUID) (found []Found, err error) {
	var task *TaskKey
	err = s.across(ctx, tenant, func(ctx context.Context, tx *Tx) error {
		owners, err := tx.q.OwnersOf(ctx, db.OwnersOfParams{ID: of, Walk: searchedTenants})
		if err != nil {
			return err
		}
		if tenant == (id.Tenant{}) {
			owners = append(owners, uuid.Nil) // the installation has keys and alerts too
		}
		for _, owner := range owners {
			things, err := tx.q.ThingsByID(ctx, db.ThingsByIDParams{TenantID: owner, ID: of})
			if err != nil {
				return err
			}
			for _, t := range things {
				thing := Found{Kind: t.Kind, Name: t.Name, Tenant: id.Of[id.Tenant](owner), Workspace: t.Workspace, ID: of, State: t.State}
				if t.Kind == KindRun {
					thing.State = run.State(t.Number).String()
				}
				found = append(found, thing)
			}
		}
		if len(found) == 0 {
			task, err = tx.taskOwner(ctx, of)
		}
		return err
	})
	if err != nil || task == nil {
		return found, err
	}
	return s.foundTask(ctx, *task)
}

// taskOwner finds the run of a task that was planned with it; nil if there is none.
func (tx *Tx) taskOwner(ctx context.Context, of uuid.UUID) (*TaskKey, error) {
	if of.Version() != 7 {
		return nil, nil //nolint:nilnil // it is no id of ours
	}
	seconds, nanos := of.Time().UnixTime()
	rows, err := tx.q.OwnersOfTask(ctx, db.OwnersOfTaskParams{
		ID: of, Lower: floor(time.Unix(seconds, nanos).Add(-mintedWithin)), Walk: searchedTenants, Runs: searchedRuns,
	})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &TaskKey{Tenant: id.Of[id.Tenant](rows[0].TenantID), Run: id.Of[id.Run](rows[0].RunID), Task: id.Of[id.Task](of)}, nil
}

// foundTask is a task that was found, as its tenant reads it.
func (s *Store) foundTask(ctx context.Context, key TaskKey) ([]Found, error) {
	t, err := s.GetTask(ctx, key)
	if err != nil {
		return nil, err
	}
	r, err := s.GetRun(ctx, RunKey{Tenant: key.Tenant, Run: key.Run})
	if err != nil {
		return nil, err
	}
	name := t.Asset
	if t.Partition != "" {
		name += "[" + t.Partition + "]"
	}
	return []Found{{Kind: KindTask, Name: name, Tenant: key.Tenant, Workspace: r.WorkspaceName, ID: key.Task.UUID, Run: key.Run, State: t.State.String()}}, nil
}

// FindTenants reads tenants whose names begin with a text.
func (s *Store) FindTenants(ctx context.Context, prefix string, most int) (found []Found, err error) {
	err = s.across(ctx, id.Tenant{}, func(ctx context.Context, tx *Tx) error {
		rows, err := tx.q.TenantsNamed(ctx, db.TenantsNamedParams{Prefix: prefix, Walk: searchedTenants, Most: int32(most)}) //nolint:gosec // a handful
		found = column(rows, func(r db.TenantsNamedRow) Found {
			return Found{Kind: KindTenant, Name: r.Name, Tenant: id.Of[id.Tenant](r.ID), ID: r.ID}
		})
		return err
	})
	return found, err
}

// FindConfigs reads configs whose names begin with a text: of one tenant, or of all if it is the
// zero one; in one workspace, or in all if it is "".
func (s *Store) FindConfigs(ctx context.Context, tenant id.Tenant, workspace, prefix string, most int) (found []Found, err error) {
	err = s.across(ctx, tenant, func(ctx context.Context, tx *Tx) error {
		rows, err := tx.q.ConfigsNamed(ctx, db.ConfigsNamedParams{Prefix: prefix, Workspace: workspace, Walk: searchedNames, Most: int32(most)}) //nolint:gosec // a handful
		found = column(rows, func(r db.ConfigsNamedRow) Found {
			return Found{Kind: KindConfig, Name: r.Name, Tenant: id.Of[id.Tenant](r.TenantID), Workspace: r.Workspace, ID: r.ID, State: r.State}
		})
		return err
	})
	return found, err
}

// FindLocks reads locks of a tenant whose keys begin with a text; of runs in one workspace, or in
// all if it is "".
func (s *Store) FindLocks(ctx context.Context, tenant id.Tenant, workspace, prefix string, most int) (found []Found, err error) {
	err = s.across(ctx, tenant, func(ctx context.Context, tx *Tx) error {
		rows, err := tx.q.LocksNamed(ctx, db.LocksNamedParams{TenantID: tenant.UUID, Prefix: prefix, Workspace: workspace, Walk: searchedNames, Most: int32(most)}) //nolint:gosec // a handful
		found = column(rows, func(r db.LocksNamedRow) Found {
			state := "HELD"
			if r.Pending {
				state = "PENDING"
			}
			return Found{Kind: KindLock, Name: r.LockKey, Tenant: tenant, Workspace: r.Workspace, Run: id.Of[id.Run](r.RunID), State: state}
		})
		return err
	})
	return found, err
}
