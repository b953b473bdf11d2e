package rollouts

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/release"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

const manifest = `{version: 1, assets: [{key: s/one, exec: {command: [run, %s]}, retry: {max_attempts: 1}}], pipelines: [{name: single, overlap: allow, select: [s/one]}]}`

var meta = event.Meta{Actor: "test"}

// world is the channel stable at release v1, the releases v2 and v3, and tenants that follow the channel.
type world struct {
	*engine.Engine

	db      *servotest.Database
	tenants []id.Tenant
	all     map[string]store.Release
	now     time.Time
	duty    store.Duty // of admission
}

func setup(t *testing.T, tenants int) *world {
	t.Helper()
	w := &world{db: servotest.DB(t), now: time.Now().UTC().Truncate(time.Second), all: map[string]store.Release{}}
	w.forward(t, 0)
	w.Engine = engine.New(w.db.Store, engine.Config{Quotas: tenant.NoLimits(), QueueWithoutWorkers: 5000}, nil)
	t.Cleanup(w.Stop)
	for _, name := range []string{"v1", "v2", "v3"} {
		parsed, err := asset.Parse(fmt.Appendf(nil, manifest, name), "servo.yaml")
		require.NoError(t, err)
		w.all[name], _, err = w.CreateRelease(t.Context(), engine.CreateRelease{Name: name, Manifest: parsed, Meta: meta})
		require.NoError(t, err)
	}
	_, err := w.CreateReleaseChannel(t.Context(), "stable", "v1", true, meta)
	require.NoError(t, err)
	for i := range tenants {
		owner, err := w.CreateTenant(t.Context(), fmt.Sprintf("tenant-%d", i), meta)
		require.NoError(t, err)
		w.tenants = append(w.tenants, owner)
	}
	w.duty, err = w.db.TakeDuty(t.Context(), "admission", "test", 24*time.Hour)
	require.NoError(t, err)
	return w
}

// forward moves the clock of the database.
func (w *world) forward(t *testing.T, by time.Duration) {
	t.Helper()
	w.now = w.now.Add(by)
	w.db.SetClock(t, w.now)
}

func (w *world) server(name string) *judge {
	return &judge{store: w.db.Store, engine: w.Engine, holder: name, batch: batch}
}

func (w *world) once(t *testing.T, j *judge) (more bool) {
	t.Helper()
	more, err := j.runOnce(t.Context())
	require.NoError(t, err)
	return more
}

func (w *world) roll(t *testing.T, to string, waves ...int32) {
	t.Helper()
	_, err := w.Roll(t.Context(), engine.RollChannel{Channel: "stable", Release: to, Waves: waves, Soak: time.Minute, Meta: meta})
	require.NoError(t, err)
}

func (w *world) channel(t *testing.T) store.ReleaseChannel {
	t.Helper()
	channels, err := w.db.ReleaseChannels(t.Context())
	require.NoError(t, err)
	require.Len(t, channels, 1)
	return channels[0]
}

// on returns the tenants whose new runs use a release.
func (w *world) on(t *testing.T, name string) []id.Tenant {
	t.Helper()
	var found []id.Tenant
	for _, owner := range w.tenants {
		used, err := w.db.ActiveCode(t.Context(), owner, "default")
		require.NoError(t, err)
		if used == w.all[name].Deployment() {
			found = append(found, owner)
		}
	}
	return found
}

// start starts a run of each tenant and returns their leases.
func (w *world) start(t *testing.T, tenants []id.Tenant) []engine.Lease {
	t.Helper()
	triggers := make([]engine.Trigger, len(tenants))
	for i, owner := range tenants {
		triggers[i] = engine.Trigger{Tenant: owner, Pipeline: "single"}
	}
	_, errs := w.TriggerRuns(t.Context(), triggers)
	for _, err := range errs {
		require.NoError(t, err)
	}
	_, _, err := w.Admit(t.Context(), w.duty, len(tenants))
	require.NoError(t, err)
	leases, err := w.Claim(t.Context(), engine.ClaimRequest{Worker: "w1", Claim: id.Of[id.Claim](uuid.New()), Pools: []string{"default"}, Max: len(tenants), Start: true})
	require.NoError(t, err)
	require.Len(t, leases, len(tenants))
	return leases
}

// end ends leased runs; some percent of them fail.
func (w *world) end(t *testing.T, leases []engine.Lease, percent int) {
	t.Helper()
	reports := make([]engine.Report, len(leases))
	for i, l := range leases {
		var action engine.Action = engine.Complete{}
		if (i+1)*percent/100 > i*percent/100 {
			action = engine.Fail{Failure: run.Failure{Code: "BROKEN_CODE"}}
		}
		reports[i] = engine.Report{TaskKey: l.TaskKey, Token: l.Token, Action: action}
	}
	_, errs := w.Report(t.Context(), reports)
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// open returns the messages of the open alerts of a kind.
func (w *world) open(t *testing.T, kind alert.Kind) []string {
	t.Helper()
	_, err := w.Watch(t.Context())
	require.NoError(t, err)
	found, err := w.db.Alerts(t.Context(), store.AlertFilter{Open: true}, 100)
	require.NoError(t, err)
	var messages []string
	for _, a := range found {
		if a.Kind == kind {
			messages = append(messages, a.Message)
		}
	}
	return messages
}

func TestStop(t *testing.T) {
	t.Parallel()
	w := setup(t, 60)
	server := w.server("a")
	for range 3 {
		w.end(t, w.start(t, w.tenants), 0)
	}
	w.once(t, server)
	w.roll(t, "v2", 5000, 10_000)
	moved := w.on(t, "v2")
	require.Greater(t, len(moved), 10)
	require.Less(t, len(moved), 60)
	inFlight := w.start(t, moved[:3])
	for range 2 {
		w.end(t, w.start(t, moved), 30)
	}
	w.once(t, server)

	c := w.channel(t)
	require.Equal(t, release.RolledBack, c.State())
	require.True(t, c.Rollout.Automatic)
	require.Zero(t, c.Rollout.Wave, "it stops in the first wave")
	require.Len(t, w.on(t, "v1"), 60)
	messages := w.open(t, alert.RolloutStopped)
	require.Len(t, messages, 1)
	require.Contains(t, messages[0], "channel stable was rolled back")
	require.Contains(t, messages[0], "errors: BROKEN_CODE")
	require.Regexp(t, `tenants: tenant-\d+ \(\d\)`, messages[0], "it names tenants with their failed runs")
	require.Contains(t, messages[0], "0 of "+fmt.Sprint(3*len(moved))+" of the same configs on the old one")
	require.Len(t, w.open(t, alert.RolloutStopped), 1, "it is raised once")

	w.end(t, inFlight, 0)
	for _, l := range inFlight {
		r, err := w.db.GetRun(t.Context(), store.RunKey{Tenant: l.Tenant, Run: l.Run})
		require.NoError(t, err)
		require.Equal(t, w.all["v2"].Deployment(), r.Deployment, "a run in flight keeps its release")
		require.Equal(t, run.RunSucceeded, r.State)
	}
	w.roll(t, "v3", 10_000)
	require.Empty(t, w.open(t, alert.RolloutStopped), "the next roll resolves the alert")
	verifytest.Clean(t, w.db)
}

func TestPass(t *testing.T) {
	t.Parallel()
	w := setup(t, 60)
	server := w.server("a")
	for range 3 {
		w.end(t, w.start(t, w.tenants), 30)
	}
	w.once(t, server)
	w.roll(t, "v2", 2000, 5000, 10_000)
	inFlight := map[id.Run]id.Deployment{}
	var leases []engine.Lease
	var waves []int
	for w.channel(t).State() == release.Rolling {
		waves = append(waves, w.channel(t).Rollout.Wave)
		require.LessOrEqual(t, len(waves), 3)
		begun := w.start(t, w.tenants[:5])
		for _, l := range begun {
			used, err := w.db.ActiveCode(t.Context(), l.Tenant, "default")
			require.NoError(t, err)
			inFlight[l.Run] = used
		}
		leases = append(leases, begun...)
		moved := w.on(t, "v2")
		require.NotEmpty(t, moved)
		for range release.MinRuns/len(moved) + 1 {
			w.end(t, w.start(t, moved), 30) // as often as before
		}
		w.once(t, server)
		require.Equal(t, waves[len(waves)-1], w.channel(t).Rollout.Wave, "the soak is not over")
		w.forward(t, time.Minute)
		w.once(t, server)
	}
	c := w.channel(t)
	require.Equal(t, []int{0, 1, 2}, waves)
	require.Equal(t, release.Completed, c.State())
	require.Equal(t, w.all["v2"].ID, c.Current)
	require.Empty(t, w.open(t, alert.RolloutStopped))
	require.Empty(t, w.open(t, alert.RolloutWaits))
	w.end(t, leases, 0)
	for _, l := range leases {
		r, err := w.db.GetRun(t.Context(), store.RunKey{Tenant: l.Tenant, Run: l.Run})
		require.NoError(t, err)
		require.Equal(t, inFlight[l.Run], r.Deployment, "a run in flight keeps its release")
	}
	verifytest.Clean(t, w.db)
}

func TestWait(t *testing.T) {
	t.Parallel()
	w := setup(t, 4)
	server := w.server("a")
	w.roll(t, "v2", 10_000)
	w.end(t, w.start(t, w.tenants), 0)
	w.forward(t, 4*time.Minute-time.Second)
	w.once(t, server)
	require.Equal(t, release.Rolling, w.channel(t).State())
	w.forward(t, time.Second)
	w.once(t, server)
	require.Equal(t, release.Paused, w.channel(t).State())
	messages := w.open(t, alert.RolloutWaits)
	require.Len(t, messages, 1)
	require.Contains(t, messages[0], "only 4 runs ended on the new release in this wave, 30 are needed")
	require.False(t, w.once(t, server), "a paused rollout is not judged")
	require.Equal(t, release.Paused, w.channel(t).State())
	_, err := w.ResumeRollout(t.Context(), engine.ChangeRollout{Channel: "stable", Meta: meta})
	require.NoError(t, err)
	require.Empty(t, w.open(t, alert.RolloutWaits), "a decision resolves the alert")
	w.once(t, server)
	require.Equal(t, release.Rolling, w.channel(t).State(), "its patience begins again")
	verifytest.Clean(t, w.db)
}

func TestServers(t *testing.T) {
	t.Parallel()

	t.Run("one server judges, and another one when its duty has expired", func(t *testing.T) {
		t.Parallel()
		w := setup(t, 3)
		first, second := w.server("a"), w.server("b")
		w.roll(t, "v2", 10_000)
		w.once(t, first)
		w.end(t, w.start(t, w.tenants), 0)
		w.once(t, second)
		require.Equal(t, 3, w.db.Count(t, `SELECT count(*) FROM servo.release_ends`), "the duty belongs to another server")
		w.forward(t, 5*time.Minute)
		w.once(t, second)
		require.Equal(t, release.Paused, w.channel(t).State())
		require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.duties WHERE name = 'rollouts' AND holder = 'b'`))
		verifytest.Clean(t, w.db)
	})

	t.Run("all ends of runs are merged before a rollout is judged", func(t *testing.T) {
		t.Parallel()
		w := setup(t, 40)
		server := w.server("a")
		server.batch = 40
		w.end(t, w.start(t, w.tenants), 0)
		for w.once(t, server) {
		}
		w.roll(t, "v2", 10_000)
		// The first 40 ends look bad enough to stop; all of them do not.
		leases := w.start(t, w.tenants)
		w.end(t, leases, 25)
		w.end(t, w.start(t, w.tenants), 0)
		w.end(t, w.start(t, w.tenants), 0)
		require.True(t, w.once(t, server))
		require.Equal(t, release.Rolling, w.channel(t).State(), "a part of the ends is no evidence")
		for w.once(t, server) {
		}
		require.Equal(t, release.Rolling, w.channel(t).State())
		require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.release_ends`))
	})

	t.Run("the totals of releases that no channel uses are deleted", func(t *testing.T) {
		t.Parallel()
		w := setup(t, 3)
		server := w.server("a")
		w.end(t, w.start(t, w.tenants), 0)
		w.once(t, server)
		require.Equal(t, 3, w.db.Count(t, `SELECT count(*) FROM servo.release_totals`))
		for _, to := range []string{"v2", "v3"} {
			w.roll(t, to, 10_000)
			_, err := w.AdvanceRollout(t.Context(), engine.ChangeRollout{Channel: "stable", Meta: meta})
			require.NoError(t, err)
		}
		w.end(t, w.start(t, w.tenants), 0)
		server.forgetAt = time.Time{}
		w.once(t, server)
		require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.release_totals WHERE release_id = $1`, w.all["v1"].ID.UUID))
		require.Equal(t, 3, w.db.Count(t, `SELECT count(*) FROM servo.release_totals`))
	})

	t.Run("a started loop judges until it is stopped", func(t *testing.T) {
		t.Parallel()
		w := setup(t, 3)
		w.roll(t, "v2", 10_000)
		w.forward(t, time.Hour)
		running := Start(w.db.Store, w.Engine, Config{Holder: "a"})
		for w.channel(t).State() == release.Rolling {
			require.NoError(t, t.Context().Err())
		}
		running.Stop()
		require.Equal(t, release.Paused, w.channel(t).State())
	})
}
