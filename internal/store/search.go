package store

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

const (
	// searchedTenants is how many tenants are searched.
	searchedTenants = 10_000
	// searchedNames is how many names of configs or locks are compared.
	searchedNames = 20_000
	// searchedRuns is how many runs of each tenant are searched for a task.
	searchedRuns = 200
	// mintedWithin is how much newer than the id of its run the id of a task may be: a retried
	// batch keeps the ids of its runs.
	mintedWithin = 10 * time.Second
	// searchedBefore is how many older runs are searched for a task that a fan-out has added.
	searchedBefore = 5_000
	// publicDigits is the number of digits of a key's public id, and enoughDigits how many of them a
	// search needs.
	publicDigits = 16
	enoughDigits = 4
)

// The kinds of search results.
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

// Found is a search result.
type Found struct {
	Kind      string
	Name      string
	Tenant    id.Tenant // zero for the installation's own
	Workspace string    // "" if it belongs to no workspace
	ID        uuid.UUID
	Public    string // the public id of a key, if it was found by that or by its name
	Run       id.Run // of a task, and of a lock
	State     string
}

// FindByID finds entities by id: of one tenant, or of any for the zero tenant.
func (s *Store) FindByID(ctx context.Context, tenant id.Tenant, of uuid.UUID) (found []Found, err error) {
	var task *TaskKey
	err = s.scoped(tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		owners, err := tx.q.OwnersOf(ctx, db.OwnersOfParams{ID: of, Walk: searchedTenants})
		if err != nil {
			return err
		}
		found = nil
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
			task, err = tx.taskOwner(ctx, tenant, of)
		}
		return err
	})
	if err != nil || task == nil {
		return found, err
	}
	return s.foundTask(ctx, *task)
}

// taskOwner finds the run of a task; nil if there is none. Most tasks are planned with their runs,
// at the same time. Others are added by a fan-out: taskOwner searches the last runs of the tenant
// before them, or of all tenants, and the live runs.
func (tx *Tx) taskOwner(ctx context.Context, tenant id.Tenant, of uuid.UUID) (*TaskKey, error) {
	if of.Version() != 7 {
		return nil, nil //nolint:nilnil // it is no id of ours
	}
	seconds, nanos := of.Time().UnixTime()
	minted := time.Unix(seconds, nanos)
	found := func(tenant, run uuid.UUID) *TaskKey {
		return &TaskKey{Tenant: id.Of[id.Tenant](tenant), Run: id.Of[id.Run](run), Task: id.Of[id.Task](of)}
	}
	params := db.OwnersOfTaskParams{ID: of, Lower: floor(minted.Add(-mintedWithin)), Walk: searchedTenants, Runs: searchedRuns}
	rows, err := tx.q.OwnersOfTask(ctx, params)
	if err == nil && len(rows) == 0 && tenant != (id.Tenant{}) {
		params.Lower, params.Runs = uuid.Nil, searchedBefore
		rows, err = tx.q.OwnersOfTask(ctx, params)
	}
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 {
		return found(rows[0].TenantID, rows[0].RunID), nil
	}
	if tenant != (id.Tenant{}) {
		return nil, nil //nolint:nilnil // there is none
	}
	added, err := tx.q.OwnersOfAddedTask(ctx, db.OwnersOfAddedTaskParams{ID: of, At: minted.Add(time.Second), Live: triedLive, Runs: searchedBefore})
	if err != nil || len(added) == 0 {
		return nil, err
	}
	return found(added[0].TenantID, added[0].RunID), nil
}

// foundTask reads a task that was found, as its tenant.
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

// FindTenants reads tenants whose names contain a text.
func (s *Store) FindTenants(ctx context.Context, part string, most int) ([]Found, error) {
	return read(ctx, s.scoped(id.Tenant{}), func(ctx context.Context, tx *Tx) ([]Found, error) {
		return list(func(r db.TenantsNamedRow) Found {
			return Found{Kind: KindTenant, Name: r.Name, Tenant: id.Of[id.Tenant](r.ID), ID: r.ID}
		})(tx.q.TenantsNamed(ctx, db.TenantsNamedParams{Part: part, Walk: searchedTenants, Most: int32(most)})) //nolint:gosec // a handful
	})
}

// MoreConfigs reports whether there are more configs than FindConfigs searches.
func (s *Store) MoreConfigs(ctx context.Context, tenant id.Tenant) (bool, error) {
	return read(ctx, s.scoped(tenant), func(ctx context.Context, tx *Tx) (bool, error) {
		return tx.q.MoreConfigs(ctx, searchedNames)
	})
}

// FindKeys reads keys whose names contain a text, or whose public ids begin with it: of one tenant,
// or of all for the zero tenant.
func (s *Store) FindKeys(ctx context.Context, tenant id.Tenant, text string, most int) ([]Found, error) {
	params := db.KeysNamedParams{Part: text, Walk: searchedNames, Most: int32(most), Low: "", High: ""} //nolint:gosec // a handful
	digits := strings.ToLower(strings.TrimPrefix(text, "sk_"))
	if public, _, whole := strings.Cut(digits, "_"); whole && digits != text {
		digits, params.Part = public, "sk_"+public // the secret after it must not be sent to the database
	}
	if len(digits) >= enoughDigits && len(digits) <= publicDigits && strings.Trim(digits, "0123456789abcdef") == "" {
		missing := publicDigits - len(digits)
		params.Low, params.High = digits+strings.Repeat("0", missing), digits+strings.Repeat("f", missing)
	}
	return read(ctx, s.scoped(tenant), func(ctx context.Context, tx *Tx) ([]Found, error) {
		return list(func(r db.KeysNamedRow) Found {
			return Found{Kind: KindKey, Name: r.Name, Tenant: id.Of[id.Tenant](r.TenantID), Workspace: r.Workspace, Public: r.PublicID, State: r.State}
		})(tx.q.KeysNamed(ctx, params))
	})
}

// FindConfigs reads configs whose names contain a text: of one tenant, or of all for the zero
// tenant; in one workspace, or in all if it is "".
func (s *Store) FindConfigs(ctx context.Context, tenant id.Tenant, workspace, part string, most int) ([]Found, error) {
	return read(ctx, s.scoped(tenant), func(ctx context.Context, tx *Tx) ([]Found, error) {
		return list(func(r db.ConfigsNamedRow) Found {
			return Found{Kind: KindConfig, Name: r.Name, Tenant: id.Of[id.Tenant](r.TenantID), Workspace: r.Workspace, ID: r.ID, State: r.State}
		})(tx.q.ConfigsNamed(ctx, db.ConfigsNamedParams{Part: part, Workspace: workspace, Walk: searchedNames, Most: int32(most)})) //nolint:gosec // a handful
	})
}

// FindLocks reads locks of a tenant whose keys contain a text; of runs in one workspace, or in all
// if it is "".
func (s *Store) FindLocks(ctx context.Context, tenant id.Tenant, workspace, part string, most int) ([]Found, error) {
	return read(ctx, s.scoped(tenant), func(ctx context.Context, tx *Tx) ([]Found, error) {
		return list(func(r db.LocksNamedRow) Found {
			state := "HELD"
			if r.Pending {
				state = "PENDING"
			}
			return Found{Kind: KindLock, Name: r.LockKey, Tenant: tenant, Workspace: r.Workspace, Run: id.Of[id.Run](r.RunID), State: state}
		})(tx.q.LocksNamed(ctx, db.LocksNamedParams{TenantID: tenant.UUID, Part: part, Workspace: workspace, Walk: searchedNames, Most: int32(most)})) //nolint:gosec // a handful
	})
}
