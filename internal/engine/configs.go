package engine

import (
	"context"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// MaxConfigsPerSave bounds one request.
const MaxConfigsPerSave = 1000

// SaveMode says which configs a save may meet.
type SaveMode int

// The modes of a save.
const (
	SaveAny SaveMode = iota // create or change
	SaveNew                 // it must not exist
	SaveOld                 // it must exist
)

// SaveConfig is one config as it should be.
type SaveConfig struct {
	Name    string
	Spec    config.Spec
	Enabled *bool // nil leaves it as it is; a new one is enabled
	Version int32 // that the caller has seen; 0 does not ask
	Mode    SaveMode
}

// How many configs are too many to be worked out within the usual pause of a transaction, and how long it
// may be then. No task waits for the locks of configs.
const (
	manyConfigs = 50
	pauseOfMany = 30 * time.Second
)

// SaveConfigs asks for configs of one workspace.
type SaveConfigs struct {
	Tenant    id.Tenant
	Workspace string // "" is the default one
	Configs   []SaveConfig
	Reason    string
	DryRun    bool // says what would change, and changes nothing
	// Coming are names of configs that will be saved before these; a dry run takes them for known.
	Coming []string
	Meta   event.Meta
}

// SavedConfig is what became of one.
type SavedConfig struct {
	Before  *store.ConfigState // nil if it is new
	After   store.ConfigState
	Changed bool
}

// SaveConfigs creates and changes configs: all of them, or none if one is wrong. The error
// names the config by its place, such as configs[3].trigger.cron, unless there is only one.
func (e *Engine) SaveConfigs(ctx context.Context, r SaveConfigs) (saved []SavedConfig, err error) {
	if len(r.Configs) == 0 || len(r.Configs) > MaxConfigsPerSave {
		return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("has %d configs", len(r.Configs)), fault.Field("configs"), fault.Remedy("send 1 to 1000 at once"))
	}
	if err := config.ValidateNote("reason", r.Reason); err != nil {
		return nil, err
	}
	if r.Workspace == "" {
		r.Workspace = tenant.DefaultWorkspace
	}
	seen := map[string]bool{}
	for i, c := range r.Configs {
		if err := config.ValidateName(c.Name); err != nil {
			return nil, r.at(i, err)
		}
		if seen[c.Name] {
			return nil, r.at(i, fault.New(fault.InvalidArgument, c.Name+" is there twice", fault.Field("name"), fault.Remedy("say it once")))
		}
		seen[c.Name] = true
	}
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		saved, err = e.saveConfigs(ctx, tx, r)
		return err
	})
	if err == nil && !r.DryRun {
		store.AfterCommit(ctx, func() { e.signals.Publish(signal.Due) })
	}
	return saved, err
}

// at puts the place of a config in front of the field of a fault.
func (r SaveConfigs) at(i int, err error) error {
	if len(r.Configs) == 1 || err == nil {
		return err
	}
	return fault.Under(fmt.Sprintf("configs[%d]", i), err)
}

func (e *Engine) saveConfigs(ctx context.Context, tx *store.Tx, r SaveConfigs) ([]SavedConfig, error) {
	if len(r.Configs) > manyConfigs { // their slots take a while to work out on a busy machine
		if err := tx.AllowPause(ctx, pauseOfMany); err != nil {
			return nil, err
		}
	}
	workspaces, err := tx.Workspaces(ctx, []store.WorkspaceName{{Tenant: r.Tenant, Name: r.Workspace}})
	if err != nil {
		return nil, err
	}
	if len(workspaces) == 0 {
		return nil, fault.New(fault.NotFound, "no workspace "+r.Workspace, fault.Field("workspace"), fault.Remedy("check the name"))
	}
	w := workspaces[0]
	if namesOthers(r.Configs) { // who changes which configs name which takes turns
		if _, err := tx.LockWorkspace(ctx, r.Tenant, w.Name); err != nil {
			return nil, err
		}
	}
	own, err := readTemplates(ctx, tx, w.Tenant, r.Configs)
	if err != nil {
		return nil, err
	}
	existing, err := lockByName(ctx, tx, w, r.Configs)
	if err != nil {
		return nil, err
	}
	refs, err := readReferences(ctx, tx, w, r, existing)
	if err != nil {
		return nil, err
	}
	refs.templates = own
	code, err := e.activeCode(ctx, tx, w)
	if err != nil {
		return nil, err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return nil, err
	}
	var (
		saved   = make([]SavedConfig, len(r.Configs))
		changed []store.ConfigState
		mint    = id.NewMinter(now)
		l       = newLedger(e.config.Server)
	)
	for i, c := range r.Configs {
		before := existing[c.Name]
		saved[i].Before = clone(before)
		if before == nil {
			before = &store.ConfigState{
				Config:        config.Config{Tenant: r.Tenant, ID: id.New[id.Config](mint), Workspace: w.ID},
				Times:         config.Times{DecidedUntil: now},
				WorkspaceName: w.Name,
			}
		}
		if saved[i].Changed, err = l.save(before, c, code, refs, notBefore(*before, now), r); err != nil {
			return nil, r.at(i, err)
		}
		if saved[i].After = *before; saved[i].Changed {
			changed = append(changed, *before)
		}
	}
	if r.DryRun || len(changed) == 0 {
		return saved, nil
	}
	if err := tx.SaveConfigs(ctx, changed); err != nil {
		return nil, err
	}
	return saved, l.write(ctx, tx, now)
}

func clone(c *store.ConfigState) *store.ConfigState {
	if c == nil {
		return nil
	}
	copied := *c
	return &copied
}

// lockByName locks the configs that exist, and those that they name: whoever deletes one of
// these waits.
func lockByName(ctx context.Context, tx *store.Tx, w store.Workspace, configs []SaveConfig) (map[string]*store.ConfigState, error) {
	var names []store.ConfigName
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, store.ConfigName{Tenant: w.Tenant, Workspace: w.ID, Name: name})
		}
	}
	for _, c := range configs {
		add(c.Name)
		for _, r := range referencesOf(c.Spec) {
			add(r.name)
		}
	}
	ids, err := tx.ConfigIDs(ctx, names)
	if err != nil {
		return nil, err
	}
	keys := make([]store.ConfigKey, 0, len(ids))
	for _, found := range ids {
		keys = append(keys, store.ConfigKey{Tenant: w.Tenant, Config: found})
	}
	locked, err := tx.LockConfigs(ctx, keys)
	existing := make(map[string]*store.ConfigState, len(locked))
	for i := range locked {
		if locked[i].DeletedAt.IsZero() {
			existing[locked[i].Name] = &locked[i]
		}
	}
	return existing, err
}

// activeCode is what the workspace runs; nil if nothing was deployed.
func (e *Engine) activeCode(ctx context.Context, tx *store.Tx, w store.Workspace) (*deployment, error) {
	if w.Active == nil {
		return nil, nil
	}
	found, err := e.deploymentsOf(ctx, tx, []store.DeploymentKey{{Tenant: w.Tenant, Deployment: *w.Active}})
	return found[*w.Active], err
}

// save makes one config what it should be, and reports whether that changes anything.
func (l *ledger) save(c *store.ConfigState, want SaveConfig, code *deployment, refs references, now time.Time, r SaveConfigs) (changed bool, err error) {
	isNew := c.Version == 0
	switch {
	case isNew && want.Mode == SaveOld:
		return false, fault.New(fault.NotFound, "no config "+want.Name, fault.Field("name"), fault.Remedy("check the name"))
	case !isNew && want.Mode == SaveNew:
		return false, fault.New(fault.AlreadyExists, "config "+want.Name+" exists", fault.Field("name"), fault.Remedy("choose another name, or change the one that is there"))
	case want.Version != 0 && want.Version != c.Version:
		return false, staleConfig(c.Version, want.Version)
	}
	created := c.CreatedAt
	if isNew {
		created = now
	}
	spec := want.Spec.Filled(created)
	if err := refs.templates.resolve(&spec.Trigger); err != nil {
		return false, err
	}
	next, err := spec.Validate()
	if err != nil {
		return false, err
	}
	if err := runnable(code, spec, r.Workspace); err != nil {
		return false, err
	}
	if spec.Parameters, err = canon.Exact(spec.Parameters); err != nil {
		return false, fault.New(fault.InvalidArgument, err.Error(), fault.Field("parameters"), fault.Remedy("send plain JSON"))
	}
	if isNew {
		if err := refs.check(want.Name, spec); err != nil {
			return false, err
		}
		disabled := want.Enabled != nil && !*want.Enabled
		err := l.record(c, config.Created{Workspace: c.Workspace, Name: want.Name, Spec: spec, Disabled: disabled, Reason: r.Reason}, now, r.Meta)
		l.plan(c, next)
		return true, err
	}
	before, err := c.Spec.Schedule()
	if err != nil {
		return false, err
	}
	same, err := sameJSON(c.Spec, spec)
	if err != nil {
		return false, err
	}
	if !same {
		if err := refs.check(want.Name, spec); err != nil {
			return false, err
		}
		if err := l.edit(c, before, spec, now, r.Reason, r.Meta); err != nil {
			return false, err
		}
		changed = true
	}
	if want.Enabled != nil && *want.Enabled != c.Enabled {
		if err := l.enable(c, next, *want.Enabled, r.Reason, now, r.Meta); err != nil {
			return false, err
		}
		changed = true
	}
	if changed {
		l.plan(c, next)
	}
	return changed, nil
}

// sameJSON compares by what is stored, since numbers and objects come back in another form.
func sameJSON(a, b any) (bool, error) {
	first, err := canon.Digest(a)
	if err != nil {
		return false, err
	}
	second, err := canon.Digest(b)
	return first == second, err
}

func (l *ledger) enable(c *store.ConfigState, s *schedule.Schedule, on bool, reason string, now time.Time, meta event.Meta) error {
	if !on {
		return l.record(c, config.Disabled{Reason: reason}, now, meta)
	}
	l.close(c, s, now, config.SkippedDisabled, reason)
	c.Failures = 0
	return l.record(c, config.Enabled{Reason: reason}, now, meta)
}

func staleConfig(current, seen int32) error {
	return fault.New(fault.Conflict, fmt.Sprintf("the config has version %d by now, not %d", current, seen), fault.Field("version"),
		fault.Remedy("read the config again and change what is there now"), fault.Value("version", current))
}

// runnable refuses a spec that the workspace's code cannot run.
func runnable(code *deployment, spec config.Spec, workspace string) error {
	if code == nil {
		return noDeployment(workspace)
	}
	parameters, err := spec.Example()
	if err != nil {
		return err
	}
	_, err = code.planner.Plan(plan.Request{Pipeline: spec.Pipeline, Parameters: parameters})
	return err
}

// ChangeConfig is something asked of one config.
type ChangeConfig struct {
	Tenant  id.Tenant
	Config  id.Config
	Version int32 // that the caller has seen; 0 does not ask
	Reason  string
	Force   bool // delete it although others depend on it
	Meta    event.Meta
}

// PauseConfig stops the slots of a config.
func (e *Engine) PauseConfig(ctx context.Context, r ChangeConfig) (store.ConfigState, error) {
	return e.changeConfig(ctx, r, func(l *ledger, c *store.ConfigState, _ *schedule.Schedule, now time.Time) error {
		if !c.PausedAt.IsZero() {
			return nil
		}
		return l.record(c, config.Paused{Note: r.Reason}, now, r.Meta)
	})
}

// ResumeConfig lets the next slot fire: those that have passed are accounted for.
func (e *Engine) ResumeConfig(ctx context.Context, r ChangeConfig) (store.ConfigState, error) {
	return e.changeConfig(ctx, r, func(l *ledger, c *store.ConfigState, s *schedule.Schedule, now time.Time) error {
		if c.PausedAt.IsZero() && c.Enabled {
			return nil
		}
		l.close(c, s, now, config.SkippedPaused, c.PauseNote)
		c.Failures = 0
		if !c.Enabled {
			if err := l.record(c, config.Enabled{Reason: r.Reason}, now, r.Meta); err != nil {
				return err
			}
		}
		if c.PausedAt.IsZero() {
			return nil
		}
		return l.record(c, config.Resumed{Note: r.Reason}, now, r.Meta)
	})
}

// maxMove bounds how far ahead a slot may be moved: what the ledger keeps.
const maxMove = 400 * 24 * time.Hour

// MoveSlot puts the next slot of a config elsewhere.
func (e *Engine) MoveSlot(ctx context.Context, r ChangeConfig, to time.Time) (store.ConfigState, error) {
	to = to.UTC().Truncate(time.Microsecond)
	return e.changeConfig(ctx, r, func(l *ledger, c *store.ConfigState, s *schedule.Schedule, now time.Time) error {
		switch {
		case !s.Timed():
			return fault.New(fault.Conflict, "the config has no slots", fault.Field("config"), fault.Remedy("trigger it instead"))
		case !to.After(now) || to.Sub(now) > maxMove || !to.After(c.DecidedUntil):
			return fault.New(fault.InvalidArgument, "must lie in the future, at most 400 days ahead", fault.Field("slot"), fault.Remedy("send a time such as "+now.Add(time.Hour).Format(time.RFC3339)))
		}
		if !c.MovedTo.IsZero() && !c.MovedTo.After(now) { // it was due, and nobody could fire it
			l.close(c, s, now, config.SkippedEdited, r.Reason)
		}
		return l.record(c, config.Moved{To: to, Reason: r.Reason}, now, r.Meta)
	})
}

// DeleteConfig ends a config. Its runs go on. While others run after it or depend on it, it must
// be forced.
func (e *Engine) DeleteConfig(ctx context.Context, r ChangeConfig) (store.ConfigState, error) {
	var checks []func(context.Context, *store.Tx, store.ConfigState) error
	if !r.Force {
		checks = append(checks, undepended)
	}
	return e.changeConfig(ctx, r, func(l *ledger, c *store.ConfigState, s *schedule.Schedule, now time.Time) error {
		l.close(c, s, now, config.SkippedEdited, "the config was deleted")
		return l.record(c, config.Deleted{Reason: r.Reason}, now, r.Meta)
	}, checks...)
}

// notBefore is the time of a change: no earlier than what is decided, even if the database's
// clock was set back, so that the chapters of a ledger follow one another.
func notBefore(c store.ConfigState, now time.Time) time.Time { return later(now, c.DecidedUntil) }

// changeConfig does something to a locked config that passes the checks, and says when it comes
// next.
func (e *Engine) changeConfig(ctx context.Context, r ChangeConfig, change func(*ledger, *store.ConfigState, *schedule.Schedule, time.Time) error,
	checks ...func(context.Context, *store.Tx, store.ConfigState) error,
) (changed store.ConfigState, err error) {
	if err := config.ValidateNote("reason", r.Reason); err != nil {
		return changed, err
	}
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		locked, err := tx.LockConfigs(ctx, []store.ConfigKey{{Tenant: r.Tenant, Config: r.Config}})
		if err != nil {
			return err
		}
		if len(locked) == 0 || !locked[0].DeletedAt.IsZero() {
			return fault.New(fault.NotFound, "no config "+r.Config.String(), fault.Field("config"), fault.Remedy("check the name or id"))
		}
		c := locked[0]
		if r.Version != 0 && r.Version != c.Version {
			return staleConfig(c.Version, r.Version)
		}
		for _, check := range checks {
			if err := check(ctx, tx, c); err != nil {
				return err
			}
		}
		s, err := c.Spec.Schedule()
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		l := newLedger(e.config.Server)
		if err := change(l, &c, s, notBefore(c, now)); err != nil {
			return err
		}
		changed = c
		if len(l.events) == 0 {
			return nil
		}
		l.plan(&c, s)
		changed = c
		if err := tx.SaveConfigs(ctx, []store.ConfigState{c}); err != nil {
			return err
		}
		return l.write(ctx, tx, now)
	})
	if err == nil {
		store.AfterCommit(ctx, func() { e.signals.Publish(signal.Due) })
	}
	return changed, err
}
