package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// maxTemplateConfigs is how many configs one change of a template may change.
const maxTemplateConfigs = 10_000

// SetTemplate requests a template of a tenant.
type SetTemplate struct {
	Tenant      id.Tenant
	Name        string
	Cron        string
	Description string
	Version     int32 // expected version; 0 accepts any
	Meta        event.Meta
}

// SetTemplate creates a template, or updates it together with every config that uses it: their slots up to
// now are recorded, and later ones follow the new expression. It returns how many configs it has updated.
func (e *Engine) SetTemplate(ctx context.Context, r SetTemplate) (set config.Template, changed int, err error) {
	if err := config.ValidateTemplate(r.Name, r.Cron, r.Description); err != nil {
		return set, 0, err
	}
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		before, known, err := tx.LockTemplate(ctx, r.Tenant, r.Name)
		if err != nil {
			return err
		}
		if set = before; known && before.Cron == r.Cron && before.Description == r.Description {
			return nil // a repeat, whatever version it names
		}
		if r.Version != 0 && r.Version != before.Version {
			return fault.New(fault.Conflict, fmt.Sprintf("the template has version %d by now, not %d", before.Version, r.Version), fault.Field("version"),
				fault.Remedy("reload the templates and apply the change to them"), fault.Value("version", before.Version))
		}
		if !known {
			if err := roomForTemplate(ctx, tx, r.Tenant); err != nil {
				return err
			}
		}
		var keys []store.ConfigKey
		if known && before.Cron != r.Cron {
			if keys, err = usersOf(ctx, tx, r); err != nil {
				return err
			}
		}
		locked, err := tx.LockConfigs(ctx, keys)
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		l := newLedger(e.config.Server)
		if set, err = l.setTemplate(before, r, now); err != nil {
			return err
		}
		if err := tx.SaveTemplate(ctx, set); err != nil {
			return err
		}
		if changed, err = l.useTemplate(ctx, tx, set, locked, now, r.Meta); err != nil {
			return err
		}
		return l.write(ctx, tx, now)
	})
	if err != nil {
		return config.Template{}, 0, err
	}
	if changed > 0 {
		store.AfterCommit(ctx, func() { e.signals.Publish(signal.Due) })
	}
	return set, changed, nil
}

// roomForTemplate refuses a template beyond the limit of a tenant.
func roomForTemplate(ctx context.Context, tx *store.Tx, owner id.Tenant) error {
	names, err := tx.TemplateNames(ctx, owner)
	if err != nil || len(names) < config.MaxTemplates {
		return err
	}
	return fault.New(fault.LimitExceeded, fmt.Sprintf("the tenant has %d templates, which is the limit", len(names)), fault.Field("name"),
		fault.Remedy("delete one that no config uses"), fault.Value("limit", config.MaxTemplates), fault.Value("current", len(names)))
}

// usersOf are the configs that change with a template.
func usersOf(ctx context.Context, tx *store.Tx, r SetTemplate) ([]store.ConfigKey, error) {
	users, err := tx.ConfigsOfTemplate(ctx, r.Tenant, r.Name)
	if err != nil {
		return nil, err
	}
	if len(users) > maxTemplateConfigs {
		return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("%d configs use the template, and at most %d can be changed at once", len(users), maxTemplateConfigs),
			fault.Field("name"), fault.Remedy("create a template with another name, and move the configs to it a thousand at a time"),
			fault.Value("limit", maxTemplateConfigs), fault.Value("current", len(users)))
	}
	keys := make([]store.ConfigKey, len(users))
	for i, u := range users {
		keys[i] = u.ConfigKey
	}
	return keys, nil
}

func (l *ledger) setTemplate(t config.Template, r SetTemplate, now time.Time) (config.Template, error) {
	subject := t.ID
	if t.Version == 0 {
		subject = id.New[id.Template](id.NewMinter(now))
	}
	return l.recordTemplate(t, subject, r.Tenant, config.TemplateSet{Name: r.Name, Cron: r.Cron, Description: r.Description}, now, r.Meta)
}

func (l *ledger) recordTemplate(t config.Template, subject id.Template, owner id.Tenant, body event.Body, now time.Time, meta event.Meta) (config.Template, error) {
	e := event.Event{Tenant: owner, Subject: subject.UUID, Version: t.Version + 1, At: now, Meta: meta, Body: body}
	next, err := t.Evolve(e)
	if err == nil {
		l.events = append(l.events, e)
	}
	return next, err
}

// useTemplate gives locked configs the expression of their template.
func (l *ledger) useTemplate(ctx context.Context, tx *store.Tx, t config.Template, locked []store.ConfigState, now time.Time, meta event.Meta) (int, error) {
	var changed []store.ConfigState
	for i := range locked {
		c := &locked[i]
		if !c.DeletedAt.IsZero() || c.Spec.Trigger.Template != t.Name {
			continue // by now
		}
		spec := c.Spec
		spec.Trigger.Expression = t.Cron
		next, err := spec.Schedule()
		if err != nil {
			return 0, fault.New(fault.InvalidArgument, fmt.Sprintf("config %s cannot use it: %v", c.Name, err), fault.Field("cron"),
				fault.Remedy("use an expression that fires in "+spec.Timezone+" too"))
		}
		before, err := c.Spec.Schedule()
		if err != nil {
			return 0, err
		}
		if err := l.edit(c, before, spec, notBefore(*c, now), "template "+t.Name+" changed", meta); err != nil {
			return 0, err
		}
		l.plan(c, next)
		changed = append(changed, *c)
	}
	return len(changed), tx.SaveConfigs(ctx, changed)
}

// edit replaces the spec of a config. The slots of its old schedule up to now are recorded.
func (l *ledger) edit(c *store.ConfigState, before *schedule.Schedule, spec config.Spec, now time.Time, reason string, meta event.Meta) error {
	sameTimes := c.Spec.SameTimes(spec)
	if !sameTimes {
		l.close(c, before, now, config.SkippedEdited, reason)
	}
	moved := c.MovedTo // an edit of anything but the schedule leaves it
	if err := l.record(c, config.Changed{Spec: spec, Reason: reason}, now, meta); err != nil {
		return err
	}
	if sameTimes && !moved.IsZero() {
		return l.record(c, config.Moved{To: moved}, now, meta)
	}
	return nil
}

// DeleteTemplate deletes a template that no config uses.
func (e *Engine) DeleteTemplate(ctx context.Context, owner id.Tenant, name string, meta event.Meta) error {
	if _, builtIn := schedule.Resolve(name); builtIn {
		return fault.New(fault.InvalidArgument, name+" is built in and cannot be deleted", fault.Field("name"), fault.Remedy("leave it: it costs nothing"))
	}
	return e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		t, known, err := tx.LockTemplate(ctx, owner, name)
		if err != nil {
			return err
		}
		if !known {
			return fault.New(fault.NotFound, fmt.Sprintf("no template %.100q", name), fault.Field("name"), fault.Remedy("look at servo templates list"))
		}
		users, err := tx.ConfigsOfTemplate(ctx, owner, name)
		if err != nil {
			return err
		}
		if len(users) > 0 {
			return usedTemplate(name, users)
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		l := newLedger(e.config.Server)
		if _, err := l.recordTemplate(t, t.ID, owner, config.TemplateDeleted{}, now, meta); err != nil {
			return err
		}
		if err := tx.DeleteTemplate(ctx, t); err != nil {
			return err
		}
		return l.write(ctx, tx, now)
	})
}

func usedTemplate(name string, users []store.NamedConfig) error {
	var names []string
	for _, u := range users[:min(len(users), dependentsNamed)] {
		names = append(names, u.Name)
	}
	text := strings.Join(names, ", ")
	if len(users) > len(names) {
		text += " and others"
	}
	return fault.New(fault.Conflict, fmt.Sprintf("%d configs use template %s: %s", len(users), name, text), fault.Field("name"),
		fault.Remedy("give them another trigger first"), fault.Value("configs", names))
}

// templates are the expressions of the tenant's templates that configs of a request use.
type templates struct {
	own   map[string]string
	names []string // all of them, if a used one does not exist
}

// readTemplates locks the templates that a request uses before any config is locked, in the order in which
// SetTemplate locks them.
func readTemplates(ctx context.Context, tx *store.Tx, owner id.Tenant, configs []SaveConfig) (t templates, err error) {
	var used []string
	for _, c := range configs {
		if name := c.Spec.Trigger.Template; name != "" && config.ValidateName(name) == nil {
			used = append(used, name)
		}
	}
	if t.own, err = tx.ShareTemplates(ctx, owner, used); err != nil {
		return t, err
	}
	for _, name := range used {
		_, builtIn := schedule.Resolve(name)
		if _, own := t.own[name]; own || builtIn {
			continue
		}
		t.names, err = tx.TemplateNames(ctx, owner)
		return t, err
	}
	return t, nil
}

// resolve writes the expression of a tenant's template into a trigger; built-in ones stay names.
func (t templates) resolve(trigger *config.Trigger) error {
	trigger.Expression = ""
	if trigger.Template == "" {
		return nil
	}
	if cron, own := t.own[trigger.Template]; own {
		trigger.Expression = cron
		return nil
	}
	if _, builtIn := schedule.Resolve(trigger.Template); !builtIn {
		return config.UnknownTemplate(trigger.Template, t.names)
	}
	return nil
}
