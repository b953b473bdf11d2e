package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
	"go.arco.dev/servo/internal/store/internal/db"
)

func TestListAllRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme, brick := w.account(t, "acme"), w.account(t, "brick")
	var made []id.Run // the oldest first
	for i := range 7 {
		a := acme
		if i%2 == 1 {
			a = brick
		}
		g := w.newRun(t, a, nil, nil)
		made = append(made, g.run.ID)
		if i != 3 { // two were made at the same time
			w.later(time.Second)
		}
	}
	slices.Reverse(made)
	w.Exec(t, `UPDATE servo.runs SET pipeline = 'rare' WHERE id = '`+made[5].String()+`'`)
	list := func(t *testing.T, f store.RunFilter, most int) (found []id.Run) {
		t.Helper()
		place := store.RunPlace{}
		for {
			runs, next, err := w.ListAllRuns(t.Context(), f, place, most)
			require.NoError(t, err)
			require.LessOrEqual(t, len(runs), most)
			for _, r := range runs {
				require.Equal(t, "default", r.WorkspaceName)
				found = append(found, r.ID)
			}
			if next == nil {
				return found
			}
			place = *next
		}
	}
	for _, most := range []int{1, 2, 3, 100} {
		require.ElementsMatch(t, made, list(t, store.RunFilter{}, most))
		require.Equal(t, made[5:6], list(t, store.RunFilter{Pipeline: "rare"}, most))
	}
	all := list(t, store.RunFilter{}, 100)
	require.Equal(t, []id.Run{made[0], made[1], made[5], made[6]}, []id.Run{all[0], all[1], all[5], all[6]}, "the newest first")
	require.Len(t, list(t, store.RunFilter{From: w.now.Add(-2 * time.Second)}, 2), 2)
	require.Empty(t, list(t, store.RunFilter{States: []run.State{run.RunFailed}}, 2))
	require.Empty(t, list(t, store.RunFilter{Workspace: "nowhere"}, 2))
	require.Len(t, list(t, store.RunFilter{Workspace: "default"}, 2), 7)
}

func TestLateAndRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme, brick := w.account(t, "acme"), w.account(t, "brick")
	one := func(a account, state run.TaskState) graph {
		t.Helper()
		w.later(time.Second)
		g := w.newRun(t, a, []run.TaskState{state}, nil)
		if state == run.Ready {
			w.Exec(t, `UPDATE servo.ready_q SET attempt = 0 WHERE run_id = '`+g.run.ID.String()+`'`)
		}
		return g
	}
	promise := func(g graph, ago time.Duration, looked bool) {
		t.Helper()
		at := w.now.Add(-ago).Format(time.RFC3339Nano)
		w.Exec(t, fmt.Sprintf(`UPDATE servo.runs SET start_by = '%s' WHERE id = '%s'`, at, g.run.ID))
		if looked {
			w.Exec(t, fmt.Sprintf(`UPDATE servo.live_runs SET breaches = 1, late_at = NULL WHERE run_id = '%s'`, g.run.ID))
			return
		}
		w.Exec(t, fmt.Sprintf(`UPDATE servo.live_runs SET late_at = '%s' WHERE run_id = '%s'`, at, g.run.ID))
	}
	first, second, third := one(acme, run.Ready), one(brick, run.Ready), one(acme, run.Ready)
	begun, inTime, tried := one(acme, run.Running), one(acme, run.Ready), one(acme, run.RetryWait)
	promise(first, time.Hour, true)
	promise(second, 2*time.Hour, false)
	promise(third, time.Minute*90, false)
	promise(begun, 3*time.Hour, true)
	promise(tried, 3*time.Hour, true)
	promise(inTime, -time.Hour, false)
	must(w.WriteProgress(t.Context(), []store.ProgressReport{progress(begun.tasks[0])}))(t)

	ids := func(views []store.RunView) (found []id.Run) {
		for _, v := range views {
			found = append(found, v.ID)
		}
		return found
	}
	late := func(of id.Tenant, workspace string, after store.RunPlace, most int) []store.RunView {
		t.Helper()
		views, now, err := w.ListLateRuns(t.Context(), of, workspace, after, most)
		require.NoError(t, err)
		require.False(t, now.IsZero())
		return views
	}
	all := late(id.Tenant{}, "", store.RunPlace{}, 10)
	require.Equal(t, []id.Run{second.run.ID, third.run.ID, first.run.ID}, ids(all), "of all tenants, the longest first, without those that have begun")
	require.Equal(t, []id.Run{third.run.ID, first.run.ID}, ids(late(id.Tenant{}, "", store.RunPlace{At: all[0].StartBy, Run: all[0].ID.UUID}, 10)))
	require.Equal(t, []id.Run{third.run.ID}, ids(late(acme.tenant, "", store.RunPlace{}, 1)))
	require.Equal(t, []id.Run{second.run.ID}, ids(late(brick.tenant, "default", store.RunPlace{}, 10)), "of one tenant")
	require.Empty(t, late(brick.tenant, "other", store.RunPlace{}, 10))

	running := func(of id.Tenant, workspace string, after *id.Run, most int) (found []id.Run, views []store.RunningRun) {
		t.Helper()
		views = must(w.RunningRuns(t.Context(), of, workspace, after, most))(t)
		for _, v := range views {
			found = append(found, v.ID)
		}
		return found, views
	}
	everything, views := running(id.Tenant{}, "", nil, 10)
	require.Equal(t, []id.Run{first.run.ID, second.run.ID, third.run.ID, begun.run.ID, inTime.run.ID, tried.run.ID}, everything, "the oldest first")
	require.Equal(t, begun.tasks[0].ID, *views[3].Task)
	require.NotZero(t, views[3].Progress.Fraction)
	require.Nil(t, views[0].Task)
	mine, _ := running(acme.tenant, "default", &first.run.ID, 2)
	require.Equal(t, []id.Run{third.run.ID, begun.run.ID}, mine)
	theirs, _ := running(brick.tenant, "", nil, 10)
	require.Equal(t, []id.Run{second.run.ID}, theirs)
	none, _ := running(brick.tenant, "other", nil, 10)
	require.Empty(t, none)
}

// acrossPlans are the indexes that the reads of operators walk, and how many blocks they may
// touch, for any caller.
var acrossPlans = map[string]struct {
	query   string
	indexes []string
	blocks  int
	send    func(t testing.TB, w *world)
}{
	"the newest runs, of which 5,000 were made at one moment": {"RunsOfAll", []string{"runs_created_at_idx"}, 15_000, func(t testing.TB, w *world) {
		t.Helper()
		runs, _, err := w.ListAllRuns(t.Context(), store.RunFilter{}, store.RunPlace{}, page)
		require.NoError(t, err)
		require.Len(t, runs, page)
	}},
	"a filter that nothing passes": {"RunsOfAll", []string{"runs_created_at_idx"}, 30_000, func(t testing.TB, w *world) {
		t.Helper()
		runs, next, err := w.ListAllRuns(t.Context(), store.RunFilter{Pipeline: "none"}, store.RunPlace{}, page)
		require.NoError(t, err)
		require.Empty(t, runs)
		require.NotNil(t, next, "there are more runs than one page tries")
	}},
	"how far a filter is tried": {"RunsOfAllBound", []string{"runs_created_at_idx"}, 10_000, func(t testing.TB, w *world) {
		t.Helper()
		_, _, err := w.ListAllRuns(t.Context(), store.RunFilter{Pipeline: "none"}, store.RunPlace{}, page)
		require.NoError(t, err)
	}},
	"running": {"RunningNow", []string{"live_runs_running"}, 60_000, func(t testing.TB, w *world) {
		t.Helper()
		require.Len(t, must(w.RunningRuns(t.Context(), id.Tenant{}, "", nil, page))(t), page)
	}},
	"open alerts": {"ListAllOpenAlerts", []string{"alerts_open_newest"}, 20, func(t testing.TB, w *world) {
		t.Helper()
		must(w.AllOpenAlerts(t.Context(), store.AlertFilter{}, page))(t)
	}},
	"runs by key": {"RunsByKey", []string{"runs_pkey"}, 20 * page, func(t testing.TB, w *world) {
		t.Helper()
		must(w.RunningRuns(t.Context(), id.Tenant{}, "", nil, page))(t)
	}},
	"configs of all": {"AllConfigs", nil, 20 * page, func(t testing.TB, w *world) {
		t.Helper()
		must(w.ListAllConfigs(t.Context(), store.ConfigFilter{}, store.ConfigKey{}, page))(t)
	}},
	"configs that fail": {"AllConfigs", []string{"configs_failing"}, 20 * page, func(t testing.TB, w *world) {
		t.Helper()
		must(w.ListAllConfigs(t.Context(), store.ConfigFilter{Failing: true}, store.ConfigKey{}, page))(t)
	}},
	"the last slots of configs": {"RecentSlots", []string{"slots_pkey", "slot_ranges_pkey"}, 200 * page, func(t testing.TB, w *world) {
		t.Helper()
		configs := must(w.ListAllConfigs(t.Context(), store.ConfigFilter{}, store.ConfigKey{}, page))(t)
		keys := []store.ConfigKey{{Tenant: id.New[id.Tenant](w.mint), Config: id.New[id.Config](w.mint)}}
		for _, c := range configs {
			keys = append(keys, c.Key())
		}
		must(w.RecentSlots(t.Context(), id.Tenant{}, keys))(t)
	}},
	"outcomes of a config with more slots than are counted": {"SlotOutcomes", []string{"slots_pkey", "slot_ranges_pkey", "runs_pkey"}, 110_000, func(t testing.TB, w *world) {
		t.Helper()
		c := must(w.ListAllConfigs(t.Context(), store.ConfigFilter{}, store.ConfigKey{}, 1))(t)[0]
		w.Exec(t, fmt.Sprintf(`INSERT INTO servo.slots (tenant_id, config_id, slot_at, run_id, decided_at)
			SELECT '%[1]s', '%[2]s', servo.clock() - (i || ' minutes')::interval, coalesce((SELECT id FROM servo.runs WHERE tenant_id = '%[1]s' ORDER BY id DESC LIMIT 1), gen_random_uuid()), servo.clock()
			FROM generate_series(1, 25000) AS i`, c.Tenant, c.ID))
		bounds := []time.Time{w.now.AddDate(0, 0, -30)}
		for range 31 {
			bounds = append(bounds, bounds[len(bounds)-1].AddDate(0, 0, 1))
		}
		_, oldest, err := w.SlotOutcomes(t.Context(), c.Key(), bounds)
		require.NoError(t, err)
		require.NotZero(t, oldest)
	}},
	"the newest events": {"EventsNewest", []string{"run_event_rows_txid_idx"}, 80 * page, func(t testing.TB, w *world) {
		t.Helper()
		_, _, err := w.RecordedEvents(t.Context(), store.RecordedFilter{Type: "task."}, store.EventCursor{}, page)
		require.NoError(t, err)
	}},
	"how far a filter of events is tried": {"EventsFloor", []string{"run_event_rows_txid_idx"}, 20_000, func(t testing.TB, w *world) {
		t.Helper()
		_, _, err := w.RecordedEvents(t.Context(), store.RecordedFilter{}, store.EventCursor{}, page)
		require.NoError(t, err)
	}},
	"whose an id is": {"OwnersOf", []string{"tenants_pkey", "runs_pkey", "entity_events_pkey"}, 20_000, func(t testing.TB, w *world) {
		t.Helper()
		require.Empty(t, must(w.FindByID(t.Context(), id.Tenant{}, id.New[id.Task](w.mint).UUID))(t))
	}},
	"whose task an id is": {"OwnersOfTask", []string{"tenants_pkey", "runs_pkey", "tasks_pkey"}, 50_000, func(t testing.TB, w *world) {
		t.Helper()
		require.Empty(t, must(w.FindByID(t.Context(), id.Tenant{}, id.New[id.Task](w.mint).UUID))(t))
	}},
	"whose task an id is that was added": {"OwnersOfAddedTask", []string{"runs_created_at_idx", "tasks_pkey"}, 150_000, func(t testing.TB, w *world) {
		t.Helper()
		require.Empty(t, must(w.FindByID(t.Context(), id.Tenant{}, id.New[id.Task](w.mint).UUID))(t))
	}},
	"keys by name and by id": {"KeysNamed", []string{"api_keys_name", "api_keys_public_id_key"}, 1_000, func(t testing.TB, w *world) {
		t.Helper()
		must(w.FindKeys(t.Context(), id.Tenant{}, "abcd", 5))(t)
	}},
	"more configs": {"MoreConfigs", nil, 20_000, func(t testing.TB, w *world) {
		t.Helper()
		must(w.MoreConfigs(t.Context(), id.Tenant{}))(t)
	}},
	"what has an id": {"ThingsByID", []string{"runs_pkey", "configs_pkey", "api_keys_pkey"}, 100, func(t testing.TB, w *world) {
		t.Helper()
		runs, _, err := w.ListAllRuns(t.Context(), store.RunFilter{}, store.RunPlace{}, 1)
		require.NoError(t, err)
		require.Len(t, must(w.FindByID(t.Context(), id.Tenant{}, runs[0].ID.UUID))(t), 1)
	}},
	"tenants by name": {"TenantsNamed", []string{"tenants_name_key"}, 1_000, func(t testing.TB, w *world) {
		t.Helper()
		must(w.FindTenants(t.Context(), "missing", 5))(t)
	}},
	"configs by name": {"ConfigsNamed", nil, 40_000, func(t testing.TB, w *world) {
		t.Helper()
		must(w.FindConfigs(t.Context(), id.Tenant{}, "", "nothing", 5))(t)
	}},
	"locks by name": {"LocksNamed", []string{"live_runs_lock"}, 40_000, func(t testing.TB, w *world) {
		t.Helper()
		runs, _, err := w.ListAllRuns(t.Context(), store.RunFilter{}, store.RunPlace{}, 1)
		require.NoError(t, err)
		must(w.FindLocks(t.Context(), runs[0].Tenant, "", "nothing", 5))(t)
	}},
	"late": {"LateNow", []string{"live_runs_late", "live_runs_breached"}, 30_000, func(t testing.TB, w *world) {
		t.Helper()
		_, _, err := w.ListLateRuns(t.Context(), id.Tenant{}, "", store.RunPlace{}, page)
		require.NoError(t, err)
	}},
}

// TestAcrossPlans asks PostgreSQL how it executes what operators read across tenants.
func TestAcrossPlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(t, 20_000)
	sent := map[string]statement{}
	for name, plan := range acrossPlans {
		sent[name] = w.last(t, plan.query, func() { plan.send(t, w) })
	}
	for _, when := range []string{"with no statistics", "with statistics of today"} { //nolint:paralleltest // the statistics come in between
		t.Run(when, func(t *testing.T) {
			for name, plan := range acrossPlans {
				t.Run(name, func(t *testing.T) {
					conn := w.connection(t)
					tx, err := conn.Begin(t.Context())
					require.NoError(t, err)
					defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
					require.NoError(t, db.New(tx).EnterAllTenants(t.Context()))
					root := explain(t, tx, name, sent[name])
					used := map[string]bool{}
					root.walk(func(n *node) {
						require.NotEqual(t, "Seq Scan", n.NodeType, "on %s", n.Relation)
						require.NotContains(t, []string{"Hash Join", "Merge Join", "Bitmap Heap Scan"}, n.NodeType)
						used[indexName(n.Index)] = true
					})
					for _, index := range plan.indexes {
						require.True(t, used[index], "%s of %v", index, used)
					}
					require.LessOrEqual(t, root.Hit+root.Read, plan.blocks)
					t.Logf("%5d blocks, %.1f ms", root.Hit+root.Read, root.Time)
				})
			}
		})
		w.Exec(t, `ANALYZE`)
	}
}

func TestConfigsOfAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	fine, failing := w.config(t, a, "fine", nil), w.config(t, a, "failing", nil)
	w.config(t, a, "gone", func(c *store.ConfigState) { c.DeletedAt, c.DueAt = w.now, time.Time{} })
	theirs := w.config(t, b, "theirs", nil)
	w.Exec(t, `UPDATE servo.configs SET failures = 1 WHERE name IN ('failing', 'theirs')`)
	list := func(f store.ConfigFilter, most int) (found []id.Config) {
		t.Helper()
		for after := (store.ConfigKey{}); ; {
			page := must(w.ListAllConfigs(t.Context(), f, after, most))(t)
			for _, c := range page {
				require.Equal(t, "default", c.WorkspaceName)
				found = append(found, c.ID)
				after = c.Key()
			}
			if len(page) < most {
				return found
			}
		}
	}
	for _, most := range []int{1, 2, 10} {
		require.Equal(t, []id.Config{fine.ID, failing.ID, theirs.ID}, list(store.ConfigFilter{}, most))
		require.Equal(t, []id.Config{failing.ID, theirs.ID}, list(store.ConfigFilter{Failing: true}, most))
	}
	require.Equal(t, []id.Config{theirs.ID}, list(store.ConfigFilter{Prefix: "the"}, 2))
	mine := must(w.ListConfigs(t.Context(), a.tenant, store.ConfigFilter{Failing: true}, id.Config{}, 10))(t)
	require.Len(t, mine, 1)
	require.Equal(t, failing.ID, mine[0].ID)

	t.Run("the last slots include triggered runs, which have no slot", func(t *testing.T) { //nolint:paralleltest // the slots of one world, one test after the other
		g := w.newRun(t, a, nil, nil)
		w.Exec(t, fmt.Sprintf("UPDATE servo.runs SET config_id = '%s' WHERE tenant_id = '%s' AND id = '%s'", failing.ID, a.tenant, g.run.ID))
		recent := must(w.RecentSlots(t.Context(), a.tenant, []store.ConfigKey{failing.Key()}))(t)[failing.ID]
		require.Len(t, recent, 1)
		require.True(t, recent[0].Triggered)
		require.Equal(t, &g.run.ID, recent[0].Run)
		w.Exec(t, fmt.Sprintf("UPDATE servo.runs SET config_id = NULL WHERE tenant_id = '%s' AND id = '%s'", a.tenant, g.run.ID))
	})

	t.Run("the last slots are those that fired and those that did not, the newest first", func(t *testing.T) { //nolint:paralleltest // the slots of one world, one test after the other
		g := w.newRun(t, a, nil, nil)
		var fired []store.FiredSlot
		for i := range 25 {
			fired = append(fired, store.FiredSlot{ConfigKey: fine.Key(), At: w.now.Add(-time.Duration(i+2) * time.Hour), Run: g.run.ID})
		}
		w.engine(t, func(tx *Tx) {
			require.NoError(t, tx.WriteLedger(t.Context(), fired, []store.SkippedSlots{skipped(fine, w.now.Add(-time.Hour), w.now.Add(-time.Hour), 3)}, w.now, "a"))
		})
		for _, of := range []id.Tenant{{}, a.tenant} {
			recent := must(w.RecentSlots(t.Context(), of, []store.ConfigKey{fine.Key(), failing.Key()}))(t)
			require.Empty(t, recent[failing.ID])
			slots := recent[fine.ID]
			require.Len(t, slots, 20)
			require.Equal(t, store.RecentSlot{At: w.now.Add(-time.Hour), Slots: 3, Outcome: config.SkippedCatchup}, slots[0])
			require.Equal(t, store.RecentSlot{At: w.now.Add(-2 * time.Hour), Slots: 1, Outcome: config.Fired, Run: &g.run.ID, State: run.RunRunning}, slots[1])
		}
		require.Empty(t, must(w.RecentSlots(t.Context(), b.tenant, []store.ConfigKey{fine.Key()}))(t), "of another tenant there is nothing to see")
	})
}

func TestRecordedEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	mine, theirs := w.newRun(t, a, nil, nil, nil), w.newRun(t, b, nil, nil)
	list := func(f store.RecordedFilter, most int) (found []store.RecordedEvent) {
		t.Helper()
		for place := (store.EventCursor{}); ; {
			events, next, err := w.RecordedEvents(t.Context(), f, place, most)
			require.NoError(t, err)
			found = append(found, events...)
			if next == nil {
				return found
			}
			place = *next
		}
	}
	all := list(store.RecordedFilter{}, 100)
	require.Equal(t, all, list(store.RecordedFilter{}, 1), "page by page")
	require.Equal(t, theirs.run.ID, *all[0].Run, "the newest first")
	for i := range all[1:] {
		newer, older := all[i].Place, all[i+1].Place
		require.True(t, newer.Tx > older.Tx || newer.Tx == older.Tx && (newer.Position > older.Position || newer.Position == older.Position && newer.Ordinal > older.Ordinal))
	}
	for _, e := range list(store.RecordedFilter{Tenant: a.tenant}, 2) {
		require.Equal(t, a.tenant, e.Tenant)
	}
	require.Len(t, list(store.RecordedFilter{Tenant: a.tenant, Type: "run."}, 2), 1)
	require.Len(t, list(store.RecordedFilter{Type: "tenant.created"}, 2), 2)
	require.Len(t, list(store.RecordedFilter{Subject: mine.run.ID.String()}, 2), 3)
	require.Empty(t, list(store.RecordedFilter{Tenant: b.tenant, Subject: mine.run.ID.String()}, 2), "of another tenant there is nothing to see")
	require.Empty(t, list(store.RecordedFilter{From: w.now.Add(time.Hour)}, 2))
	require.Empty(t, list(store.RecordedFilter{To: w.now.Add(-time.Hour)}, 2))
}
