package cli_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"

	"go.arco.dev/servo/internal/cli"
)

// imperatives are the verbs that help texts begin with.
var imperatives = strings.Fields(`Apply Back Benchmark Cancel Canonicalize Check Compare Configure Count Create Delete Deploy Drain
	Edit End Explain Export Find Generate List Log Manage Measure Migrate Move Pause Plan Preview Print Prove Release Repair Replay
	Restore Resume Retry Revoke Rewrite Rotate Run Select Send Set Show Simulate Start Test Trigger Update Verify Watch`)

// TestHelpTexts checks the texts of every command: one imperative line for a command, a phrase in
// lower case for a flag.
func TestHelpTexts(t *testing.T) {
	t.Parallel()
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.HasParent() {
			first := strings.Trim(strings.Fields(cmd.Short + " -")[0], ",")
			assert.Contains(t, imperatives, first, "%s: %q begins with no known imperative", cmd.CommandPath(), cmd.Short)
			assert.LessOrEqual(t, utf8.RuneCountInString(cmd.Short), 60, "%s: %q is too long", cmd.CommandPath(), cmd.Short)
			assert.False(t, strings.HasSuffix(cmd.Short, "."), "%s: %q ends with a period", cmd.CommandPath(), cmd.Short)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			first, _ := utf8.DecodeRuneInString(f.Usage)
			name := strings.Fields(f.Usage + " ")[0]
			assert.True(t, !unicode.IsUpper(first) || slices.Contains([]string{"API", "JSON", "PEM", "TLS", "URL", "YAML"}, strings.Trim(name, ",.")),
				"%s --%s: %q begins with an upper-case letter", cmd.CommandPath(), f.Name, f.Usage)
			assert.NotEmpty(t, f.Usage, "%s --%s", cmd.CommandPath(), f.Name)
			assert.False(t, strings.HasSuffix(f.Usage, "."), "%s --%s: %q ends with a period", cmd.CommandPath(), f.Name, f.Usage)
		})
		for _, child := range cmd.Commands() {
			visit(child)
		}
	}
	visit(cli.New(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}))
}
