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

func TestRunReleases(t *testing.T) {
	t.Parallel()
	figures, err := bench.RunReleases(t.Context(), bench.ReleasesOptions{Tenants: 40, Configs: 2, Due: 60, Firing: 10, Rounds: 1})
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range figures {
		values[f.Name] = f.Value
	}
	require.Positive(t, values["check of 80 configs, median"])
	// PostgreSQL counts rows some time after their commit: rows of the set-up may be counted with one wave.
	require.EqualValues(t, 2, min(values["wave 2"], values["wave 3"]), "a row of the channel and an event")
	require.Equal(t, values["manifests before the first tenant"], values["manifests with 50 tenants"])
	require.Positive(t, values["followers, median of rounds"])
}
