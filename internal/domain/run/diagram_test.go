package run

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:generate go test -run TestDiagram -count 1 . -update

var update = flag.Bool("update", false, "write the generated documents instead of checking them")

func TestDiagram(t *testing.T) {
	t.Parallel()
	const path = "../../../docs/state-machines.md"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(Diagram()), 0o644)) //nolint:gosec // a public document
	}
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, Diagram(), string(written), "run make generate")
}
