package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

func TestManifests(t *testing.T) {
	t.Parallel()
	large := json.RawMessage(`{"a":"` + string(bytes.Repeat([]byte("x"), 700_000)) + `"}`)

	t.Run("a manifest is stored once for all tenants, in chunks", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "a"), w.account(t, "b")
		before := w.Count(t, `SELECT count(*) FROM servo.manifests`)
		for _, owner := range []account{a, b} {
			w.engine(t, func(tx *Tx) {
				_, isNew, err := tx.InsertDeployment(t.Context(), store.Deployment{
					Tenant: owner.tenant, ID: id.New[id.Deployment](w.mint), Workspace: owner.workspace.ID, Digest: "large", Manifest: large,
				}, w.now)
				require.NoError(t, err)
				require.True(t, isNew)
			})
		}
		require.Equal(t, before+3, w.Count(t, `SELECT count(*) FROM servo.manifests`))
		w.engine(t, func(tx *Tx) {
			found := must(tx.Manifests(t.Context(), []string{"large", a.deployment.Digest, "unknown"}))(t)
			require.Equal(t, map[string]json.RawMessage{"large": large, a.deployment.Digest: a.deployment.Manifest}, found)
		})
	})

	t.Run("code is read by deployment, and manifests that are known are not", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "a"), w.account(t, "b")
		keys := []store.DeploymentKey{
			{Tenant: a.tenant, Deployment: a.deployment.ID},
			{Tenant: b.tenant, Deployment: b.deployment.ID},
			{Tenant: b.tenant, Deployment: a.deployment.ID}, // of another tenant
		}
		rows, manifests, err := w.Code(t.Context(), keys, func(digest string) bool { return digest == b.deployment.Digest })
		require.NoError(t, err)
		require.ElementsMatch(t, []store.CodeRow{{DeploymentKey: keys[0], Digest: a.deployment.Digest}, {DeploymentKey: keys[1], Digest: b.deployment.Digest}}, rows)
		require.Equal(t, map[string]json.RawMessage{a.deployment.Digest: a.deployment.Manifest}, manifests)
	})

	t.Run("a tenant reads its own manifests only, and through its deployments", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "a"), w.account(t, "b")
		view := must(w.GetDeployment(t.Context(), a.tenant, a.deployment.ID))(t)
		require.Equal(t, a.deployment.Manifest, view.Manifest)
		_, err := w.GetDeployment(t.Context(), b.tenant, a.deployment.ID)
		require.ErrorContains(t, err, "no deployment")
		err = w.Tenant(t.Context(), a.tenant.String(), func(ctx context.Context, tx *Tx) error {
			_, err := tx.Manifests(ctx, []string{a.deployment.Digest})
			return err
		})
		require.ErrorContains(t, err, "permission denied")
	})

	t.Run("a manifest without all its chunks is an error, and verify reads those that are missing as nil", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "a")
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.StoreManifest(t.Context(), "large", large)) })
		w.Exec(t, `DELETE FROM servo.manifests WHERE digest <> 'large'`)
		seen := map[string][]byte{}
		w.engine(t, func(tx *Tx) {
			require.NoError(t, tx.EachManifest(t.Context(), func(digest string, manifest []byte) error {
				seen[digest] = manifest
				return nil
			}))
		})
		require.Equal(t, map[string][]byte{"large": large, a.deployment.Digest: nil}, seen)
		w.Exec(t, `DELETE FROM servo.manifests WHERE ix = 1`)
		w.undone(t, func(tx *Tx) {
			_, err := tx.Manifests(t.Context(), []string{"large"})
			require.ErrorContains(t, err, "a chunk is missing")
		})
	})
}
