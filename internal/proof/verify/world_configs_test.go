package verify_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/engine"
)

const scheduledTenant = "scheduled"

const scheduledText = `
version: 1
assets:
  - {key: h/one, exec: {command: [run]}, pool: hourly}
  - {key: f/one, exec: {command: [run]}, pool: failing}
  - {key: o/one, exec: {command: [run]}, pool: others}
pipelines:
  - {name: hourly, select: [h/one], parameters: [{name: account, type: string, default: "1"}]}
  - {name: failing, select: [f/one]}
  - {name: others, select: [o/one]}
`

// calendar is a tenant with configs.
type calendar struct {
	*world

	owner id.Tenant
	ids   map[string]id.Config
}

func (w *world) calendar(t testing.TB, tenant string) *calendar {
	t.Helper()
	c := &calendar{world: w, owner: w.account(t, tenant), ids: map[string]id.Config{}}
	w.deploy(t, c.owner, scheduledText)
	return c
}

func hourly(pipeline string, overlap config.Overlap) config.Spec {
	return config.Spec{Pipeline: pipeline, Trigger: config.Trigger{Interval: asset.Duration(time.Hour)}, Overlap: overlap}
}

func (c *calendar) save(t testing.TB, name string, spec config.Spec, enabled *bool) {
	t.Helper()
	saved := value(c.SaveConfigs(t.Context(), engine.SaveConfigs{
		Tenant: c.owner, Configs: []engine.SaveConfig{{Name: name, Spec: spec, Enabled: enabled}}, Reason: "as agreed", Meta: event.Meta{Actor: "jo"},
	}))(t)
	require.True(t, saved[0].Changed, name)
	c.ids[name] = saved[0].After.ID
}

func (c *calendar) change(name string) engine.ChangeConfig {
	return engine.ChangeConfig{Tenant: c.owner, Config: c.ids[name], Reason: "holidays", Meta: event.Meta{Actor: "ann"}}
}

// fire decides about all that is due by now, and processes the results of runs.
func (c *calendar) fire(t testing.TB) (made int) {
	t.Helper()
	for more := true; more; {
		fired := value(c.FireDue(t.Context(), engine.DefaultFiring))(t)
		made, more = made+fired.Runs, fired.More
	}
	value(c.FoldResults(t.Context(), 100))(t)
	return made
}

// scheduled: configs in every state, slots of every fate, and runs that wait for their lock, have
// got it, and were made by hand and by the success of another config.
func (w *world) scheduled(t testing.TB) {
	t.Helper()
	c := w.calendar(t, scheduledTenant)
	off, on := false, true
	spec := hourly("hourly", config.OverlapBufferAll)
	spec.Labels, spec.Parameters, spec.Priority = map[string]string{"provider": "AWS"}, json.RawMessage(`{"account": "<1234>"}`), 7
	c.save(t, "buffered", spec, nil)
	c.save(t, "skipping", hourly("others", config.OverlapSkip), nil)
	failing := hourly("failing", config.OverlapSkip)
	failing.MaxConsecutiveFailures, failing.Retry = 1, &asset.Retry{MaxAttempts: 1}
	c.save(t, "failing", failing, nil)
	for _, name := range []string{"paused", "resumed", "moved", "to-move", "deleted"} {
		c.save(t, name, hourly("others", config.OverlapAllow), nil)
	}
	c.save(t, "disabled", hourly("others", config.OverlapAllow), &off)
	c.save(t, "after", config.Spec{Pipeline: "others", Trigger: config.Trigger{Event: &config.Event{Config: "buffered"}}, Overlap: config.OverlapAllow}, nil)
	c.save(t, "listening", config.Spec{Pipeline: "others", Trigger: config.Trigger{Event: &config.Event{Name: "prices"}}}, nil)
	dependent := hourly("others", config.OverlapAllow)
	dependent.DependsOn = &config.Dependency{Config: "skipping", Within: asset.Duration(time.Hour)}
	dependent.Trigger = config.Trigger{Cron: "*/10 * * * *"}
	c.save(t, "dependent", dependent, nil)

	for _, name := range []string{"paused", "resumed"} {
		value(c.PauseConfig(t.Context(), c.change(name)))(t)
	}
	value(c.MoveSlot(t.Context(), c.change("moved"), w.now.Add(70*time.Minute)))(t)
	c.listen(t)
	c.subscribe(t)
	c.keys(t)
	w.later(t, 61*time.Minute)
	c.watch(t) // they are overdue
	require.Positive(t, c.fire(t))
	w.report(t, w.one(t, "failing"), failure("USER_CODE_EXCEPTION"))
	first := w.one(t, "hourly")
	w.later(t, 10*time.Minute)
	c.fire(t) // where it was moved to
	value(c.ResumeConfig(t.Context(), c.change("resumed")))(t)
	c.save(t, "disabled", hourly("others", config.OverlapAllow), &on)
	value(c.TriggerConfig(t.Context(), c.owner, c.ids["dependent"], engine.Trigger{TriggeredBy: "jo"}))(t)

	for range 3 { // behind the first
		w.later(t, time.Hour)
		c.fire(t)
	}
	w.report(t, first, engine.Complete{})
	require.Equal(t, 3, value(w.RecordLateStarts(t.Context(), 3))(t), "of those that wait")
	value(w.db.MergeTotals(t.Context(), 1000))(t)
	require.Equal(t, 1, value(w.StartRuns(t.Context(), w.duty, 10))(t), "one has the lock that it has waited for")
	w.report(t, w.one(t, "hourly"), engine.Complete{}) // it began late
	c.fire(t)
	value(c.DeleteConfig(t.Context(), c.change("deleted")))(t)
	value(c.MoveSlot(t.Context(), c.change("to-move"), w.now.Add(20*time.Hour)))(t)
	edited := hourly("others", config.OverlapSkip)
	edited.Trigger = config.Trigger{Cron: "30 2 * * *"}
	c.save(t, "skipping", edited, nil)
	c.watch(t)
	c.outside(t)
	w.shown(t)
	w.requireAlerts(t)
}

// shown holds the history to what it is there for.
func (w *world) shown(t testing.TB) {
	t.Helper()
	for _, some := range []string{
		`servo.live_runs WHERE wait_key <> ''`, `servo.configs WHERE moved_to IS NOT NULL`, `servo.configs WHERE deleted_at IS NOT NULL`,
		`servo.configs WHERE paused_at IS NOT NULL`, `servo.configs WHERE NOT enabled`,
		`servo.slots s JOIN servo.entity_events e ON e.subject_id = s.config_id AND e.type = 'config.moved' AND (e.data->>'to')::timestamptz = s.slot_at`,
		`servo.runs WHERE config_id IS NOT NULL AND slot_at IS NULL`,
		`servo.live_runs WHERE breaches = 1`, `servo.live_runs WHERE late_at < servo.clock()`, `servo.runs WHERE late AND state >= 10`,
		`servo.run_totals WHERE ended > 0`, `servo.run_deltas WHERE ended > 0`, `servo.run_totals WHERE labels = '{"provider":"AWS"}'`,
	} {
		require.NotZero(t, w.db.Count(t, `SELECT count(*) FROM `+some), some)
	}
	for _, outcome := range []config.Outcome{config.SkippedOverlap, config.SkippedPaused, config.SkippedDisabled, config.SkippedDependency, config.SkippedEdited} {
		require.NotZero(t, w.db.Count(t, `SELECT count(*) FROM servo.slot_ranges WHERE outcome = $1`, outcome), outcome)
	}
	require.Equal(t, len(config.Events()), w.db.Count(t, `SELECT count(DISTINCT type) FROM servo.entity_events WHERE type ~ '^(config|event|template)\.'`))
}
