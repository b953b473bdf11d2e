package engine_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// selected triggers a run of a selection.
func (b *bundle) selected(t testing.TB, expressions ...string) store.RunKey {
	t.Helper()
	triggered, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Select: expressions, Meta: engineMeta})
	require.NoError(t, err)
	return store.RunKey{Tenant: b.tenant, Run: triggered.Run}
}

// failureOf is why a task of a run failed.
func (b *bundle) failureOf(t testing.TB, key store.RunKey, asset string) *run.Failure {
	t.Helper()
	for _, task := range b.tasks(t, key) {
		if task.Asset == asset {
			return task.Failure
		}
	}
	require.Fail(t, "no task of "+asset)
	return nil
}

func TestInputsFromOutside(t *testing.T) {
	t.Parallel()
	type received = map[string][]string

	t.Run("an upstream that is not selected is read from the newest run in which it succeeded", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "diamond")
		b.work(t)
		latest := b.selected(t, "d/a")
		b.work(t)
		failed := b.selected(t, "d/a")
		b.work(t, "d/a")
		b.requireStates(t, failed, run.RunFailed)
		partial := b.selected(t, "d/b")
		require.Equal(t, received{"d/b": {"d/a=" + latest.Run.String()}}, b.work(t))
		b.requireStates(t, partial, run.RunSucceeded)
		verifytest.Clean(t, b.db)
	})

	t.Run("the newest run counts, not the last to end", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		slow := b.selected(t, "d/a")
		b.admit(t)
		lease := b.claim(t, 1, true)[0]
		newer := b.selected(t, "d/a")
		b.work(t)
		b.report(t, lease, engine.Complete{Result: json.RawMessage(`"` + slow.Run.String() + `"`)})
		b.selected(t, "d/b")
		require.Equal(t, received{"d/b": {"d/a=" + newer.Run.String()}}, b.work(t))
	})

	t.Run("all attempts read the same, also after a newer result", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first := b.selected(t, "d/a")
		b.work(t)
		b.selected(t, "d/b")
		b.admit(t)
		lease := b.claim(t, 1, true)[0]
		require.Equal(t, first.Run, lease.Upstream[0].Run)
		b.report(t, lease, engine.Yield{})
		b.selected(t, "d/a")
		require.Equal(t, []string{"d/a=" + first.Run.String()}, b.work(t)["d/b"])
	})

	t.Run("without a result the task fails before it is leased, and is not retried", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		partial := b.selected(t, "d/b", "d/d", "s/one")
		require.Equal(t, received{"s/one": nil}, b.work(t), "the code of d/b is never given to a worker")
		b.requireStates(t, partial, run.RunFailed, "d/b=FAILED", "d/d=SKIPPED", "s/one=SUCCEEDED")
		failure := b.failureOf(t, partial, "d/b")
		require.Equal(t, "MISSING_INPUT", failure.Code)
		require.Equal(t, "upstream d/a has no stored result in the workspace, and is not part of this run", failure.Message)
		require.Contains(t, failure.SuggestedAction, "--select +d/b")
		require.JSONEq(t, `{"missing": ["d/a"]}`, string(failure.Details))
		verifytest.Clean(t, b.db)
	})

	t.Run("a policy that retries everything does not retry it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		triggered, err := b.TriggerRun(t.Context(), engine.Trigger{
			Tenant: b.tenant, Select: []string{"d/b"}, Meta: engineMeta,
			Retry: &run.RetryPolicy{MaxAttempts: 9, RetryOn: []string{"MISSING_INPUT"}},
		})
		require.NoError(t, err)
		b.work(t)
		b.requireStates(t, store.RunKey{Tenant: b.tenant, Run: triggered.Run}, run.RunFailed, "d/b=FAILED")
	})

	t.Run("a waiting claim continues after it has refused a task", func(t *testing.T) {
		t.Parallel()
		b := setupOn(t, servotest.DB(t), engine.Config{Handoff: true})
		got := b.waitingClaim(t, engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Start: true, Wait: 2 * time.Minute})
		missing := b.selected(t, "d/b")
		b.admit(t)
		require.Eventually(t, func() bool {
			state, _ := b.states(t, missing)
			return state == run.RunFailed
		}, time.Minute, 10*time.Millisecond)
		b.selected(t, "s/one")
		b.admit(t)
		leases := <-got
		require.Len(t, leases, 1)
		require.Equal(t, "s/one", leases[0].Asset)
	})

	t.Run("a retry looks for the latest again", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		partial := b.selected(t, "d/b")
		b.work(t)
		first := b.selected(t, "d/a")
		b.work(t)
		again := b.retry(t, partial, engine.RetryFailed)
		require.Equal(t, received{"d/b": {"d/a=" + first.Run.String()}}, b.work(t, "d/b"))
		second := b.selected(t, "d/a")
		b.work(t)
		b.retry(t, again, engine.RetryFailed)
		require.Equal(t, received{"d/b": {"d/a=" + second.Run.String()}}, b.work(t), "it may be why the run is retried")
		verifytest.Clean(t, b.db)
	})

	t.Run("other workspaces do not count", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selected(t, "d/a")
		b.work(t)
		_, err := b.CreateWorkspace(t.Context(), b.tenant, "other", engineMeta)
		require.NoError(t, err)
		manifest, err := asset.Parse([]byte(manifestText), "servo.yaml")
		require.NoError(t, err)
		_, err = b.Deploy(t.Context(), b.tenant, "other", manifest, engineMeta)
		require.NoError(t, err)
		triggered, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Workspace: "other", Select: []string{"d/b"}, Meta: engineMeta})
		require.NoError(t, err)
		b.work(t)
		b.requireStates(t, store.RunKey{Tenant: b.tenant, Run: triggered.Run}, run.RunFailed, "d/b=FAILED")
	})

	t.Run("a run that was deleted in between is a missing input", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first := b.selected(t, "d/a")
		b.work(t)
		partial := b.selected(t, "d/b")
		b.db.Exec(t, `DELETE FROM servo.tasks WHERE run_id = '`+first.Run.String()+`'`)
		require.Empty(t, b.work(t))
		require.Equal(t, "MISSING_INPUT", b.failureOf(t, partial, "d/b").Code)
	})

	t.Run("what a fan-out adds needs none", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "fan")
		scan := b.one(t)
		b.report(t, scan, engine.FanOut{Tasks: []engine.FanOutTask{{"d/b", "0"}}})
		b.report(t, scan, engine.Complete{Result: json.RawMessage(`"` + scan.Run.String() + `"`)})
		require.Contains(t, b.work(t), "d/b")
	})
}
