package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// sendEvent writes an event with what change makes of it, and reports whether its key was new.
func (w *world) sendEvent(t testing.TB, a account, key string, change func(*config.OutsideEvent)) (o config.OutsideEvent, inserted bool) {
	t.Helper()
	o = config.OutsideEvent{
		Tenant: a.tenant, ID: id.New[id.Event](w.mint), Workspace: a.workspace.ID, Name: "prices", Key: key, Parameters: json.RawMessage(`{"day": "1"}`),
		Reason: "as agreed", SentBy: "jo", Version: 1, ReceivedAt: w.now, Listeners: 2, Skipped: map[string]int32{},
	}
	if change != nil {
		change(&o)
	}
	w.engine(t, func(tx *Tx) { inserted = must(tx.InsertEvent(t.Context(), o))(t) })
	return o, inserted
}

// listener writes a config that listens to prices.
func (w *world) listener(t testing.TB, a account, name string, change func(*store.ConfigState)) store.ConfigState {
	t.Helper()
	return w.config(t, a, name, func(c *store.ConfigState) {
		c.Spec.Trigger, c.DueAt = config.Trigger{Event: &config.Event{Name: "prices"}}, time.Time{}
		if change != nil {
			change(c)
		}
	})
}

func TestInbox(t *testing.T) {
	t.Parallel()

	t.Run("a key is taken once, by workspace and name", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "acme"), w.account(t, "brick")
		first, inserted := w.sendEvent(t, a, "k", nil)
		require.True(t, inserted)
		_, inserted = w.sendEvent(t, a, "k", func(o *config.OutsideEvent) { o.Parameters = json.RawMessage(`{}`) })
		require.False(t, inserted)
		_, inserted = w.sendEvent(t, a, "k", func(o *config.OutsideEvent) { o.Name = "orders" })
		require.True(t, inserted)
		_, inserted = w.sendEvent(t, b, "k", nil)
		require.True(t, inserted)
		w.engine(t, func(tx *Tx) {
			key := store.EventKey{Tenant: a.tenant, Workspace: a.workspace.ID, Name: "prices", Key: "k"}
			found, known, err := tx.EventByKey(t.Context(), key)
			require.NoError(t, err)
			require.True(t, known)
			require.Equal(t, first, found)
			key.Key = "other"
			_, known, err = tx.EventByKey(t.Context(), key)
			require.NoError(t, err)
			require.False(t, known)
		})
		view := must(w.GetEvent(t.Context(), a.tenant, first.ID))(t)
		require.Equal(t, store.EventView{OutsideEvent: first, WorkspaceName: a.workspace.Name}, view)
		_, err := w.GetEvent(t.Context(), b.tenant, first.ID)
		require.True(t, fault.Is(err, fault.NotFound), "%v", err)
	})

	t.Run("the oldest that are not done are taken, and what another has taken is passed over", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		second, _ := w.sendEvent(t, a, "2", nil)
		first, _ := w.sendEvent(t, a, "1", func(o *config.OutsideEvent) { o.ReceivedAt = w.now.Add(-time.Second) })
		require.True(t, must(w.NextDue(t.Context()))(t).Events)
		held := w.hold(t, func(ctx context.Context, tx *Tx) error {
			require.Equal(t, []config.OutsideEvent{first}, must(tx.TakeEvents(ctx, 1))(t))
			first.Version, first.Runs, first.DoneAt, first.After = 2, 3, w.now, id.New[id.Config](w.mint)
			first.Skip(config.SkippedOverlap)
			return tx.UpdateEvents(ctx, []config.OutsideEvent{first})
		})
		w.engine(t, func(tx *Tx) { require.Equal(t, []config.OutsideEvent{second}, must(tx.TakeEvents(t.Context(), 10))(t)) })
		held.commit(t)
		w.engine(t, func(tx *Tx) { require.Equal(t, []config.OutsideEvent{second}, must(tx.TakeEvents(t.Context(), 10))(t)) })
		require.Equal(t, first, must(w.GetEvent(t.Context(), a.tenant, first.ID))(t).OutsideEvent)
	})

	t.Run("only those of its tenant and workspace listen that are enabled and not paused, in the order of their ids", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "acme"), w.account(t, "brick")
		first, second, third := w.listener(t, a, "first", nil), w.listener(t, a, "second", nil), w.listener(t, a, "third", nil)
		w.listener(t, a, "paused", func(c *store.ConfigState) { c.PausedAt = w.now })
		w.listener(t, a, "disabled", func(c *store.ConfigState) { c.Enabled = false })
		w.listener(t, a, "deleted", func(c *store.ConfigState) { c.DeletedAt = w.now })
		w.listener(t, a, "other", func(c *store.ConfigState) { c.Spec.Trigger.Event.Name = "orders" })
		theirs := w.listener(t, b, "theirs", nil)
		mine, _ := w.sendEvent(t, a, "k", nil)
		other, _ := w.sendEvent(t, b, "k", nil)
		w.engine(t, func(tx *Tx) {
			found := must(tx.EventListeners(t.Context(), []config.OutsideEvent{mine, other}, 2))(t)
			require.Equal(t, map[id.Event][]store.ConfigKey{mine.ID: {first.Key(), second.Key()}, other.ID: {theirs.Key()}}, found)
			mine.After = second.ID
			require.Equal(t, []store.ConfigKey{third.Key()}, must(tx.EventListeners(t.Context(), []config.OutsideEvent{mine}, 2))(t)[mine.ID])
			key := store.EventKey{Tenant: a.tenant, Workspace: a.workspace.ID, Name: "prices"}
			require.EqualValues(t, 3, must(tx.CountEventListeners(t.Context(), key))(t))
			some := must(tx.SomeEventListeners(t.Context(), key, 2))(t)
			require.Len(t, some, 2)
			require.Equal(t, store.EventListener{Name: "first", Spec: first.Spec}, some[0])
		})
	})

	t.Run("what is done is forgotten by its age, what is not never", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		old := func(o *config.OutsideEvent) { o.ReceivedAt = w.now.Add(-2 * time.Hour) }
		done, _ := w.sendEvent(t, a, "old", old)
		pending, _ := w.sendEvent(t, a, "pending", old)
		fresh, _ := w.sendEvent(t, a, "fresh", nil)
		w.engine(t, func(tx *Tx) {
			for _, o := range []*config.OutsideEvent{&done, &fresh} {
				o.DoneAt = w.now
			}
			must(tx.TakeEvents(t.Context(), 10))(t)
			require.NoError(t, tx.UpdateEvents(t.Context(), []config.OutsideEvent{done, fresh}))
		})
		require.EqualValues(t, 1, must(w.ForgetEvents(t.Context(), time.Hour, 10))(t))
		_, err := w.GetEvent(t.Context(), a.tenant, done.ID)
		require.True(t, fault.Is(err, fault.NotFound), "%v", err)
		for _, left := range []id.Event{pending.ID, fresh.ID} {
			must(w.GetEvent(t.Context(), a.tenant, left))(t)
		}
	})
}

func TestConfigsThatNameOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	source := w.config(t, a, "source", nil)
	w.config(t, a, "b-after", func(c *store.ConfigState) {
		c.Spec.Trigger, c.DueAt = config.Trigger{Event: &config.Event{Config: "source"}}, time.Time{}
	})
	w.config(t, a, "a-depends", func(c *store.ConfigState) { c.Spec.DependsOn = &config.Dependency{Config: "source"} })
	w.config(t, a, "deleted", func(c *store.ConfigState) {
		c.Spec.DependsOn, c.DeletedAt, c.DueAt = &config.Dependency{Config: "source"}, w.now, time.Time{}
	})
	w.config(t, b, "theirs", func(c *store.ConfigState) { c.Spec.DependsOn = &config.Dependency{Config: "source"} })
	w.engine(t, func(tx *Tx) {
		name := store.ConfigName{Tenant: a.tenant, Workspace: a.workspace.ID, Name: "source"}
		require.Equal(t, []string{"a-depends", "b-after"}, must(tx.ConfigDependents(t.Context(), name, 10))(t))
		require.Len(t, must(tx.ConfigDependents(t.Context(), name, 1))(t), 1)
		require.Equal(t, []string{"a-depends", "b-after", "source"}, must(tx.ConfigNames(t.Context(), a.workspace, 10))(t))
		require.Equal(t, map[string][]string{"a-depends": {"source"}, "b-after": {"source"}}, must(tx.ConfigEdges(t.Context(), a.workspace))(t))

		after := source.ID
		left := store.ConfigResult{ConfigKey: source.Key(), ID: 7, Run: id.New[id.Run](w.mint), State: run.RunSucceeded, At: w.now, After: &after}
		waits := store.ConfigResult{ConfigKey: source.Key(), ID: 8, Run: id.New[id.Run](w.mint), State: run.RunFailed, At: w.now}
		require.NoError(t, tx.LeaveConfigResults(t.Context(), nil))
		require.NoError(t, tx.LeaveConfigResults(t.Context(), []store.ConfigResult{waits, left}))
		require.Equal(t, []store.ConfigResult{left, waits}, must(tx.TakeConfigResults(t.Context(), 10))(t))
	})
}

// template writes a template of a tenant.
func (w *world) template(t testing.TB, a account, name string) config.Template {
	t.Helper()
	made := config.Template{
		Tenant: a.tenant, ID: id.New[id.Template](w.mint), Name: name, Version: 1, Cron: "0 6 * * *", Description: "early", ChangedBy: "jo",
		CreatedAt: w.now, UpdatedAt: w.now,
	}
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.SaveTemplate(t.Context(), made)) })
	return made
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	early, theirs := w.template(t, a, "early"), w.template(t, b, "early")
	late := w.template(t, a, "late")
	uses := func(c *store.ConfigState) { c.Spec.Trigger = config.Trigger{Template: "early", Expression: early.Cron} }
	first, second := w.config(t, a, "first", uses), w.config(t, a, "second", uses)
	w.config(t, b, "theirs", uses)
	w.config(t, a, "deleted", func(c *store.ConfigState) { uses(c); c.DeletedAt, c.DueAt = w.now, time.Time{} })
	require.Equal(t, []config.Template{early, late}, must(w.ListTemplates(t.Context(), a.tenant))(t))
	w.engine(t, func(tx *Tx) {
		ctx := t.Context()
		require.Equal(t, map[string]string{"early": early.Cron}, must(tx.ShareTemplates(ctx, a.tenant, []string{"early", "none"}))(t))
		require.Empty(t, must(tx.ShareTemplates(ctx, a.tenant, nil))(t))
		require.Equal(t, []string{"early", "late"}, must(tx.TemplateNames(ctx, a.tenant))(t))
		require.Equal(t, []store.NamedConfig{{ConfigKey: first.Key(), Name: "first"}, {ConfigKey: second.Key(), Name: "second"}},
			must(tx.ConfigsOfTemplate(ctx, a.tenant, "early"))(t))
		found, known, err := tx.LockTemplate(ctx, b.tenant, "early")
		require.NoError(t, err)
		require.True(t, known)
		require.Equal(t, theirs, found)
		_, known, err = tx.LockTemplate(ctx, b.tenant, "late")
		require.NoError(t, err)
		require.False(t, known)
		late.Version, late.Cron = 2, "0 9 * * *"
		require.NoError(t, tx.SaveTemplate(ctx, late))
		require.NoError(t, tx.DeleteTemplate(ctx, early))
	})
	require.Equal(t, []config.Template{late}, must(w.ListTemplates(t.Context(), a.tenant))(t))
	require.Equal(t, []config.Template{theirs}, must(w.ListTemplates(t.Context(), b.tenant))(t))
	err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
		double := late
		double.ID = id.New[id.Template](w.mint)
		return tx.SaveTemplate(ctx, double)
	})
	require.True(t, fault.Is(err, fault.AlreadyExists), "%v", err)
}
