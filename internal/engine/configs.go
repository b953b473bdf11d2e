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

// SaveMode is which configs a save accepts.
type SaveMode int

// The modes of a save.
const (
	SaveAny SaveMode = iota // create or update
	SaveNew                 // create: the config must not exist
	SaveOld                 // update: the config must exist
)

// SaveConfig is the wanted state of one config.
type SaveConfig struct {
	Name    string
	Spec    config.Spec
	Enabled *bool // nil keeps the state; a new config is enabled
	Version int32 // expected version; 0 accepts any
	Mode    SaveMode
}

// A save of more than manyConfigs gets a longer timeout between two statements, since it computes their
// slots in between. No task waits for the locks of configs.
const (
	manyConfigs = 50
	pauseOfMany = 30 * time.Second
)

// SaveConfigs requests configs of one workspace.
type SaveConfigs struct {
	Tenant    id.Tenant
	Workspace string // "" is the default one
	Configs   []SaveConfig
	Reason    string
	DryRun    bool // returns what would change, and changes nothing
	// Coming are names of configs that will be saved before these; a dry run treats them as existing.
	Coming []string
	Meta   event.Meta
}

// SavedConfig is the result of one.
type SavedConfig struct {
	Before  *store.ConfigState // nil if it is new
	After   store.ConfigState
	Changed bool
}

// SaveConfigs creates and updates configs: all of them, or none if one is invalid. The error names the
// config by its place, such as configs[3].trigger.cron, unless there is only one.
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
			return nil, r.at(i, fault.New(fault.InvalidArgument, "duplicate name "+c.Name, fault.Field("name"), fault.Remedy("remove one of them")))
		}
		seen[c.Name] = true
	}
	err = e.engineWithCode(ctx, func(ctx context.Context, tx *store.Tx) error {
		saved, err = e.saveConfigs(ctx, tx, r)
		return err
	})
	if err == nil && !r.DryRun {
		store.AfterCommit(ctx, func() { e.signals.Publish(signal.Due) })
	}
	return saved, err
}

// at prefixes the field of a fault with the place of its config.
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
	if namesOthers(r.Configs) { // one transaction at a time changes references
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
	codes, err := e.activeCodes(ctx, w)
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
		if saved[i].Changed, err = l.save(before, c, codes, w, refs, notBefore(*before, now), r); err != nil {
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

// lockByName locks the existing configs of a request and those that they name, so that none of these is
// deleted meanwhile.
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

// activeCode is the active deployment or release of a workspace; nil if it has none.
func (e *Engine) activeCode(ctx context.Context, w store.Workspace) (*deployment, error) {
	if w.Active == nil {
		return nil, nil
	}
	found, err := e.deploymentsOf(ctx, []store.DeploymentKey{{Tenant: w.Tenant, Deployment: *w.Active}})
	return found[*w.Active], err
}

// activeCodes are the deployments that runs of a workspace may use soon: during a rollout of its channel,
// both releases.
func (e *Engine) activeCodes(ctx context.Context, w store.Workspace) (codes []*deployment, err error) {
	for _, used := range []*id.Deployment{w.Active, w.Other} {
		if used == nil {
			continue
		}
		found, err := e.deploymentsOf(ctx, []store.DeploymentKey{{Tenant: w.Tenant, Deployment: *used}})
		if err != nil {
			return nil, err
		}
		codes = append(codes, found[*used])
	}
	return codes, nil
}

// save creates or updates one config, and reports whether that changes anything.
func (l *ledger) save(c *store.ConfigState, want SaveConfig, codes []*deployment, w store.Workspace, refs references, now time.Time, r SaveConfigs) (changed bool, err error) {
	isNew := c.Version == 0
	switch {
	case isNew && want.Mode == SaveOld:
		return false, fault.New(fault.NotFound, "no config "+want.Name, fault.Field("name"), fault.Remedy("check the name"))
	case !isNew && want.Mode == SaveNew:
		return false, fault.New(fault.AlreadyExists, "config "+want.Name+" exists", fault.Field("name"), fault.Remedy("choose another name, or update that config"))
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
	if err := runnable(codes, spec, w); err != nil {
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

// sameJSON compares the stored forms, since PostgreSQL returns numbers and objects in another form.
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
		fault.Remedy("reload the config and apply the change to it"), fault.Value("version", current))
}

// runnable refuses a spec that the workspace's code cannot run.
func runnable(codes []*deployment, spec config.Spec, w store.Workspace) error {
	if len(codes) == 0 {
		return noCode(w)
	}
	parameters, err := spec.Example()
	if err != nil {
		return err
	}
	request := plan.Request{Pipeline: spec.Pipeline, Parameters: parameters, Undivided: true}
	for i, code := range codes {
		if code == nil {
			return noCode(w)
		}
		if _, err = code.planner.Plan(request); err == nil {
			err = spec.CheckPartitions(code.planner.SchemesOf(request))
		}
		if err != nil {
			if f, ok := fault.As(err); ok && i > 0 {
				f.Message += " (in the other release of channel " + w.Channel + ", which is being rolled)"
			}
			return err
		}
	}
	return nil
}

// ChangeConfig requests a change of one config.
type ChangeConfig struct {
	Tenant  id.Tenant
	Config  id.Config
	Version int32 // expected version; 0 accepts any
	Reason  string
	Force   bool // delete it even if others depend on it
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

// ResumeConfig resumes the slots of a config. Those that have passed are recorded as skipped.
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

// maxMove bounds how far ahead a slot may be moved, by the retention of the ledger.
const maxMove = 400 * 24 * time.Hour

// MoveSlot moves the next slot of a config to another time.
func (e *Engine) MoveSlot(ctx context.Context, r ChangeConfig, to time.Time) (store.ConfigState, error) {
	to = to.UTC().Truncate(time.Microsecond)
	return e.changeConfig(ctx, r, func(l *ledger, c *store.ConfigState, s *schedule.Schedule, now time.Time) error {
		switch {
		case !s.Timed():
			return fault.New(fault.Conflict, "the config has no slots", fault.Field("config"), fault.Remedy("trigger it instead"))
		case !to.After(now) || to.Sub(now) > maxMove || !to.After(c.DecidedUntil):
			return fault.New(fault.InvalidArgument, "must lie in the future, at most 400 days ahead", fault.Field("slot"), fault.Remedy("send a time such as "+now.Add(time.Hour).Format(time.RFC3339)))
		}
		if !c.MovedTo.IsZero() && !c.MovedTo.After(now) { // it was due and has not fired
			l.close(c, s, now, config.SkippedEdited, r.Reason)
		}
		return l.record(c, config.Moved{To: to, Reason: r.Reason}, now, r.Meta)
	})
}

// DeleteConfig deletes a config. Its runs continue. If other configs run after it or depend on it, it
// needs Force.
func (e *Engine) DeleteConfig(ctx context.Context, r ChangeConfig) (store.ConfigState, error) {
	var checks []func(context.Context, *store.Tx, store.ConfigState) error
	if !r.Force {
		checks = append(checks, refuseIfDependedOn)
	}
	return e.changeConfig(ctx, r, func(l *ledger, c *store.ConfigState, s *schedule.Schedule, now time.Time) error {
		l.close(c, s, now, config.SkippedEdited, "the config was deleted")
		return l.record(c, config.Deleted{Reason: r.Reason}, now, r.Meta)
	}, checks...)
}

// notBefore is the time of a change: no earlier than the last decision, even if the database's clock was
// set back, so that the entries of a ledger stay in order.
func notBefore(c store.ConfigState, now time.Time) time.Time { return later(now, c.DecidedUntil) }

// changeConfig applies a change to a locked config and computes its next slot.
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
