package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// clockwork is a bundle with a clock that the test moves and configs that it fires.
type clockwork struct {
	*bundle

	now time.Time
}

// midnight is half a minute after it, today: there are partitions for runs of this month.
var midnight = time.Now().UTC().Truncate(24 * time.Hour).Add(30 * time.Second)

func newClockwork(t testing.TB) *clockwork {
	t.Helper()
	return newClockworkOn(t, engine.Config{Server: "server-1"})
}

func newClockworkOn(t testing.TB, c engine.Config) *clockwork {
	t.Helper()
	db := servotest.DB(t)
	db.SetClock(t, midnight)
	return &clockwork{bundle: setupOn(t, db, c), now: midnight}
}

func (w *clockwork) forward(t testing.TB, d time.Duration) {
	t.Helper()
	w.now = w.now.Add(d)
	w.db.SetClock(t, w.now)
}

func (w *clockwork) save(t testing.TB, name string, spec config.Spec) store.ConfigState {
	t.Helper()
	if spec.Pipeline == "" {
		spec.Pipeline = "single"
	}
	if spec.Trigger == (config.Trigger{}) {
		spec.Trigger.Cron = "* * * * *"
	}
	saved, err := w.SaveConfigs(t.Context(), engine.SaveConfigs{Tenant: w.tenant, Configs: []engine.SaveConfig{{Name: name, Spec: spec}}, Meta: engineMeta})
	require.NoError(t, err)
	return saved[0].After
}

func (w *clockwork) get(t testing.TB, name string) store.ConfigView {
	t.Helper()
	c, err := w.db.GetConfigByName(t.Context(), w.tenant, "default", name)
	require.NoError(t, err)
	return c
}

func (w *clockwork) fire(t testing.TB) engine.Fired {
	t.Helper()
	fired, err := w.FireDue(t.Context(), 1000)
	require.NoError(t, err)
	return fired
}

func (w *clockwork) fold(t testing.TB) {
	t.Helper()
	_, err := w.FoldResults(t.Context(), 1000)
	require.NoError(t, err)
}

// finish ends every run that can.
func (w *clockwork) finish(t testing.TB, act engine.Action) {
	t.Helper()
	_, err := w.StartRuns(t.Context(), w.duty, 100)
	require.NoError(t, err)
	w.drain(t, func(engine.Lease) engine.Action { return act })
	w.fold(t)
}

// slots are the entries of the ledger, the oldest first, as a person would write them.
func (w *clockwork) slots(t testing.TB, name string) []string {
	t.Helper()
	c := w.get(t, name)
	entries, err := w.db.ListSlots(t.Context(), c.Key(), time.Time{}, midnight.AddDate(10, 0, 0), 1000)
	require.NoError(t, err)
	out := make([]string, len(entries))
	for i, e := range entries {
		text := fmt.Sprintf("%s %s", e.From.Format("15:04"), e.Outcome)
		if e.Slots > 1 {
			text = fmt.Sprintf("%s-%s %s %d", e.From.Format("15:04"), e.To.Format("15:04"), e.Outcome, e.Slots)
		}
		out[len(entries)-1-i] = text
	}
	return out
}

func minutes(n int) asset.Duration { return asset.Duration(time.Duration(n) * time.Minute) }

func TestFireDue(t *testing.T) {
	t.Parallel()

	t.Run("a slot fires once, when it is due, and makes the run that its config asks for", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "every-minute", config.Spec{Priority: 8, Parameters: json.RawMessage(`{}`), MaxExecution: minutes(10), Retry: &asset.Retry{MaxAttempts: 7}})
		require.Equal(t, engine.Fired{}, w.fire(t), "nothing is due before its time")
		w.forward(t, 30*time.Second)
		require.Equal(t, engine.Fired{Configs: 1, Runs: 1}, w.fire(t))
		require.Equal(t, engine.Fired{}, w.fire(t))
		c := w.get(t, "every-minute")
		require.Equal(t, midnight.Add(90*time.Second), c.NextSlot)
		require.Equal(t, midnight.Add(30*time.Second), c.LastSlot)
		r, err := w.db.GetRun(t.Context(), store.RunKey{Tenant: w.tenant, Run: *c.LastRun})
		require.NoError(t, err)
		require.Equal(t, c.LastSlot, r.Slot)
		require.Equal(t, c.ID, *r.Config)
		require.EqualValues(t, 8, r.Priority)
		require.Equal(t, 7, r.Retry.MaxAttempts)
		require.Equal(t, "schedule", r.TriggerType)
		require.Equal(t, []string{"00:01 FIRED"}, w.slots(t, "every-minute"))
		require.Equal(t, 600, w.db.Count(t, `SELECT limit_s FROM servo.live_runs`))
		w.admit(t)
		require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.pool_q`))
	})

	t.Run("missed slots follow the policy, and the ledger lists those that did not fire", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "latest", config.Spec{})
		w.save(t, "none", config.Spec{Catchup: config.Catchup{Policy: config.CatchupNone}})
		w.save(t, "all", config.Spec{Overlap: config.OverlapAllow, Catchup: config.Catchup{Policy: config.CatchupAll, MaxSlots: 3}})
		w.save(t, "window", config.Spec{Trigger: config.Trigger{Cron: "0 * * * *"}, Overlap: config.OverlapAllow, Catchup: config.Catchup{Policy: config.CatchupAll, MaxSlots: 10, Window: minutes(70)}})
		w.forward(t, 2*time.Hour+40*time.Second) // 02:01:10
		w.fire(t)
		require.Equal(t, []string{"00:01-02:00 SKIPPED_CATCHUP 120", "02:01 FIRED"}, w.slots(t, "latest"))
		require.Equal(t, []string{"00:01-02:00 SKIPPED_CATCHUP 120", "02:01 FIRED"}, w.slots(t, "none"), "on time within a minute")
		require.Equal(t, []string{"00:01-01:58 SKIPPED_CATCHUP 118", "01:59 FIRED", "02:00 FIRED", "02:01 FIRED"}, w.slots(t, "all"))
		require.Equal(t, []string{"01:00 FIRED", "02:00 FIRED"}, w.slots(t, "window"))
		w.forward(t, 0)
	})

	t.Run("none drops a slot that is late, and the ranges of one cause are one row", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "hourly", config.Spec{Trigger: config.Trigger{Cron: "0 * * * *"}, Catchup: config.Catchup{Policy: config.CatchupNone}})
		for range 3 {
			w.forward(t, time.Hour+10*time.Minute)
			w.fire(t)
		}
		require.Equal(t, []string{"01:00-03:00 SKIPPED_CATCHUP 3"}, w.slots(t, "hourly"))
	})

	t.Run("a slot that meets a run of its config is skipped, and points to it", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		c := w.save(t, "skip", config.Spec{})
		for range 4 {
			w.forward(t, time.Minute)
			w.fire(t)
		}
		require.Equal(t, []string{"00:01 FIRED", "00:02-00:04 SKIPPED_OVERLAP 3"}, w.slots(t, "skip"))
		entries, err := w.db.ListSlots(t.Context(), c.Key(), time.Time{}, w.now, 10)
		require.NoError(t, err)
		require.Equal(t, *entries[1].Run, *entries[0].Run)
		w.finish(t, engine.Complete{})
		w.forward(t, time.Minute)
		w.fire(t)
		require.Equal(t, "00:05 FIRED", w.slots(t, "skip")[2])
	})

	t.Run("runs wait for the lock, one or all, and start one after the other", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "one", config.Spec{Overlap: config.OverlapBufferOne})
		w.save(t, "all", config.Spec{Overlap: config.OverlapBufferAll})
		for range 4 {
			w.forward(t, time.Minute)
			w.fire(t)
		}
		require.Equal(t, []string{"00:01 FIRED", "00:02 FIRED", "00:03-00:04 SKIPPED_OVERLAP 2"}, w.slots(t, "one"))
		require.Equal(t, []string{"00:01 FIRED", "00:02 FIRED", "00:03 FIRED", "00:04 FIRED"}, w.slots(t, "all"))
		require.Equal(t, 2, w.db.Count(t, `SELECT count(*) FROM servo.runs WHERE state = 2`))
		require.Equal(t, 4, w.db.Count(t, `SELECT count(*) FROM servo.live_runs WHERE pending AND wait_key <> '' AND lock_key = ''`))
		started, err := w.StartRuns(t.Context(), w.duty, 100)
		require.NoError(t, err)
		require.Zero(t, started, "while others hold the locks")
		for left := 4; left > 0; left -= 2 {
			w.finish(t, engine.Complete{})
			started, err := w.StartRuns(t.Context(), w.duty, 100)
			require.NoError(t, err)
			require.LessOrEqual(t, started, 2, "one for each lock")
			require.LessOrEqual(t, w.db.Count(t, `SELECT count(*) FROM servo.runs WHERE state = 2`), 2)
		}
		for w.db.Count(t, `SELECT count(*) FROM servo.live_runs`) > 0 {
			w.finish(t, engine.Complete{})
		}
		require.Equal(t, 6, w.db.Count(t, `SELECT count(*) FROM servo.runs WHERE state = 10`))
	})

	t.Run("a running run is cancelled if the config requires it", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "impatient", config.Spec{Overlap: config.OverlapCancelRunning})
		w.forward(t, time.Minute)
		w.fire(t)
		first := *w.get(t, "impatient").LastRun
		w.forward(t, time.Minute)
		w.fire(t)
		r, err := w.db.GetRun(t.Context(), store.RunKey{Tenant: w.tenant, Run: first})
		require.NoError(t, err)
		require.Equal(t, run.RunCancelled, r.State)
		started, err := w.StartRuns(t.Context(), w.duty, 100)
		require.NoError(t, err)
		require.Equal(t, 1, started)
	})

	t.Run("no more runs at once than max_overlap", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "two", config.Spec{Overlap: config.OverlapAllow, MaxOverlap: 2})
		for range 4 {
			w.forward(t, time.Minute)
			w.fire(t)
		}
		require.Equal(t, []string{"00:01 FIRED", "00:02 FIRED", "00:03-00:04 SKIPPED_OVERLAP 2"}, w.slots(t, "two"))
	})

	t.Run("quotas: a run waits for its start, and a slot over the day's number is skipped", func(t *testing.T) {
		t.Parallel()
		limits := tenant.NoLimits()
		limits.MaxConcurrentRuns, limits.MaxDailyRuns = 1, 2
		w := newClockworkOn(t, engine.Config{Quotas: limits})
		w.save(t, "many", config.Spec{Overlap: config.OverlapAllow})
		for range 4 {
			w.forward(t, time.Minute)
			w.fire(t)
		}
		require.Equal(t, []string{"00:01 FIRED", "00:02 FIRED", "00:03-00:04 SKIPPED_QUOTA 2"}, w.slots(t, "many"))
		require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.live_runs WHERE pending`))
	})

	t.Run("a slot depends on another config, and waits for it as long as it may", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "source", config.Spec{Trigger: config.Trigger{Manual: true}})
		w.save(t, "strict", config.Spec{DependsOn: &config.Dependency{Config: "source", Within: minutes(60)}})
		w.save(t, "patient", config.Spec{Trigger: config.Trigger{Cron: "1 * * * *"}, DependsOn: &config.Dependency{Config: "source", Within: minutes(60), Wait: minutes(5)}})
		w.forward(t, time.Minute)
		w.fire(t)
		require.Equal(t, []string{"00:01 SKIPPED_DEPENDENCY"}, w.slots(t, "strict"))
		require.Empty(t, w.slots(t, "patient"), "undecided")
		_, err := w.TriggerConfig(t.Context(), w.tenant, w.get(t, "source").ID, engine.Trigger{Meta: engineMeta})
		require.NoError(t, err)
		w.finish(t, engine.Complete{})
		w.forward(t, time.Minute)
		w.fire(t)
		require.Equal(t, []string{"00:01 SKIPPED_DEPENDENCY", "00:02 FIRED"}, w.slots(t, "strict"))
		require.Equal(t, []string{"00:01 FIRED"}, w.slots(t, "patient"))
		w.forward(t, 2*time.Hour)
		w.fire(t)
		w.forward(t, 10*time.Minute)
		w.fire(t)
		require.Equal(t, "01:00", w.slots(t, "patient")[1][:5][:2]+":00", "the next one is an hour later")
		require.Contains(t, w.slots(t, "patient")[len(w.slots(t, "patient"))-1], "SKIPPED_DEPENDENCY", "it waited without effect")
	})

	t.Run("jitter puts configs of one slot apart, and the slot stays what it is", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		for i := range 20 {
			w.save(t, fmt.Sprintf("c%d", i), config.Spec{Trigger: config.Trigger{Cron: "1 0 * * *"}, Jitter: minutes(10)})
		}
		fired := 0
		for range 10 {
			w.forward(t, time.Minute)
			n := w.fire(t).Runs
			require.Less(t, n, 12)
			fired += n
		}
		w.forward(t, time.Minute)
		fired += w.fire(t).Runs
		require.Equal(t, 20, fired)
		require.Equal(t, 20, w.db.Count(t, `SELECT count(*) FROM servo.slots WHERE slot_at = $1`, midnight.Add(30*time.Second)))
	})

	t.Run("a config whose pipeline is gone is set aside, and the others fire", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "gone", config.Spec{Pipeline: "fan", MaxConsecutiveFailures: 2})
		w.save(t, "stays", config.Spec{})
		w.deploy(t, `{version: 1, assets: [{key: s/one, exec: {command: [run]}}], pipelines: [{name: single, select: [s/one]}]}`)
		for range 3 {
			w.forward(t, time.Minute)
			w.fire(t)
		}
		require.Equal(t, []string{"00:01-00:02 ERROR 2"}, w.slots(t, "gone"))
		c := w.get(t, "gone")
		require.False(t, c.Enabled)
		require.Equal(t, "it has failed 2 times one after the other", c.DisabledReason)
		require.Zero(t, c.DueAt)
		require.Equal(t, "00:01 FIRED", w.slots(t, "stays")[0])
	})

	t.Run("more slots than fit into a transaction are left for the next look", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		for i := range 5 {
			w.save(t, fmt.Sprintf("c%d", i), config.Spec{})
		}
		w.forward(t, time.Minute)
		fired, err := w.FireDue(t.Context(), 3)
		require.NoError(t, err)
		require.Equal(t, engine.Fired{Configs: 3, Runs: 3, More: true}, fired)
		require.Equal(t, 2, w.fire(t).Runs)
	})
}

func TestResults(t *testing.T) {
	t.Parallel()
	failing := engine.Fail{Failure: run.Failure{Code: "USER_CODE_EXCEPTION", Message: "no"}}

	t.Run("failures in a row disable a config, success and resume reset the count", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		c := w.save(t, "flaky", config.Spec{MaxConsecutiveFailures: 3})
		step := func(act engine.Action) {
			w.forward(t, time.Minute)
			w.fire(t)
			w.finish(t, act)
		}
		step(failing)
		step(failing)
		require.EqualValues(t, 2, w.get(t, "flaky").Failures)
		step(engine.Complete{})
		require.Zero(t, w.get(t, "flaky").Failures)
		require.Equal(t, w.now, w.get(t, "flaky").LastSuccessAt)
		for range 3 {
			step(failing)
		}
		require.False(t, w.get(t, "flaky").Enabled)
		w.forward(t, 10*time.Minute)
		require.Zero(t, w.fire(t).Configs)
		_, err := w.ResumeConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: c.ID, Meta: engineMeta})
		require.NoError(t, err)
		require.Zero(t, w.get(t, "flaky").Failures)
		slots := w.slots(t, "flaky")
		require.Equal(t, "00:07-00:16 SKIPPED_DISABLED 10", slots[len(slots)-1])
		step(engine.Complete{})
		slots = w.slots(t, "flaky")
		require.Equal(t, "00:17 FIRED", slots[len(slots)-1])
	})

	t.Run("a retry counts for the config of its run, and waits for quotas if requested", func(t *testing.T) {
		t.Parallel()
		limits := tenant.NoLimits()
		limits.MaxConcurrentRuns = 1
		w := newClockworkOn(t, engine.Config{Quotas: limits})
		w.save(t, "repaired", config.Spec{})
		w.forward(t, time.Minute)
		w.fire(t)
		w.finish(t, failing)
		failed := *w.get(t, "repaired").LastRun
		require.EqualValues(t, 1, w.get(t, "repaired").Failures)
		w.trigger(t, "diamond")
		retry := engine.RetryRun{Tenant: w.tenant, Run: failed, Mode: engine.RetryFailed, Meta: engineMeta}
		_, err := w.RetryRun(t.Context(), retry)
		require.True(t, fault.Is(err, fault.LimitExceeded), "%v", err)
		retry.WaitForQuota = true
		again, err := w.RetryRun(t.Context(), retry)
		require.NoError(t, err)
		w.finish(t, engine.Complete{})
		w.finish(t, engine.Complete{})
		require.Equal(t, again.Run, *w.get(t, "repaired").LastRun)
		require.Zero(t, w.get(t, "repaired").Failures)
	})

	t.Run("a result for a deleted config blocks no other", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		c := w.save(t, "gone", config.Spec{MaxConsecutiveFailures: 1})
		w.save(t, "stays", config.Spec{MaxConsecutiveFailures: 1})
		w.forward(t, time.Minute)
		w.fire(t)
		_, err := w.DeleteConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: c.ID, Meta: engineMeta})
		require.NoError(t, err)
		w.finish(t, failing)
		require.False(t, w.get(t, "stays").Enabled)
		require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.config_results`))
	})

	t.Run("every config that waits for a success gets its run, though they are large", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		var manifest strings.Builder
		manifest.WriteString("version: 1\nassets:\n  - {key: s/one, exec: {command: [run]}}\n")
		for i := range 4000 {
			fmt.Fprintf(&manifest, "  - {key: big/a%d, exec: {command: [run]}}\n", i)
		}
		manifest.WriteString("pipelines:\n  - {name: single, select: [s/one]}\n  - {name: big, select: [\"big/*\"]}\n")
		w.deploy(t, manifest.String())
		w.save(t, "first", config.Spec{Overlap: config.OverlapAllow})
		w.save(t, "second", config.Spec{Trigger: config.Trigger{Event: &config.Event{Config: "first"}}, Pipeline: "big", Overlap: config.OverlapAllow})
		for range 4 {
			w.forward(t, time.Minute)
			w.fire(t)
		}
		w.admit(t)
		for _, l := range w.claim(t, 4, true) {
			w.report(t, l, engine.Complete{})
		}
		for w.db.Count(t, `SELECT count(*) FROM servo.config_results`) > 0 {
			w.fold(t)
		}
		require.Equal(t, 4, w.db.Count(t, `SELECT count(*) FROM servo.runs WHERE pipeline = 'big'`))
	})

	t.Run("a config runs after each success of another, and after no failure", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "first", config.Spec{})
		w.save(t, "second", config.Spec{Trigger: config.Trigger{Event: &config.Event{Config: "first"}}})
		runs := func() int {
			return w.db.Count(t, `SELECT count(*) FROM servo.runs r JOIN servo.configs c ON c.id = r.config_id WHERE c.name = 'second'`)
		}
		w.forward(t, time.Minute)
		w.fire(t)
		w.finish(t, failing)
		require.Zero(t, runs())
		for i := range 2 {
			w.forward(t, time.Minute)
			w.fire(t)
			w.finish(t, engine.Complete{})
			require.Equal(t, i+1, runs())
			w.finish(t, engine.Complete{})
		}
		_, err := w.PauseConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: w.get(t, "second").ID, Meta: engineMeta})
		require.NoError(t, err)
		w.forward(t, time.Minute)
		w.fire(t)
		w.finish(t, engine.Complete{})
		require.Equal(t, 2, runs(), "not while it is paused")
	})
}
