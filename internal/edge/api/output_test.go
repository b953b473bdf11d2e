package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/quality"
	"go.arco.dev/servo/internal/engine"
)

func TestLeaseOfAnOutput(t *testing.T) {
	t.Parallel()
	workspace := id.New[id.Workspace](id.NewMinter(time.Now()))
	lease := func(a asset.Asset, upstream ...engine.UpstreamResult) *servov1.Lease {
		l := engine.Lease{Code: a, Upstream: upstream}
		l.Workspace = workspace
		out := &servov1.Lease{}
		require.NoError(t, (&leaseMapper{}).addOutput(out, l))
		return out
	}
	plain := lease(asset.Asset{Key: "a/b"})
	require.Empty(t, plain.GetOutput())
	require.Empty(t, plain.GetWorkspace(), "a task without outputs gets nothing additional")

	got := lease(asset.Asset{Key: "a/b", Output: &quality.Output{Format: quality.CSV}, Checks: []quality.Check{{Type: quality.RowCount, Min: []byte("1")}}})
	require.JSONEq(t, `{"output": {"format": "csv"}, "checks": [{"type": "row_count", "min": 1}]}`, got.GetOutput())
	require.Equal(t, workspace.String(), got.GetWorkspace())

	reader := lease(asset.Asset{Key: "a/b"}, engine.UpstreamResult{Asset: "a/c"})
	require.Empty(t, reader.GetOutput())
	require.Equal(t, workspace.String(), reader.GetWorkspace(), "it may read the output of its upstream")
}
