package verify_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
)

const controlledTenant = "controlled"

// withdrawn: a task that was queued in a pool when its tenant lost access to it.
func (w *world) withdrawn(t testing.TB) {
	t.Helper()
	owner := w.account(t, "withdrawn")
	w.deploy(t, owner, `
version: 1
assets:
  - {key: w/a, exec: {command: [run]}, pool: lost}
pipelines:
  - {name: lost, select: ["w/*"]}
`)
	w.triggerWith(t, engine.Trigger{Tenant: owner, Pipeline: "lost"})
	w.admit(t)
	_, err := w.CreatePool(t.Context(), "lost", platform.PoolSettings{
		Kind: platform.Pull, MaxConcurrency: platform.NoLimit, TimeoutSeconds: 30, Owner: w.tenant,
	}, event.Meta{Actor: "api"})
	require.NoError(t, err)
	w.later(t, time.Minute)
	require.Equal(t, 1, value(w.WithdrawQueued(t.Context(), 10))(t))
}

// controlled: what operators do by hand. A task of a silent worker was cancelled by force; of
// two assets that were paused one still is.
func (w *world) controlled(t testing.TB) {
	t.Helper()
	owner := w.account(t, controlledTenant)
	operator := event.Meta{Actor: "api"}
	w.deploy(t, owner, `
version: 1
assets:
  - {key: c/a, exec: {command: [run]}, pool: controlled, timeout: 2h}
  - {key: c/b, exec: {command: [run]}, pool: controlled, upstream: [c/a]}
pipelines:
  - {name: controlled, select: ["c/*"]}
`)
	key := w.triggerWith(t, engine.Trigger{Tenant: owner, Pipeline: "controlled"})
	lease := w.one(t, "controlled")
	w.cancel(t, key, false)
	w.later(t, 5*time.Minute)
	cancelled := value(w.ForceCancelTask(t.Context(), engine.ForceCancel{TaskKey: lease.TaskKey, Reason: "its machine is gone", Meta: operator}))(t)
	require.Equal(t, run.RunCancelled, cancelled.State)

	for _, asset := range []string{"c/a", "c/b"} {
		require.True(t, value(w.PauseAsset(t.Context(), engine.AssetPause{Tenant: owner, Asset: asset, Reason: "wrong prices", By: "ann", Meta: operator}))(t))
	}
	w.later(t, time.Minute)
	require.True(t, value(w.ResumeAsset(t.Context(), engine.AssetPause{Tenant: owner, Asset: "c/a", Meta: operator}))(t))
}
