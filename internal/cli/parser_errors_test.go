package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/cli"
)

// ofParsers matches messages of Go's parsers.
var ofParsers = regexp.MustCompile(`strconv\.|time: |json: |yaml: |proto:|cannot unmarshal|unmarshal error|invalid character|invalid syntax|parsing "|!!(str|map|seq|int)|parse error|parse "|ParseAddr|ParsePrefix|pflag|into (map|\[\]|\*|[a-z]+\.[A-Z])|did not find expected|value out of range|unexpected end of JSON`)

// TestErrorsOfParsersAreExplained passes invalid values to every flag of every command, and invalid
// files to all commands that read files.
func TestErrorsOfParsersAreExplained(t *testing.T) {
	t.Parallel()
	refuse := func(stdin string, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code := cli.Main(t.Context(), args, strings.NewReader(stdin), &stdout, &stderr)
		require.NotZero(t, code, "%q", args)
		require.NotEmpty(t, stderr.String(), "%q", args)
		require.NotRegexp(t, ofParsers, stderr.String(), "%q", args)
	}
	tried := map[string]bool{}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			visit(child)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.HasPrefix(f.Value.Type(), "string") {
				return // any text can be read; what it means is judged elsewhere
			}
			values := []string{"x"}
			if !tried[f.Value.Type()] {
				values = []string{"x", "", "1.5.2", "99999999999999999999", "10 minutes", "-x"}
			}
			tried[f.Value.Type()] = true
			for _, value := range values {
				refuse("", append(strings.Fields(cmd.CommandPath())[1:], "--"+f.Name+"="+value)...)
			}
		})
	}
	visit(cli.New(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}))
	require.Subset(t, tried, map[string]bool{"bool": true, "int": true, "int32": true, "duration": true})

	for _, text := range []string{
		"a: b: c", "a: [1, 2", "\tx: 1", "- a\nb: 1", "a: 'x", "x: *nothing", "a: !!int x", "@", "%", "a: {b", "\xff\xfe\x00", "a:\n  - b\n c", "{\"a\": 1,}", "{\"a\": tru}", "{\"a\" 1}", "[1 2]", "\x01",
		"{", "version: 1\nassets: x", "version: 1e999\nassets: []", "a: 99999999999999999999", "? [a]: b", "a: &x [*x]", "version: 1\nassets:\n  - {key: a/b, go: {}, timeout: 5 minutes}", "version: 1\nassets:\n  - {key: a/b, go: {}, timeout: 999999999999h}",
	} {
		refuse(text, "plan", "-f", "-")
		refuse(text, "configs", "apply", "-f", "-", "--dry-run", "--server", "127.0.0.1:1", "--tenant", "acme")
		file := filepath.Join(t.TempDir(), "file.json")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		refuse("", "plan", "-f", file)
		if !strings.Contains(text, ": ") || strings.HasPrefix(text, "{") {
			refuse(text, "canon", "-")
		}
	}
	for _, expression := range []string{"x * * * *", "* * * FOO *", "* * * * FOO", "99 * * * *", "*/0 * * * *", "0 0 32 * *", "0 0 0W * *", "0 0 * * 1#9", "0 0 * * 9", "0 0 * * Fri-Sun", "CRON_TZ=Europe/Berlin 0 0 * * *", "TZ=UTC 0 0 * * *", "@every x", "@every -1h", "@every 999999999999h", "@every", "1-2-3 * * * *", "5/x * * * *"} {
		refuse("", "preview", "--cron", expression)
	}
	for _, args := range [][]string{
		{"preview", "--every", "x"},
		{"preview", "--every", "99999999999999h"},
		{"preview", "--cron", "0 * * * *", "--timezone", "Nowhere/x"},
		{"preview", "--cron", "0 * * * *", "--after", "yesterday"},
		{"plan", "-f", "-", "--param", "n"},
		{"server", "--database", "postgres://a:b@[::1/x"},
		{"server", "--database", "postgres://a:b@h:port/x"},
		{"server", "--open", "--database", "host=x port=y"},
	} {
		refuse("version: 1\nassets: [{key: a/b, go: {}}]", args...)
	}
}
