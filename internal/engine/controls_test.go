package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
)

var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

func TestForceCancel(t *testing.T) {
	t.Parallel()
	// a lease of an hour: the reaper would let its run be CANCELLING as long
	begin := func(t *testing.T, start bool) (*bundle, engine.Lease) {
		t.Helper()
		b := setup(t)
		b.db.SetClock(t, noon)
		b.deploy(t, `
version: 1
assets:
  - {key: s/one, exec: {command: [run]}, timeout: 2h}
pipelines:
  - {name: single, overlap: allow, select: [s/one]}
`)
		b.trigger(t, "single")
		b.admit(t)
		leases, err := b.Claim(t.Context(), engine.ClaimRequest{
			Worker: "w1", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Start: start, Lease: time.Hour,
		})
		require.NoError(t, err)
		return b, leases[0]
	}
	force := func(t *testing.T, b *bundle, l engine.Lease) (engine.Cancelled, error) {
		t.Helper()
		return b.ForceCancelTask(t.Context(), engine.ForceCancel{TaskKey: l.TaskKey, Reason: "its machine burnt", Meta: event.Meta{Actor: "ann"}})
	}

	for _, start := range []bool{true, false} {
		state := map[bool]string{true: "RUNNING", false: "DISPATCHED"}[start]
		t.Run("a "+state+" task ends when its worker was silent for long, and its token is worth nothing", func(t *testing.T) {
			t.Parallel()
			b, lease := begin(t, start)
			b.cancel(t, runOf(lease))
			b.db.SetClock(t, noon.Add(5*time.Minute))
			cancelled, err := force(t, b, lease)
			require.NoError(t, err)
			require.Equal(t, engine.Cancelled{State: run.RunCancelled}, cancelled)
			b.requireStates(t, runOf(lease), run.RunCancelled, "s/one=CANCELLED")
			for _, action := range []engine.Action{engine.Start{}, engine.Complete{}, networkError, engine.Advance{Next: "1"}} {
				requireFault(t, b.reportError(t, lease, action), fault.Stale)
			}
			pulses, err := b.Heartbeats(t.Context(), []engine.Heartbeat{{Key: lease.TaskKey, Token: lease.Token}})
			require.NoError(t, err)
			require.Equal(t, []engine.Pulse{{}}, pulses, "the lease is not held")
			again, err := force(t, b, lease)
			require.NoError(t, err)
			require.Equal(t, engine.Cancelled{State: run.RunCancelled, Repeat: true}, again)
			attempts, err := b.db.Attempts(t.Context(), lease.TaskKey)
			require.NoError(t, err)
			require.Equal(t, run.AttemptForced, attempts[0].End)
			require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.run_events WHERE type = 'task.cancelled' AND actor = 'ann'
				AND data @> '{"forced": true, "reason": "its machine burnt"}'`))
			verifytest.Clean(t, b.db)
		})
	}

	t.Run("a worker with a recent heartbeat is not overruled, and the refusal has the time", func(t *testing.T) {
		t.Parallel()
		b, lease := begin(t, true)
		b.cancel(t, runOf(lease))
		b.db.SetClock(t, noon.Add(4*time.Minute))
		_, err := b.Heartbeats(t.Context(), []engine.Heartbeat{{Key: lease.TaskKey, Token: lease.Token}})
		require.NoError(t, err)
		b.db.SetClock(t, noon.Add(9*time.Minute-time.Second))
		_, err = force(t, b, lease)
		requireFault(t, err, fault.Conflict)
		refused, _ := fault.As(err)
		require.Equal(t, noon.Add(9*time.Minute), refused.Values["possible_at"])
		require.Contains(t, refused.Violation.Remedy, "2026-11-15T12:09:00Z")
		b.requireStates(t, runOf(lease), run.RunCancelling, "s/one=RUNNING")
		b.db.SetClock(t, noon.Add(9*time.Minute))
		_, err = force(t, b, lease)
		require.NoError(t, err)
		verifytest.Clean(t, b.db)
	})

	t.Run("without a cancel of the run nothing is forced", func(t *testing.T) {
		t.Parallel()
		b, lease := begin(t, true)
		b.db.SetClock(t, noon.Add(time.Hour))
		_, err := force(t, b, lease)
		requireFault(t, err, fault.Conflict)
		require.ErrorContains(t, err, "not being cancelled")
		b.requireStates(t, runOf(lease), run.RunRunning, "s/one=RUNNING")
	})

	t.Run("a task without a lease is refused by its state, and a missing one is not found", func(t *testing.T) {
		t.Parallel()
		b, lease := begin(t, true)
		b.report(t, lease, engine.Complete{})
		_, err := force(t, b, lease)
		requireFault(t, err, fault.Conflict)
		require.ErrorContains(t, err, "SUCCEEDED")
		lease.Task = id.New[id.Task](id.NewMinter(noon))
		_, err = force(t, b, lease)
		requireFault(t, err, fault.NotFound)
	})
}

func TestPauseDispatch(t *testing.T) {
	t.Parallel()

	t.Run("no task is claimed, running tasks continue, and a repeated claim gets its leases", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for range 3 {
			b.trigger(t, "single")
		}
		b.admit(t)
		request := engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Start: true}
		held, err := b.Claim(t.Context(), request)
		require.NoError(t, err)
		paused, err := b.PauseDispatch(t.Context(), engine.Turn{Reason: "upgrade", By: "ann", Meta: engineMeta})
		require.NoError(t, err)
		require.True(t, paused.Off)
		require.Empty(t, b.claim(t, 10, true))
		again, err := b.Claim(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, held, again)
		require.Equal(t, run.Succeeded, b.report(t, held[0], engine.Complete{}).State)

		twice, err := b.PauseDispatch(t.Context(), engine.Turn{Reason: "another", By: "bob", Meta: engineMeta})
		require.NoError(t, err)
		require.Equal(t, paused, twice, "it is off already, and why stays")
		found, err := b.db.GetSwitch(t.Context(), "dispatch")
		require.NoError(t, err)
		require.Equal(t, paused, found)

		on, err := b.ResumeDispatch(t.Context(), engine.Turn{Meta: engineMeta})
		require.NoError(t, err)
		require.False(t, on.Off)
		require.EqualValues(t, 2, on.Version)
		require.Len(t, b.claim(t, 10, true), 2)
		require.Equal(t, 2, b.db.Count(t, `SELECT count(*) FROM servo.platform_events WHERE subject = 'switch/dispatch'`))
		verifytest.Clean(t, b.db)
	})

	t.Run("a waiting claim is woken when dispatch resumes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		b.admit(t)
		_, err := b.PauseDispatch(t.Context(), engine.Turn{Meta: engineMeta})
		require.NoError(t, err)
		leases := make(chan []engine.Lease, 1)
		go func() {
			claimed, _ := b.Claim(t.Context(), engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Wait: time.Minute})
			leases <- claimed
		}()
		_, err = b.ResumeDispatch(t.Context(), engine.Turn{Meta: engineMeta})
		require.NoError(t, err)
		require.Len(t, <-leases, 1)
	})

	t.Run("no lease is made after a pause has returned, whatever is being claimed", func(t *testing.T) {
		t.Parallel()
		tr := newTrack(t)
		tr.rounds(t, raceRounds, func() {
			tr.runs(t, "single", racesEach)
			require.Equal(t, racesEach, tr.admit(t))
			errs := make([]error, racesEach+1)
			seen := -1
			tr.race(racesEach+1, func(server *engine.Engine, i int) {
				if i < racesEach {
					_, errs[i] = server.Claim(t.Context(), engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 1})
					return
				}
				_, errs[i] = server.PauseDispatch(t.Context(), engine.Turn{Meta: engineMeta})
				seen = tr.db.Count(t, `SELECT count(*) FROM servo.leases`)
			})
			requireNone(t, errs)
			require.Equal(t, seen, tr.db.Count(t, `SELECT count(*) FROM servo.leases`))
			_, err := tr.servers[0].ResumeDispatch(t.Context(), engine.Turn{Meta: engineMeta})
			require.NoError(t, err)
			// the next round begins with nothing held and nothing queued
			tr.drain(t, succeed)
			tr.forward(t, time.Hour)
			require.NoError(t, untilIdle(t.Context(), tr.servers[0].Expire, 1000))
			tr.drain(t, succeed)
		})
	})
}

func TestPauseAsset(t *testing.T) {
	t.Parallel()
	pause := func(b *bundle, asset string) engine.AssetPause {
		return engine.AssetPause{Tenant: b.tenant, Asset: asset, Reason: "wrong prices", By: "ann", Meta: engineMeta}
	}

	t.Run("its tasks wait in READY, all others continue, and a resume releases them", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		changed, err := b.PauseAsset(t.Context(), pause(b, "d/b"))
		require.NoError(t, err)
		require.True(t, changed)
		key := b.trigger(t, "diamond")
		b.drain(t, succeed)
		b.requireStates(t, key, run.RunRunning, "d/a=SUCCEEDED", "d/b=READY", "d/c=SUCCEEDED", "d/d=PENDING")
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.ready_q WHERE held`))
		verifytest.Clean(t, b.db)

		woken := b.Ready()
		changed, err = b.ResumeAsset(t.Context(), pause(b, "d/b"))
		require.NoError(t, err)
		require.True(t, changed)
		<-woken
		b.drain(t, succeed)
		b.requireStates(t, key, run.RunSucceeded)
		verifytest.Clean(t, b.db)
	})

	t.Run("pausing twice is pausing once, and so is resuming", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for _, want := range []bool{true, false} {
			changed, err := b.PauseAsset(t.Context(), pause(b, "d/b"))
			require.NoError(t, err)
			require.Equal(t, want, changed)
		}
		pauses, err := b.db.ListAssetPauses(t.Context(), b.tenant, "default")
		require.NoError(t, err)
		require.Len(t, pauses, 1)
		require.Equal(t, []string{"d/b", "wrong prices", "ann"}, []string{pauses[0].Asset, pauses[0].Reason, pauses[0].PausedBy})
		for _, want := range []bool{true, false} {
			changed, err := b.ResumeAsset(t.Context(), pause(b, "d/b"))
			require.NoError(t, err)
			require.Equal(t, want, changed)
		}
		verifytest.Clean(t, b.db)
	})

	t.Run("an asset that is not deployed cannot be paused, but resumed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.PauseAsset(t.Context(), pause(b, "d/bb"))
		requireFault(t, err, fault.NotFound)
		require.ErrorContains(t, err, "d/b")
		_, err = b.PauseAsset(t.Context(), pause(b, "d/b"))
		require.NoError(t, err)
		b.deploy(t, "version: 1\nassets:\n  - {key: s/one, exec: {command: [run]}}\n")
		changed, err := b.ResumeAsset(t.Context(), pause(b, "d/b"))
		require.NoError(t, err)
		require.True(t, changed)
	})

	t.Run("a missing workspace is not found", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		elsewhere := pause(b, "d/b")
		elsewhere.Workspace = "nowhere"
		_, err := b.PauseAsset(t.Context(), elsewhere)
		requireFault(t, err, fault.NotFound)
	})
}
