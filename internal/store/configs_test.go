package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// newConfig is an hourly config that is due in an hour, and nowhere yet.
func (w *world) newConfig(a account, name string) store.ConfigState {
	anchor := w.now
	return store.ConfigState{
		Config: config.Config{
			Tenant: a.tenant, ID: id.New[id.Config](w.mint), Workspace: a.workspace.ID, Name: name, Version: 1, Enabled: true,
			Spec: config.Spec{
				Pipeline: "daily", Labels: map[string]string{"provider": "AWS"}, Priority: 5, Overlap: config.OverlapSkip,
				Trigger: config.Trigger{Interval: asset.Duration(time.Hour), Anchor: &anchor},
			},
			CreatedBy: "jo", CreatedAt: w.now, UpdatedAt: w.now,
		},
		Times:         config.Times{DecidedUntil: w.now, NextSlot: w.now.Add(time.Hour), DueAt: w.now.Add(time.Hour), ZoneData: "2026a"},
		WorkspaceName: a.workspace.Name,
	}
}

// config writes a config, with what change makes of it.
func (w *world) config(t testing.TB, a account, name string, change func(*store.ConfigState)) store.ConfigState {
	t.Helper()
	c := w.newConfig(a, name)
	if change != nil {
		change(&c)
	}
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.SaveConfigs(t.Context(), []store.ConfigState{c})) })
	return c
}

func skipped(c store.ConfigState, from, to time.Time, slots int64) store.SkippedSlots {
	return store.SkippedSlots{ConfigKey: c.Key(), Range: config.Range{From: from, To: to, Slots: slots, Outcome: config.SkippedCatchup, Reason: "missed", Version: 1}}
}

// locked is a config as the engine finds it.
func (w *world) locked(t testing.TB, key store.ConfigKey) (c store.ConfigState) {
	t.Helper()
	w.engine(t, func(tx *Tx) {
		found := must(tx.LockConfigs(t.Context(), []store.ConfigKey{key}))(t)
		require.Len(t, found, 1)
		c = found[0]
	})
	return c
}

func configIDs(configs []store.ConfigState) (ids []id.Config) {
	for _, c := range configs {
		ids = append(ids, c.ID)
	}
	return ids
}

func TestConfigRows(t *testing.T) {
	t.Parallel()

	t.Run("a config comes back as it was written, new and changed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		c := w.config(t, w.account(t, "acme"), "nightly", nil)
		require.Equal(t, c, w.locked(t, c.Key()))

		at := w.now.Add(time.Minute)
		c.Version, c.Enabled, c.DisabledReason, c.PausedAt, c.PauseNote, c.MovedTo, c.UpdatedAt, c.DeletedAt = 2, false, "why", at, "note", at, at, at
		c.Spec.Pipeline, c.Spec.Labels, c.Spec.Trigger = "weekly", nil, config.Trigger{Event: &config.Event{Config: "first"}}
		c.DecidedUntil, c.NextSlot, c.DueAt, c.ZoneData, c.Failures = at, time.Time{}, time.Time{}, "2026b", 3
		w.engine(t, func(tx *Tx) {
			require.NoError(t, tx.SaveConfigs(t.Context(), []store.ConfigState{c}))
			require.NoError(t, tx.SaveConfigs(t.Context(), nil))
		})
		require.Equal(t, c, w.locked(t, c.Key()))
		require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.configs WHERE pipeline = 'weekly' AND labels = '{}'`), "as they are asked for")
	})

	t.Run("whom it runs after, listens to and depends on is read off the spec", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		trigger := func(e config.Event) func(*store.ConfigState) {
			return func(c *store.ConfigState) { c.Spec.Trigger = config.Trigger{Event: &e} }
		}
		w.config(t, a, "first", func(c *store.ConfigState) {
			c.Spec.DependsOn = &config.Dependency{Config: "zero", Within: asset.Duration(time.Hour)}
		})
		w.config(t, a, "second", trigger(config.Event{Config: "first"}))
		w.config(t, a, "third", trigger(config.Event{Name: "prices"}))
		for _, some := range []string{
			`name = 'first' AND depends_on = 'zero' AND after_config IS NULL AND on_event IS NULL`,
			`name = 'second' AND after_config = 'first' AND num_nulls(on_event, depends_on) = 2`,
			`name = 'third' AND on_event = 'prices' AND num_nulls(after_config, depends_on) = 2`,
		} {
			require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.configs WHERE `+some), some)
		}
	})

	t.Run("a name is taken until its config is deleted", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		first := w.config(t, a, "nightly", nil)
		again := w.newConfig(a, "nightly")
		err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error { return tx.SaveConfigs(ctx, []store.ConfigState{again}) })
		require.True(t, fault.Is(err, fault.AlreadyExists), err)
		require.ErrorContains(t, err, "config nightly exists")
		w.config(t, w.workspace(t, a, "staging"), "nightly", nil)
		w.config(t, w.account(t, "brick"), "nightly", nil)

		first.DeletedAt, first.DueAt = w.now, time.Time{}
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.SaveConfigs(t.Context(), []store.ConfigState{first, again})) })
		name := store.ConfigName{Tenant: a.tenant, Workspace: a.workspace.ID, Name: "nightly"}
		other := store.ConfigName{Tenant: a.tenant, Workspace: a.workspace.ID, Name: "daily"}
		w.engine(t, func(tx *Tx) {
			require.Equal(t, map[store.ConfigName]id.Config{name: again.ID}, must(tx.ConfigIDs(t.Context(), []store.ConfigName{other, name}))(t))
		})
	})

	t.Run("who creates the same configs waits, in the order of their names", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		save := func(configs ...store.ConfigState) func(ctx context.Context, tx *Tx) error {
			return func(ctx context.Context, tx *Tx) error { return tx.SaveConfigs(ctx, configs) }
		}
		held := w.hold(t, save(w.newConfig(a, "first")))
		// it waits for the first before it has the second
		waits := w.blocked(t, save(w.newConfig(a, "second"), w.newConfig(a, "first")))
		w.config(t, a, "second", nil)
		held.commit(t)
		require.True(t, fault.Is(waits(), fault.AlreadyExists))
	})

	t.Run("a config that does not fire is never due", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		for _, change := range []func(*store.ConfigState){
			func(c *store.ConfigState) { c.PausedAt = w.now },
			func(c *store.ConfigState) { c.DeletedAt = w.now },
			func(c *store.ConfigState) { c.Enabled = false },
		} {
			c := w.newConfig(a, "nightly")
			change(&c)
			err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error { return tx.SaveConfigs(ctx, []store.ConfigState{c}) })
			require.ErrorContains(t, err, "due_when_alive")
		}
	})
}

func TestLockConfigs(t *testing.T) {
	t.Parallel()

	t.Run("those that are due come by their times, and what another holds is passed over", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "acme"), w.account(t, "brick")
		due := func(after time.Duration) func(*store.ConfigState) {
			return func(c *store.ConfigState) { c.DueAt = w.now.Add(after) }
		}
		third := w.config(t, a, "third", due(3*time.Second))
		first := w.config(t, b, "first", due(time.Second))
		second := w.config(t, a, "second", due(2*time.Second))
		w.config(t, a, "later", due(time.Hour))
		w.config(t, a, "never", func(c *store.ConfigState) { c.DueAt = time.Time{} })
		now := w.now.Add(time.Minute)
		w.undone(t, func(tx *Tx) {
			all := must(tx.LockDueConfigs(t.Context(), now, 10))(t)
			slices.SortFunc(all, func(a, b store.ConfigState) int { return a.DueAt.Compare(b.DueAt) })
			require.Equal(t, []store.ConfigState{first, second, third}, all)
		})
		held := w.hold(t, func(ctx context.Context, tx *Tx) error {
			require.Equal(t, []id.Config{first.ID}, configIDs(must(tx.LockDueConfigs(ctx, now, 1))(t)), "the most overdue first")
			return nil
		})
		w.engine(t, func(tx *Tx) {
			require.Equal(t, []id.Config{second.ID}, configIDs(must(tx.LockDueConfigs(t.Context(), now, 1))(t)), "no transaction waits")
			require.Equal(t, w.now.Add(time.Second), must(w.NextDue(t.Context()))(t).At)
		})
		held.commit(t)
	})

	t.Run("those that are asked for are waited for, in the order of their ids", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "acme"), w.account(t, "brick")
		first, second := w.config(t, a, "first", nil), w.config(t, a, "second", nil)
		foreign := store.ConfigKey{Tenant: b.tenant, Config: first.ID}
		lock := func(keys ...store.ConfigKey) func(ctx context.Context, tx *Tx) error {
			return func(ctx context.Context, tx *Tx) error { _, err := tx.LockConfigs(ctx, keys); return err }
		}
		held := w.hold(t, lock(first.Key()))
		// it waits for the first before it has the second
		waits := w.blocked(t, lock(second.Key(), first.Key()))
		w.engine(t, func(tx *Tx) {
			require.Equal(t, []id.Config{second.ID}, configIDs(must(tx.LockConfigs(t.Context(), []store.ConfigKey{second.Key()}))(t)))
			require.Empty(t, must(tx.LockConfigs(t.Context(), []store.ConfigKey{foreign}))(t), "the tenant is part of the key")
			require.Empty(t, must(tx.LockConfigs(t.Context(), nil))(t))
			require.Equal(t, []id.Config{second.ID}, configIDs(must(tx.LockFreeConfigs(t.Context(), []store.ConfigKey{second.Key(), first.Key()}))(t)), "or they are left out")
		})
		held.commit(t)
		require.NoError(t, waits())
		w.engine(t, func(tx *Tx) {
			require.Equal(t, []id.Config{first.ID, second.ID}, configIDs(must(tx.LockConfigs(t.Context(), []store.ConfigKey{second.Key(), first.Key()}))(t)))
		})
	})

	t.Run("they have their current range, and the success of their dependency", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		holder := id.New[id.Run](w.mint)
		source := w.config(t, a, "source", nil)
		source.LastSuccessAt = w.now.Add(-time.Minute)
		c := w.config(t, a, "nightly", func(c *store.ConfigState) {
			c.RangeFrom = w.now
			c.Spec.DependsOn = &config.Dependency{Config: "source", Within: asset.Duration(time.Hour)}
		})
		in := store.SkippedSlots{ConfigKey: c.Key(), Range: config.Range{
			From: w.now, To: w.now, Slots: 1, Outcome: config.SkippedOverlap, Reason: "busy", Version: 7, Run: &holder,
		}}
		w.engine(t, func(tx *Tx) {
			require.NoError(t, tx.MoveConfigs(t.Context(), []store.ConfigState{source}))
			require.NoError(t, tx.WriteLedger(t.Context(), nil, []store.SkippedSlots{in}, w.now, "a"))
		})
		c.Range = config.Range{Outcome: config.SkippedOverlap, Reason: "busy", Version: 7, Run: &holder}
		c.DependencyAt = source.LastSuccessAt
		require.Equal(t, c, w.locked(t, c.Key()))
		w.engine(t, func(tx *Tx) {
			require.Contains(t, must(tx.LockDueConfigs(t.Context(), w.now.Add(time.Hour), 10))(t), c)
		})
		source.DeletedAt, source.DueAt = w.now, time.Time{}
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.SaveConfigs(t.Context(), []store.ConfigState{source})) })
		require.Zero(t, w.locked(t, c.Key()).DependencyAt, "a deleted config satisfies no dependency")
	})
}

// must3 gives when the next config is due.
func TestMoveConfigs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	c := w.config(t, a, "nightly", func(c *store.ConfigState) { c.MovedTo = w.now.Add(2 * time.Hour) })
	other := w.config(t, a, "other", nil)
	move := func(at time.Time) {
		c.DecidedUntil = at
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.MoveConfigs(t.Context(), []store.ConfigState{c})) })
	}
	made := id.New[id.Run](w.mint)
	c.NextSlot, c.DueAt, c.ZoneData, c.RangeFrom, c.Failures = w.now.Add(2*time.Hour), w.now.Add(3*time.Hour), "2026c", w.now, 4
	c.LastSlot, c.LastRun, c.LastState, c.LastRunAt, c.LastSuccessAt = w.now, &made, int16(run.RunSucceeded), w.now, w.now
	move(w.now.Add(time.Hour))
	require.Equal(t, c, w.locked(t, c.Key()), "a slot that was moved and is to come stays")
	require.Equal(t, other, w.locked(t, other.Key()))

	c.NextSlot, c.DueAt, c.RangeFrom, c.LastSlot, c.LastRun, c.LastState = time.Time{}, time.Time{}, time.Time{}, time.Time{}, nil, 0
	c.LastRunAt, c.LastSuccessAt = time.Time{}, time.Time{}
	move(w.now.Add(2 * time.Hour))
	c.MovedTo = time.Time{}
	require.Equal(t, c, w.locked(t, c.Key()), "one that is decided is forgotten")

	c.Tenant = id.New[id.Tenant](w.mint)
	err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error { return tx.MoveConfigs(ctx, []store.ConfigState{c}) })
	require.ErrorAs(t, err, new(*store.MismatchError), "the tenant is part of the key")
}

func TestLedger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	c, other := w.config(t, a, "nightly", nil), w.config(t, b, "nightly", nil)
	hour := func(n int) time.Time { return w.now.Add(time.Duration(n) * time.Hour) }
	made := id.New[id.Run](w.mint)
	fired := store.FiredSlot{ConfigKey: c.Key(), At: hour(4), Run: made}
	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.WriteLedger(t.Context(), nil, []store.SkippedSlots{skipped(c, hour(1), hour(2), 2), skipped(other, hour(1), hour(1), 1)}, w.now, "a"))
	})
	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.WriteLedger(t.Context(), []store.FiredSlot{fired},
			[]store.SkippedSlots{skipped(c, hour(1), hour(3), 1), skipped(c, hour(5), hour(6), 2)}, hour(1), "b"))
	})
	entry := func(r config.Range, at time.Time, by string) store.LedgerEntry {
		return store.LedgerEntry{Range: r, DecidedAt: at, DecidedBy: by}
	}
	all := []store.LedgerEntry{
		entry(skipped(c, hour(5), hour(6), 2).Range, hour(1), "b"),
		entry(config.Range{From: hour(4), To: hour(4), Slots: 1, Outcome: config.Fired, Run: &made}, hour(1), "b"),
		entry(skipped(c, hour(1), hour(3), 3).Range, hour(1), "b"),
	}
	list := func(t *testing.T, key store.ConfigKey, from, before time.Time, most int) []store.LedgerEntry {
		t.Helper()
		return must(w.ListSlots(t.Context(), key, from, before, most))(t)
	}

	t.Run("the whole ledger comes with the history, as of one moment", func(t *testing.T) {
		t.Parallel()
		l := must(w.ReadLedger(t.Context(), c.Key(), 10))(t)
		require.Len(t, l.Fired, 1)
		require.Len(t, l.Ranges, 2)
		require.Equal(t, c.DecidedUntil, l.DecidedUntil)
		_, err := w.ReadLedger(t.Context(), store.ConfigKey{Tenant: c.Tenant}, 10)
		require.True(t, fault.Is(err, fault.NotFound))
	})

	t.Run("a continuing range is in the row that it began with", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, all, list(t, c.Key(), w.now, hour(9), 10))
	})

	t.Run("the newest come first, page by page, with all that have slots in the time", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, all[:2], list(t, c.Key(), w.now, hour(9), 2))
		require.Equal(t, all[2:], list(t, c.Key(), w.now, hour(4), 10), "before is not part of it")
		require.Equal(t, all[1:], list(t, c.Key(), hour(3), hour(5), 10), "a range that only ends in it is")
		require.Empty(t, list(t, c.Key(), hour(7), hour(9), 10))
	})

	t.Run("a config is its tenant's alone", func(t *testing.T) {
		t.Parallel()
		require.Len(t, list(t, other.Key(), w.now, hour(9), 10), 1)
		require.Empty(t, list(t, store.ConfigKey{Tenant: b.tenant, Config: c.ID}, w.now, hour(9), 10))
	})

	t.Run("a slot fires once", func(t *testing.T) {
		t.Parallel()
		again := fired
		again.Run = id.Of[id.Run](uuid.New())
		err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
			return tx.WriteLedger(ctx, []store.FiredSlot{again}, nil, w.now, "c")
		})
		require.ErrorContains(t, err, "slots_pkey")
		require.False(t, store.IsLockTaken(err))
	})
}

func TestListeners(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	staging := w.workspace(t, a, "staging")
	after := func(change func(*store.ConfigState)) func(*store.ConfigState) {
		return func(c *store.ConfigState) {
			c.Spec.Trigger, c.DueAt = config.Trigger{Event: &config.Event{Config: "source"}}, time.Time{}
			if change != nil {
				change(c)
			}
		}
	}
	source, apart := w.config(t, a, "source", nil), w.config(t, b, "source", nil)
	first, second := w.config(t, a, "first", after(nil)), w.config(t, a, "second", after(nil))
	w.config(t, a, "paused", after(func(c *store.ConfigState) { c.PausedAt = w.now }))
	w.config(t, a, "disabled", after(func(c *store.ConfigState) { c.Enabled = false }))
	w.config(t, a, "deleted", after(func(c *store.ConfigState) { c.DeletedAt = w.now }))
	w.config(t, staging, "elsewhere", after(nil))
	theirs := w.config(t, b, "theirs", after(nil))
	w.engine(t, func(tx *Tx) {
		require.ElementsMatch(t, []store.ConfigKey{first.Key(), second.Key()}, must(tx.ListenersOf(t.Context(), []store.ConfigKey{source.Key(), apart.Key()}))(t)[source.ID])
		require.Equal(t, map[id.Config][]store.ConfigKey{apart.ID: {theirs.Key()}}, must(tx.ListenersOf(t.Context(), []store.ConfigKey{apart.Key()}))(t))
		require.Empty(t, must(tx.ListenersOf(t.Context(), []store.ConfigKey{{Tenant: b.tenant, Config: source.ID}, first.Key()}))(t))
	})
}

func TestClaimedRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	cancelled := []run.TaskState{run.Cancelled, run.Cancelled}
	claimed, never, waits := w.newRun(t, a, cancelled, nil, nil), w.newRun(t, a, cancelled, nil, nil), w.newRun(t, a, nil, nil)
	w.Exec(t, `UPDATE servo.tasks SET attempt = 0 WHERE run_id = '`+never.run.ID.String()+`' OR ix = 0 AND attempt IS NOT NULL`)
	w.engine(t, func(tx *Tx) {
		require.Equal(t, map[id.Run]bool{claimed.run.ID: true}, must(tx.ClaimedRuns(t.Context(), []store.RunKey{claimed.key(), never.key(), waits.key()}))(t))
		require.Empty(t, must(tx.ClaimedRuns(t.Context(), nil))(t))
	})
}

func TestConfigResults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	c := w.config(t, a, "nightly", nil)
	due := must(w.NextDue(t.Context()))(t)
	require.False(t, due.Now.Before(w.now))
	require.Equal(t, store.Due{Now: due.Now, At: c.DueAt}, due)

	var results []store.ConfigResult
	for _, state := range []run.State{run.RunSucceeded, run.RunFailed, run.RunCancelled} {
		results = append(results, store.ConfigResult{ConfigKey: c.Key(), ID: int64(len(results) + 1), Run: id.New[id.Run](w.mint), State: state, At: w.now})
		w.apply(t, store.Changes{Results: results[len(results)-1:]})
	}
	require.True(t, must(w.NextDue(t.Context()))(t).Results)

	first := w.hold(t, func(ctx context.Context, tx *Tx) error {
		require.Equal(t, results[:1], must(tx.TakeConfigResults(ctx, 1))(t), "the oldest first")
		return nil
	})
	w.engine(t, func(tx *Tx) {
		require.Equal(t, results[1:], must(tx.TakeConfigResults(t.Context(), 10))(t), "what another takes is passed over")
	})
	first.commit(t)
	w.engine(t, func(tx *Tx) { require.Empty(t, must(tx.TakeConfigResults(t.Context(), 10))(t), "each is taken once") })

	c.DueAt = time.Time{}
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.SaveConfigs(t.Context(), []store.ConfigState{c})) })
	require.Equal(t, 9999, must(w.NextDue(t.Context()))(t).At.Year(), "nothing is to come")
}

func TestConfigsOfOtherZoneData(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	first, second, third := w.config(t, a, "first", nil), w.config(t, a, "second", nil), w.config(t, b, "third", nil)
	w.config(t, a, "new", func(c *store.ConfigState) { c.ZoneData = "2026b" })
	w.config(t, a, "deleted", func(c *store.ConfigState) { c.DeletedAt, c.DueAt = w.now, time.Time{} })
	w.engine(t, func(tx *Tx) {
		require.Empty(t, must(tx.ConfigsOfOtherZoneData(t.Context(), "2025c", false, store.ConfigKey{}, 2))(t), "newer ones are not asked for")
		require.Len(t, must(tx.ConfigsOfOtherZoneData(t.Context(), "2025c", true, store.ConfigKey{}, 10))(t), 4)
		page := func(after store.ConfigKey) []store.ConfigKey {
			return must(tx.ConfigsOfOtherZoneData(t.Context(), "2026b", false, after, 2))(t)
		}
		require.Equal(t, []store.ConfigKey{first.Key(), second.Key()}, page(store.ConfigKey{}))
		require.Equal(t, []store.ConfigKey{third.Key()}, page(second.Key()))
		require.Empty(t, page(third.Key()))
	})
}
