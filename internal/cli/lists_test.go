package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLists holds every list of a server to the same flags.
func TestLists(t *testing.T) {
	t.Parallel()
	var visit func(cmd *cobra.Command) int
	visit = func(cmd *cobra.Command) (lists int) {
		if cmd.Name() == "list" && cmd.Flags().Lookup("server") != nil {
			assert.NotNil(t, cmd.Flags().Lookup(watchFlag), "%s has no --watch", cmd.CommandPath())
			require.NotNil(t, cmd.Flags().Lookup("output"), "%s has no --output", cmd.CommandPath())
			lists++
		}
		for _, inner := range cmd.Commands() {
			lists += visit(inner)
		}
		return lists
	}
	require.Greater(t, visit(New(strings.NewReader(""), io.Discard, io.Discard)), 10)
}
