package admission

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/engine"
)

func TestStart(t *testing.T) {
	t.Parallel()
	limit := func(t *testing.T, c *cluster, runs int32) {
		t.Helper()
		quotas, version, err := c.db.GetQuotas(t.Context(), c.tenant)
		require.NoError(t, err)
		quotas.MaxConcurrentRuns = runs
		_, err = c.engine.SetQuotas(t.Context(), c.tenant, quotas, version, event.Meta{})
		require.NoError(t, err)
	}
	wait := func(t *testing.T, c *cluster, n int) []id.Run {
		t.Helper()
		runs := make([]id.Run, n)
		for i := range runs {
			triggered, err := c.engine.TriggerRun(t.Context(), engine.Trigger{Tenant: c.tenant, WaitForQuota: true})
			require.NoError(t, err)
			runs[i] = triggered.Run
		}
		return runs
	}
	const started = `SELECT count(*) FROM servo.runs WHERE state = 2`

	t.Run("a running server starts what waits as runs end and quotas change, and admits it", func(t *testing.T) {
		t.Parallel()
		c := setup(t)
		limit(t, c, 1)
		a := Start(c.db.Store, c.engine, Config{Holder: "a"})
		t.Cleanup(func() { require.NoError(t, a.Stop(context.WithoutCancel(t.Context()))) })
		runs := wait(t, c, 4)
		c.until(t, 1, started)
		_, err := c.engine.CancelRun(t.Context(), engine.Cancel{Tenant: c.tenant, Run: runs[0]})
		require.NoError(t, err)
		c.until(t, 1, `SELECT count(*) FROM servo.runs WHERE state = 2 AND id = '`+runs[1].String()+`'`)
		limit(t, c, 3)
		c.until(t, 3, started)
		c.until(t, 3, `SELECT count(*) FROM servo.pool_q`)
		verifytest.Clean(t, c.db)
	})

	t.Run("what another server has made to wait is found by looking, a batch after the other", func(t *testing.T) {
		t.Parallel()
		c := setup(t)
		limit(t, c, 0)
		wait(t, c, 5)
		limit(t, c, 10)
		a := c.server(t, "a") // has received no signal; its batches have 2
		require.True(t, a.look(t))
		require.Equal(t, 2, c.db.Count(t, started))
		for a.look(t) {
			continue
		}
		require.Equal(t, 5, c.db.Count(t, started))
	})
}
