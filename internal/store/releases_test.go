package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/release"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

func (w *world) release(t *testing.T, name string) store.Release {
	t.Helper()
	r := store.Release{Release: release.Release{Name: name, Digest: "digest-" + name, Note: "note"}, ID: id.New[id.Release](w.mint), Version: 1, CreatedAt: w.now}
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.InsertRelease(t.Context(), r, json.RawMessage(`{"version":1}`))) })
	return r
}

func (w *world) releaseChannel(t *testing.T, name string, current, to store.Release) store.ReleaseChannel {
	t.Helper()
	c := store.ReleaseChannel{Name: name, CreatedAt: w.now, UpdatedAt: w.now, Channel: release.Channel{
		Live: true, Current: current.ID, Default: true,
		Rollout: &release.Rollout{ID: uuid.New(), From: current.ID, To: to.ID, State: release.Rolling, Waves: []int32{10_000}, Soak: time.Minute, WaveAt: w.now, StartedAt: w.now},
	}}
	w.engine(t, func(tx *Tx) {
		version := must(tx.InsertReleaseChannel(t.Context(), c))(t)
		c.Version = version
		require.NoError(t, tx.UpdateReleaseChannel(t.Context(), c))
	})
	return c
}

func (w *world) follow(t *testing.T, a *account, channel string) {
	t.Helper()
	a.workspace.Channel = channel
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.FollowChannel(t.Context(), a.workspace)) })
}

func TestReleaseRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v1, v2 := w.release(t, "v1"), w.release(t, "v2")
	c := w.releaseChannel(t, "stable", v1, v2)

	t.Run("releases are found by name and id, listed, and hidden once deleted", func(t *testing.T) {
		t.Parallel()
		gone := w.release(t, "gone")
		require.Equal(t, v1, must(w.ReleaseNamed(t.Context(), "v1"))(t))
		require.Equal(t, v1, must(w.ReleaseNamed(t.Context(), v1.ID.String()))(t))
		require.Equal(t, json.RawMessage(`{"version":1}`), must(w.ReleaseManifest(t.Context(), v1))(t))
		require.Equal(t, []store.Release{v1}, must(w.ListReleases(t.Context(), &v2.ID, 10))(t))
		w.engine(t, func(tx *Tx) {
			locked := must(tx.LockRelease(t.Context(), gone.ID))(t)
			locked.Version++
			require.NoError(t, tx.DeleteRelease(t.Context(), locked, w.now))
			_, err := tx.ShareRelease(t.Context(), gone.ID)
			require.True(t, fault.Is(err, fault.NotFound), err)
			require.Equal(t, v1, must(tx.ShareRelease(t.Context(), v1.ID))(t))
		})
		_, err := w.ReleaseNamed(t.Context(), "gone")
		require.True(t, fault.Is(err, fault.NotFound), err)
		require.Equal(t, w.now, must(w.ReleasesByID(t.Context(), []id.Release{gone.ID}))(t)[gone.ID].DeletedAt)
		require.NotEmpty(t, must(w.ListReleases(t.Context(), nil, 10))(t))
	})

	t.Run("channels are read, locked and deleted, with their events", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, must(w.ReleaseChannels(t.Context()))(t), c)
		w.engine(t, func(tx *Tx) {
			require.Equal(t, c, must(tx.LockReleaseChannel(t.Context(), "stable"))(t))
			require.Equal(t, c, must(tx.ShareReleaseChannel(t.Context(), "stable"))(t))
			_, err := tx.LockReleaseChannel(t.Context(), "nowhere")
			require.True(t, fault.Is(err, fault.NotFound), err)
			require.NoError(t, tx.AppendPlatformEvents(t.Context(), platform.Event{
				Subject: "channel/old", Version: 1, At: w.now, Meta: event.Meta{Actor: "ann"}, Body: release.ChannelCreated{Release: v1.ID},
			}))
			old := store.ReleaseChannel{Name: "old", CreatedAt: w.now}
			require.EqualValues(t, 2, must(tx.InsertReleaseChannel(t.Context(), old))(t))
			require.NoError(t, tx.DeleteReleaseChannel(t.Context(), "old"))
		})
		events := must(w.ChannelEvents(t.Context(), "old", 10))(t)
		require.Len(t, events, 1)
		require.Equal(t, release.ChannelCreated{Release: v1.ID}, events[0].Body)
		rolling, _, err := w.ReleaseWork(t.Context())
		require.NoError(t, err)
		require.True(t, rolling)
	})

	t.Run("a following workspace is resolved to its release, for triggers, lists and reads of its tenant", func(t *testing.T) {
		t.Parallel()
		a, b := w.account(t, "follower"), w.account(t, "other")
		w.config(t, a, "nightly", nil)
		w.follow(t, &a, "stable")
		require.Equal(t, v2.Deployment(), must(w.ActiveCode(t.Context(), a.tenant, "default"))(t))
		require.Equal(t, b.deployment.ID, must(w.ActiveCode(t.Context(), b.tenant, "default"))(t))
		require.Equal(t, v2.Deployment(), *must(w.ListWorkspaces(t.Context(), a.tenant))(t)[0].Active)
		w.engine(t, func(tx *Tx) {
			found := must(tx.Workspaces(t.Context(), []store.WorkspaceName{{Tenant: a.tenant, Name: "default"}}))(t)[0]
			require.Equal(t, v2.Deployment(), *found.Active)
			require.Equal(t, v1.Deployment(), *found.Other)
			require.Len(t, must(tx.WorkspaceConfigs(t.Context(), found))(t), 1)
			require.EqualValues(t, 1, must(tx.CountFollowers(t.Context(), "stable"))(t))
		})
		var configs []string
		require.NoError(t, w.FollowingConfigs(t.Context(), "stable", func(f store.FollowingConfig) error {
			configs = append(configs, f.TenantName+"/"+f.Name)
			return nil
		}))
		require.Equal(t, []string{"follower/nightly"}, configs)
		require.Equal(t, "follower", must(w.FollowingTenants(t.Context(), "stable"))(t)[0].Name)
	})

	t.Run("a tenant reads no release and no channel", func(t *testing.T) {
		t.Parallel()
		a := w.account(t, "curious")
		for _, read := range []func(context.Context, *Tx) error{
			func(ctx context.Context, tx *Tx) error { _, err := tx.ReleaseNamed(ctx, "v1"); return err },
			func(ctx context.Context, tx *Tx) error { _, err := tx.AllReleaseChannels(ctx); return err },
		} {
			require.ErrorContains(t, w.Tenant(t.Context(), a.tenant.String(), read), "permission denied")
		}
		_, err := w.GetDeployment(t.Context(), a.tenant, v1.Deployment())
		require.True(t, fault.Is(err, fault.NotFound), "not by its id either")
	})

	t.Run("tenants are found by label", func(t *testing.T) {
		t.Parallel()
		a := w.account(t, "labelled")
		w.engine(t, func(tx *Tx) {
			labels, version, err := tx.LockLabels(t.Context(), a.tenant)
			require.NoError(t, err)
			require.Empty(t, labels)
			require.NoError(t, tx.SetTenantLabels(t.Context(), a.tenant, `{"tier":"internal"}`, version+1))
		})
		found := must(w.TenantsWithLabel(t.Context(), "tier", "internal", id.Tenant{}, 10))(t)
		require.Len(t, found, 1)
		require.Equal(t, a.tenant, found[0].ID)
		require.Empty(t, must(w.TenantsWithLabel(t.Context(), "tier", "other", id.Tenant{}, 10))(t))
	})
}

func TestReleaseTotals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v1, v2 := w.release(t, "v1"), w.release(t, "v2")
	c := w.releaseChannel(t, "stable", v1, v2)
	a := w.account(t, "follower")
	w.follow(t, &a, "stable")
	config := id.Of[id.Config](uuid.New())
	ended := func(of store.Release, state run.State, created time.Time) run.Run {
		return run.Run{
			Tenant: a.tenant, ID: id.New[id.Run](w.mint), Workspace: a.workspace.ID, Deployment: of.Deployment(), Released: true, Config: &config, State: state, CreatedAt: created,
		}
	}
	before := w.now.Add(-time.Hour)
	w.apply(t, store.Changes{Released: []run.Run{
		ended(v1, run.RunSucceeded, before), ended(v1, run.RunSucceeded, before), ended(v1, run.RunFailed, before),
		ended(v2, run.RunTimedOut, w.now), ended(v2, run.RunSucceeded, w.now),
		ended(v2, run.RunFailed, before), // of an earlier rollout
	}})
	_, waits, err := w.ReleaseWork(t.Context())
	require.NoError(t, err)
	require.True(t, waits)
	require.Equal(t, 4, must(w.MergeReleaseEnds(t.Context(), 4))(t))
	require.Equal(t, 2, must(w.MergeReleaseEnds(t.Context(), 4))(t))
	require.Equal(t, release.Evidence{New: release.Counts{Ended: 2, Failed: 1}, Old: release.Counts{Ended: 3, Failed: 1}}, must(w.RolloutEvidence(t.Context(), c.Rollout))(t))
	require.Equal(t, []store.RolloutFailure{{Tenant: "follower", Error: "TIMED_OUT", Runs: 1}}, must(w.RolloutFailures(t.Context(), c.Rollout, 10))(t))
	require.Equal(t, map[id.Release]map[string]int64{v1.ID: {"": 2, "UNKNOWN": 1}}, must(w.ReleaseTotals(t.Context(), []id.Release{v1.ID}))(t))
	require.Zero(t, must(w.ForgetReleaseTotals(t.Context(), 10))(t))
	w.Exec(t, `DELETE FROM servo.release_channels`)
	require.NotZero(t, must(w.ForgetReleaseTotals(t.Context(), 10))(t))
}
