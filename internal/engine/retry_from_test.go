package engine_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

func (b *bundle) retryFrom(t testing.TB, of store.RunKey, from string) (store.RunKey, error) {
	t.Helper()
	triggered, err := b.RetryRun(t.Context(), engine.RetryRun{Tenant: of.Tenant, Run: of.Run, Mode: engine.RetryFrom, From: from, Meta: engineMeta})
	return store.RunKey{Tenant: of.Tenant, Run: triggered.Run}, err
}

func TestRetryFrom(t *testing.T) {
	t.Parallel()

	t.Run("a task and what is downstream of it are done again, with the results of the rest", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		parent := b.trigger(t, "diamond")
		b.drain(t, func(l engine.Lease) engine.Action { return engine.Complete{Result: []byte(`"` + l.Asset + `"`)} })
		child, err := b.retryFrom(t, parent, "d/b")
		require.NoError(t, err)
		require.Equal(t, []string{"d/b", "d/d"}, b.assets(t, child))
		given := map[string][]string{}
		b.drain(t, func(l engine.Lease) engine.Action {
			for _, u := range l.Upstream {
				given[l.Asset] = append(given[l.Asset], u.Asset+"="+string(u.Result))
			}
			return engine.Complete{Result: []byte(`"again"`)}
		})
		require.Equal(t, []string{`d/a="d/a"`}, given["d/b"])
		require.ElementsMatch(t, []string{`d/b="again"`, `d/c="d/c"`}, given["d/d"])
		b.requireStates(t, child, run.RunSucceeded)
		verifytest.Clean(t, b.db)
	})

	t.Run("a task has the settings of its asset", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		parent := b.trigger(t, "diamond")
		b.drain(t, succeed)
		child, err := b.retryFrom(t, parent, b.tasks(t, parent)[3].ID.String())
		require.NoError(t, err)
		require.Equal(t, []string{"d/d"}, b.assets(t, child))
	})

	t.Run("a failed upstream that is needed is done again too", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		parent := b.trigger(t, "diamond")
		b.drain(t, failing("d/c"))
		child, err := b.retryFrom(t, parent, "d/b")
		require.NoError(t, err)
		require.Equal(t, []string{"d/b", "d/c", "d/d"}, b.assets(t, child))
	})

	t.Run("what the active deployment has put downstream goes along, as far as the run had planned it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		parent := b.trigger(t, "diamond")
		b.drain(t, succeed)
		b.deploy(t, strings.Replace(manifestText, "{key: d/c, exec: {command: [run]}, upstream: [d/a]}", "{key: d/c, exec: {command: [run]}, upstream: [d/b]}", 1))
		child, err := b.retryFrom(t, parent, "d/b")
		require.NoError(t, err)
		require.Equal(t, []string{"d/b", "d/c", "d/d"}, b.assets(t, child))
	})

	t.Run("the same key with another beginning is another request", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		parent := b.trigger(t, "diamond")
		b.drain(t, succeed)
		retry := engine.RetryRun{Tenant: b.tenant, Run: parent.Run, Mode: engine.RetryFrom, From: "d/b", IdempotencyKey: "k"}
		first, err := b.RetryRun(t.Context(), retry)
		require.NoError(t, err)
		again, err := b.RetryRun(t.Context(), retry)
		require.NoError(t, err)
		require.Equal(t, first.Run, again.Run)
		require.True(t, again.Repeat)
		retry.From = "d/c"
		_, err = b.RetryRun(t.Context(), retry)
		requireFault(t, err, fault.Conflict)
	})

	t.Run("a beginning that makes no sense is refused by its field", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		parent := b.trigger(t, "diamond")
		b.drain(t, succeed)
		for _, c := range []engine.RetryRun{
			{Mode: engine.RetryFrom},
			{Mode: engine.RetryFrom, From: "s/one"},
			{Mode: engine.RetryFrom, From: long(300)},
			{Mode: engine.RetryAll, From: "d/b"},
		} {
			c.Tenant, c.Run = parent.Tenant, parent.Run
			_, err := b.RetryRun(t.Context(), c)
			refused, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, "from", refused.Violation.Field)
			require.NotEmpty(t, refused.Violation.Remedy)
		}
	})
}
