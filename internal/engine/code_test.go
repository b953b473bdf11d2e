package engine_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

func TestCode(t *testing.T) {
	t.Parallel()

	t.Run("deployments of all tenants with one manifest share one parsed manifest", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		manifest, err := asset.Parse([]byte(manifestText), "servo.yaml")
		require.NoError(t, err)
		var first *asset.Manifest
		for i := range 3 {
			owner, err := b.CreateTenant(t.Context(), fmt.Sprint("t", i), engineMeta)
			require.NoError(t, err)
			deployed, err := b.Deploy(t.Context(), owner, "default", manifest, engineMeta)
			require.NoError(t, err)
			code, _, err := b.Code(t.Context(), store.DeploymentKey{Tenant: owner, Deployment: deployed})
			require.NoError(t, err)
			if first == nil {
				first = code
			}
			require.Same(t, first, code)
		}
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.manifests`))
	})

	t.Run("a server that has parsed nothing yet runs every kind of command", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		fresh := func() { // another server, with an empty cache
			e := engine.New(b.db.Store, engine.Config{}, nil)
			t.Cleanup(e.Stop)
			b.Engine = e
		}
		fresh()
		key := b.trigger(t, "fan")
		fresh()
		scan := b.one(t)
		require.NotEmpty(t, scan.Code.Exec.Command)
		fresh()
		b.report(t, scan, engine.FanOut{Tasks: []engine.FanOutTask{{Asset: "f/fetch", Partition: "0"}}})
		fresh()
		require.Equal(t, run.RetryWait, b.report(t, scan, networkError).State)
		fresh()
		_, err := b.WhyRun(t.Context(), key)
		require.NoError(t, err)
	})
}
