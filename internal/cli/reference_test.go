package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/cli"
)

// TestReference compares docs/cli.md with the commands. UPDATE_DOCS=1 writes it.
func TestReference(t *testing.T) {
	t.Parallel()
	name := filepath.Join("..", "..", "docs", "cli.md")
	want := reference(cli.New(strings.NewReader(""), &strings.Builder{}, &strings.Builder{}))
	if os.Getenv("UPDATE_DOCS") != "" {
		require.NoError(t, os.WriteFile(name, []byte(want), 0o600))
	}
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "update it: UPDATE_DOCS=1 go test -run TestReference ./internal/cli")
}

// reference is all commands, one line each.
func reference(root *cobra.Command) string {
	var text strings.Builder
	text.WriteString("# Commands\n\n" +
		"Generated from the commands by `UPDATE_DOCS=1 go test -run TestReference ./internal/cli`. Do not edit.\n\n" +
		"`servo COMMAND --help` shows the description, flags and examples. [Operate Servo](guides/operate.md) has the settings and the exit codes.\n\n" +
		"| command | |\n|---|---|\n")
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Runnable() && (!cmd.HasAvailableSubCommands() || cmd.Example != "") { // groups have no examples
			cells := strings.NewReplacer("|", `\|`)
			fmt.Fprintf(&text, "| `%s` | %s |\n", cells.Replace(strings.TrimSuffix(cmd.UseLine(), " [flags]")), cells.Replace(cmd.Short))
		}
		for _, child := range cmd.Commands() {
			if child.IsAvailableCommand() && child.Name() != "help" {
				walk(child)
			}
		}
	}
	walk(root)
	return text.String()
}
