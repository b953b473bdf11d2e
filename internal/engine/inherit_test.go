package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// work completes all tasks. Each task returns its run's id as result, or fails if it is
// named. It returns the results of the upstreams of each asset, as "asset=run".
func (b *bundle) work(t testing.TB, fail ...string) map[string][]string {
	t.Helper()
	received := map[string][]string{}
	b.drain(t, func(l engine.Lease) engine.Action {
		received[l.Asset] = nil
		for _, u := range l.Upstream {
			var from string
			require.NoError(t, json.Unmarshal(u.Result, &from))
			require.Equal(t, u.Run.String(), from, "the run that the upstream names")
			received[l.Asset] = append(received[l.Asset], u.Asset+"="+from)
		}
		if action, failed := failing(fail...)(l).(engine.Fail); failed {
			return action
		}
		return engine.Complete{Result: json.RawMessage(`"` + l.Run.String() + `"`)}
	})
	return received
}

func TestRetriesInherit(t *testing.T) {
	t.Parallel()
	type received = map[string][]string

	t.Run("a task gets what the retried run has done, and the rest from its own run", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		parent := b.trigger(t, "diamond")
		b.work(t, "d/b")
		child := b.retry(t, parent, engine.RetryFailed)
		require.Equal(t, received{
			"d/b": {"d/a=" + parent.Run.String()},
			"d/d": {"d/b=" + child.Run.String(), "d/c=" + parent.Run.String()},
		}, b.work(t))
		b.requireStates(t, child, run.RunSucceeded)
		verifytest.Clean(t, b.db)
	})

	t.Run("along a chain", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, `
version: 1
assets:
  - {key: c/a, exec: {command: [run]}}
  - {key: c/b, exec: {command: [run]}, upstream: [c/a]}
  - {key: c/c, exec: {command: [run]}, upstream: [c/b]}
pipelines: [{name: chain, overlap: allow}]
`)
		parent := b.trigger(t, "chain")
		b.work(t, "c/b")
		child := b.retry(t, parent, engine.RetryFailed)
		require.Equal(t, received{"c/b": {"c/a=" + parent.Run.String()}, "c/c": {"c/b=" + child.Run.String()}}, b.work(t))
		verifytest.Clean(t, b.db)
	})

	t.Run("a retry of a retry gets it from the run that has done it last, however many there were", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first := b.trigger(t, "diamond")
		b.work(t, "d/b")
		again := b.retry(t, first, engine.RetryAll)
		b.work(t, "d/c")
		last := b.retry(t, again, engine.RetryFailed)
		for range engine.MaxAncestors + 1 {
			b.work(t, "d/c", "d/d")
			last = b.retry(t, last, engine.RetryFailed)
		}
		require.Equal(t, received{
			"d/c": {"d/a=" + again.Run.String()},
			"d/d": {"d/c=" + last.Run.String(), "d/b=" + again.Run.String()},
		}, b.work(t))
		verifytest.Clean(t, b.db)
	})

	t.Run("the active code defines its inputs", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first := b.trigger(t, "diamond")
		b.work(t, "d/d")
		second := b.retry(t, first, engine.RetryFailed)
		require.Equal(t, received{"d/d": {"d/b=" + first.Run.String(), "d/c=" + first.Run.String()}}, b.work(t, "d/d"))
		b.deploy(t, strings.Replace(manifestText, "upstream: [d/b, d/c]", "upstream: [d/a, d/c]", 1))
		b.retry(t, second, engine.RetryFailed)
		require.Equal(t, received{"d/d": {"d/a=" + first.Run.String(), "d/c=" + first.Run.String()}}, b.work(t),
			"d/a was done two runs ago")
		verifytest.Clean(t, b.db)
	})

	t.Run("nothing comes from another tenant", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		theirs := b.trigger(t, "diamond")
		b.work(t)
		other, err := b.CreateTenant(t.Context(), "brick", engineMeta)
		require.NoError(t, err)
		b.tenant = other
		b.deploy(t, manifestText)
		triggered, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: other, Select: []string{"d/b"}, Parent: &theirs.Run})
		require.NoError(t, err)
		b.work(t, "d/b")
		again := b.retry(t, store.RunKey{Tenant: other, Run: triggered.Run}, engine.RetryFailed)
		require.Equal(t, received{}, b.work(t))
		require.Equal(t, "MISSING_INPUT", b.failureOf(t, again, "d/b").Code)
	})

	t.Run("nothing comes from what did not succeed; what did is the latest of the workspace", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		failed := b.trigger(t, "diamond")
		b.work(t, "d/a")
		going := b.trigger(t, "diamond")
		b.report(t, b.one(t), engine.Complete{Result: json.RawMessage(`"` + going.Run.String() + `"`)})
		for _, before := range []store.RunKey{failed, going} {
			triggered, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Select: []string{"d/b"}, Parent: &before.Run})
			require.NoError(t, err)
			key := store.RunKey{Tenant: b.tenant, Run: triggered.Run}
			b.cancel(t, key)
			b.retry(t, key, engine.RetryFailed)
		}
		b.cancel(t, going)
		require.Equal(t, received{"d/b": {"d/a=" + going.Run.String()}}, b.work(t))
	})

	t.Run("nothing comes from a run that is forgotten", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		parent := b.trigger(t, "diamond")
		b.work(t, "d/b")
		b.retry(t, parent, engine.RetryFailed)
		b.db.Exec(t, `DELETE FROM servo.tasks WHERE run_id = '`+parent.Run.String()+`'`)
		require.Nil(t, b.work(t)["d/b"])
	})

	t.Run("large results are omitted, and the repeat of a claim has the same", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		parent := b.trigger(t, "diamond")
		b.drain(t, func(l engine.Lease) engine.Action {
			if l.Asset == "d/d" {
				return fatal
			}
			return engine.Complete{Result: json.RawMessage(`"` + strings.Repeat("x", 40<<10) + `"`)}
		})
		b.retry(t, parent, engine.RetryFailed)
		b.admit(t)
		request := engine.ClaimRequest{Worker: "w1", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Start: true}
		leases, err := b.Claim(t.Context(), request)
		require.NoError(t, err)
		require.Len(t, leases[0].Upstream, 2)
		require.NotEqual(t, leases[0].Upstream[0].Omitted, leases[0].Upstream[1].Omitted, "64 KiB have room for one of two")
		for _, u := range leases[0].Upstream {
			require.Equal(t, parent.Run, u.Run)
		}
		again, err := b.Claim(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, leases[0].Upstream, again[0].Upstream)
	})

	t.Run("fanned-out tasks are executed again for their readers", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		parent := b.trigger(t, "fan")
		scan := b.one(t)
		b.report(t, scan, engine.FanOut{Barrier: true, Tasks: []engine.FanOutTask{{"f/fetch", "0"}}})
		b.report(t, scan, engine.Complete{})
		b.drain(t, failing("f/join"))
		b.requireStates(t, parent, run.RunFailed, "f/fetch@0=SUCCEEDED", "f/join=FAILED")
		require.Equal(t, []string{"f/scan", "f/join"}, b.assets(t, b.retry(t, parent, engine.RetryFailed)))
		verifytest.Clean(t, b.db)
	})
}
