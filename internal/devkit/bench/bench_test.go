package bench_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/bench"
)

func TestRun(t *testing.T) {
	t.Parallel()
	results, err := bench.Run(t.Context(), bench.Options{Scenarios: []string{"single", "chain", "diamond", "drain", "mixed"}, Tasks: 500, Tenants: 3})
	require.NoError(t, err)
	require.Len(t, results, 5)
	require.EqualValues(t, 494, results[4].Tasks)
	for _, r := range results[:4] {
		require.EqualValues(t, 500, r.Tasks)
		require.Positive(t, r.PerSecond())
	}
}
