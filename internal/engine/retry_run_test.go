package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// failing fails the tasks with these names (an asset, or asset@partition) and lets the
// others succeed.
func failing(names ...string) func(engine.Lease) engine.Action {
	return func(l engine.Lease) engine.Action {
		for _, name := range names {
			if name == l.Asset || name == l.Asset+"@"+l.Partition {
				return fatal
			}
		}
		return engine.Complete{}
	}
}

func (b *bundle) retry(t testing.TB, of store.RunKey, mode engine.RetryMode) store.RunKey {
	t.Helper()
	triggered, err := b.RetryRun(t.Context(), engine.RetryRun{Tenant: of.Tenant, Run: of.Run, Mode: mode, TriggeredBy: "jo", Meta: engineMeta})
	require.NoError(t, err)
	require.False(t, triggered.Repeat)
	return store.RunKey{Tenant: of.Tenant, Run: triggered.Run}
}

func (b *bundle) retryError(t testing.TB, of store.RunKey, mode engine.RetryMode) error {
	t.Helper()
	_, err := b.RetryRun(t.Context(), engine.RetryRun{Tenant: of.Tenant, Run: of.Run, Mode: mode})
	require.Error(t, err)
	return err
}

func (b *bundle) assets(t testing.TB, key store.RunKey) (assets []string) {
	t.Helper()
	for _, task := range b.tasks(t, key) {
		assets = append(assets, task.Asset)
	}
	return assets
}

func TestRetryRun(t *testing.T) {
	t.Parallel()

	t.Run("what failed and what was skipped for it is done again, and nothing else", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		parent := b.trigger(t, "diamond")
		b.drain(t, failing("d/b"))
		b.requireStates(t, parent, run.RunFailed, "d/a=SUCCEEDED", "d/b=FAILED", "d/c=SUCCEEDED", "d/d=SKIPPED")

		child := b.retry(t, parent, engine.RetryFailed)
		require.Equal(t, []string{"d/b", "d/d"}, b.assets(t, child))
		b.requireStates(t, child, run.RunRunning, "d/b=READY", "d/d=PENDING")
		b.drain(t, succeed)
		b.requireStates(t, child, run.RunSucceeded, "d/b=SUCCEEDED", "d/d=SUCCEEDED")
		b.requireStates(t, parent, run.RunFailed, "d/b=FAILED")
		verifytest.Clean(t, b.db)
	})

	t.Run("a child is its parent's in all but the tasks", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, manifestText+`
  - {name: typed, overlap: allow, select: [s/one], parameters: [{name: day, type: string, required: true}]}
`)
		triggered, err := b.TriggerRun(t.Context(), engine.Trigger{
			Tenant: b.tenant, Pipeline: "typed", Parameters: json.RawMessage(`{"day": "monday"}`), Priority: 9, TriggerType: "api", TriggeredBy: "ann",
			Retry: &run.RetryPolicy{MaxAttempts: 1},
		})
		require.NoError(t, err)
		key := store.RunKey{Tenant: b.tenant, Run: triggered.Run}
		b.drain(t, failing("s/one"))
		parent, err := b.db.GetRun(t.Context(), key)
		require.NoError(t, err)

		child, err := b.db.GetRun(t.Context(), b.retry(t, key, engine.RetryFailed))
		require.NoError(t, err)
		require.Equal(t, &parent.ID, child.Parent)
		require.Equal(t, engine.TriggerRetry, child.TriggerType)
		require.Equal(t, "jo", child.TriggeredBy)
		require.Equal(t, parent.Workspace, child.Workspace)
		require.Equal(t, "typed", child.Pipeline)
		require.JSONEq(t, `{"day": "monday"}`, string(child.Parameters))
		require.EqualValues(t, 9, child.Priority)
		require.Equal(t, &run.RetryPolicy{MaxAttempts: 1}, child.Retry)
		require.Equal(t, parent.Fingerprint, child.Fingerprint, "the same tasks of the same code")

		children, _, err := b.db.ListRuns(t.Context(), b.tenant, store.RunFilter{Parent: &parent.ID}, nil, 10)
		require.NoError(t, err)
		require.Equal(t, []store.RunView{child}, children)
		verifytest.Clean(t, b.db)
	})

	t.Run("all is what was planned, succeeded or not", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		parent := b.trigger(t, "diamond")
		b.drain(t, succeed)
		child := b.retry(t, parent, engine.RetryAll)
		require.Equal(t, []string{"d/a", "d/b", "d/c", "d/d"}, b.assets(t, child))
		b.drain(t, succeed)
		b.requireStates(t, child, run.RunSucceeded)
		verifytest.Clean(t, b.db)
	})

	t.Run("a cancelled run continues with its remaining tasks", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		parent := b.trigger(t, "diamond")
		b.report(t, b.one(t), engine.Complete{})
		b.cancel(t, parent)
		child := b.retry(t, parent, engine.RetryFailed)
		require.Equal(t, []string{"d/b", "d/c", "d/d"}, b.assets(t, child))
		verifytest.Clean(t, b.db)
	})

	t.Run("a run of a selection has no pipeline to ask", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		triggered, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Select: []string{"d/a+"}})
		require.NoError(t, err)
		b.drain(t, failing("d/c"))
		child := b.retry(t, store.RunKey{Tenant: b.tenant, Run: triggered.Run}, engine.RetryFailed)
		require.Equal(t, []string{"d/c", "d/d"}, b.assets(t, child))
	})

	t.Run("a large plan is done again whole", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		const n = 2500 // more than one event's tasks, and than a selection may have expressions
		var text strings.Builder
		text.WriteString("version: 1\npipelines: [{name: many, overlap: allow, select: [\"*\"]}]\nassets:\n")
		for i := range n {
			fmt.Fprintf(&text, "  - {key: m/a%04d, exec: {command: [run]}}\n", i)
		}
		b.deploy(t, text.String())
		parent := b.trigger(t, "many")
		b.cancel(t, parent)
		require.Len(t, b.assets(t, b.retry(t, parent, engine.RetryAll)), n)
		require.Len(t, b.assets(t, b.retry(t, parent, engine.RetryFailed)), n)
		verifytest.Clean(t, b.db)
	})
}

func TestRetryRunOfFanOuts(t *testing.T) {
	t.Parallel()

	// fanned runs the pipeline: scan adds two fetches, the first of which adds another.
	fanned := func(t *testing.T, b *bundle, fail ...string) store.RunKey {
		t.Helper()
		key := b.trigger(t, "fan")
		scan := b.one(t)
		b.report(t, scan, engine.FanOut{Barrier: true, Tasks: []engine.FanOutTask{{"f/fetch", "0"}, {"f/fetch", "1"}}})
		b.report(t, scan, engine.Complete{})
		fetch := b.one(t)
		b.report(t, fetch, engine.FanOut{Tasks: []engine.FanOutTask{{"f/fetch", fetch.Partition + "0"}}})
		b.report(t, fetch, failing(fail...)(fetch))
		b.drain(t, failing(fail...))
		return key
	}

	for name, c := range map[string]struct {
		fail []string
		mode engine.RetryMode
		want []string
	}{
		"a mapped task stands for the one that added it, and what waited for it is skipped": {[]string{"f/fetch@1"}, engine.RetryFailed, []string{"f/scan", "f/join"}},
		"one that was added by a mapped task stands for the first of them":                  {[]string{"f/fetch@00", "f/fetch@10"}, engine.RetryFailed, []string{"f/scan"}},
		"what was planned does not hold what was added":                                     {nil, engine.RetryAll, []string{"f/scan", "f/join"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			parent := fanned(t, b, c.fail...)
			child := b.retry(t, parent, c.mode)
			require.ElementsMatch(t, c.want, b.assets(t, child))
			b.drain(t, succeed)
			b.requireStates(t, child, run.RunSucceeded)
			verifytest.Clean(t, b.db)
		})
	}
}

func TestRetryRunRefuses(t *testing.T) {
	t.Parallel()

	t.Run("a run that is not over", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "single")
		for _, mode := range []engine.RetryMode{engine.RetryFailed, engine.RetryAll} {
			err := b.retryError(t, key, mode)
			requireFault(t, err, fault.Conflict)
			require.ErrorContains(t, err, "the run is RUNNING")
		}
		b.one(t)
		b.cancel(t, key)
		require.ErrorContains(t, b.retryError(t, key, engine.RetryFailed), "the run is CANCELLING")
	})

	t.Run("a run in which nothing went wrong", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "single")
		b.drain(t, succeed)
		err := b.retryError(t, key, engine.RetryFailed)
		requireFault(t, err, fault.Conflict)
		require.ErrorContains(t, err, "nothing to retry")
	})

	t.Run("a missing run, one of another tenant, and a mode that does not exist", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "single")
		b.drain(t, failing("s/one"))
		other, err := b.CreateTenant(t.Context(), "brick", engineMeta)
		require.NoError(t, err)
		requireFault(t, b.retryError(t, store.RunKey{Tenant: other, Run: key.Run}, engine.RetryFailed), fault.NotFound)
		requireFault(t, b.retryError(t, key, "SOME"), fault.InvalidArgument)
	})

	const without = `
version: 1
assets:
  - {key: d/a, exec: {command: [run]}}
  - {key: d/c, exec: {command: [run]}, upstream: [d/a]}
`
	for name, c := range map[string]struct {
		deploy string
		code   fault.Code
		want   []string
	}{
		"assets that the active deployment does not have, by name": {
			without + `pipelines: [{name: diamond, overlap: allow, select: ["d/*"]}]`, fault.Conflict, []string{"no asset d/b, d/d any more", "deploy a manifest that has it"},
		},
		"a pipeline that it does not have": {without, fault.Conflict, []string{"no pipeline diamond any more"}},
		"parameters that it does not take any more": {
			strings.Replace(manifestText, `{name: diamond, overlap: allow, select: ["d/*"]}`, `{name: diamond, overlap: allow, select: ["d/*"], parameters: [{name: day, type: string, required: true}]}`, 1),
			fault.InvalidArgument,
			[]string{"parameters.day: is missing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			parent := b.trigger(t, "diamond")
			b.drain(t, failing("d/b"))
			b.deploy(t, c.deploy)
			err := b.retryError(t, parent, engine.RetryFailed)
			requireFault(t, err, c.code)
			for _, text := range c.want {
				require.ErrorContains(t, err, text)
			}
			verifytest.Clean(t, b.db)
		})
	}

	t.Run("many missing assets are named up to a limit", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var text strings.Builder
		text.WriteString("version: 1\nassets:\n")
		for i := range 12 {
			fmt.Fprintf(&text, "  - {key: m/a%02d, exec: {command: [run]}}\n", i)
		}
		b.deploy(t, text.String())
		triggered, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant})
		require.NoError(t, err)
		key := store.RunKey{Tenant: b.tenant, Run: triggered.Run}
		b.cancel(t, key)
		b.deploy(t, manifestText)
		require.ErrorContains(t, b.retryError(t, key, engine.RetryAll), "m/a08, m/a09 and 2 more any more")
	})
}

func TestRetryRunOfFixedCode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.trigger(t, "diamond")
	b.drain(t, failing("d/b"))
	b.deploy(t, strings.Replace(manifestText, "{key: d/b, exec: {command: [run]}", "{key: d/b, exec: {command: [run, repaired]}", 1))
	active, err := b.db.ActiveCode(t.Context(), b.tenant, "default")
	require.NoError(t, err)
	parent, err := b.db.GetRun(t.Context(), key)
	require.NoError(t, err)
	require.NotEqual(t, parent.Deployment, active)

	child, err := b.db.GetRun(t.Context(), b.retry(t, key, engine.RetryFailed))
	require.NoError(t, err)
	require.Equal(t, active, child.Deployment, "a retry uses the deployment that is active now")
	verifytest.Clean(t, b.db)
}

func TestRetryRunIsIdempotent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.trigger(t, "diamond")
	b.drain(t, failing("d/b"))
	request := engine.RetryRun{Tenant: key.Tenant, Run: key.Run, Mode: engine.RetryFailed, IdempotencyKey: "once"}
	first, err := b.RetryRun(t.Context(), request)
	require.NoError(t, err)
	require.False(t, first.Repeat)
	again, err := b.RetryRun(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, engine.Triggered{Run: first.Run, Repeat: true}, again)

	request.Mode = engine.RetryAll
	_, err = b.RetryRun(t.Context(), request)
	requireFault(t, err, fault.Conflict)
	_, err = b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "diamond", IdempotencyKey: "once"})
	requireFault(t, err, fault.Conflict)
	verifytest.Clean(t, b.db)
}
