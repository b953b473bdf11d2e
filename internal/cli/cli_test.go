package cli_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/cli"
)

// brokenPipe is a reader that has gone.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// brokenDisk is a file that cannot be read to its end.
type brokenDisk struct{}

func (brokenDisk) Read([]byte) (int, error) { return 0, errors.New("input/output error") }

func TestMainExitCodes(t *testing.T) {
	t.Parallel()
	const manifest = "version: 1\nassets: [{key: a/b, go: {}}]"

	t.Run("done is 0", func(t *testing.T) {
		t.Parallel()
		var stdout, stderr bytes.Buffer
		code := cli.Main(t.Context(), []string{"canon", "-"}, strings.NewReader(` {"b":1, "a":2}`), &stdout, &stderr)
		require.Zero(t, code)
		require.Equal(t, `{"a":2,"b":1}`, stdout.String())
		require.Empty(t, stderr.String())
	})

	t.Run("output that cannot be written is a failure, 1", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{
			{"canon", "-"},
			{"plan", "-f", "-"},
			{"plan", "-f", "-", "-o", "json"},
			{"plan", "-f", "-", "-o", "yaml"},
			{"version"},
		} {
			stdin := manifest
			if args[0] == "canon" {
				stdin = "{}"
			}
			var stderr bytes.Buffer
			code := cli.Main(t.Context(), args, strings.NewReader(stdin), brokenPipe{}, &stderr)
			require.Equal(t, 1, code, args)
			require.Contains(t, stderr.String(), "error: cannot write the output: ")
			require.Contains(t, stderr.String(), "[UNAVAILABLE]")
		}
	})

	t.Run("input that cannot be used is invalid, 2", func(t *testing.T) {
		t.Parallel()
		var stdout, stderr bytes.Buffer
		code := cli.Main(t.Context(), []string{"plan", "-f", "-"}, brokenDisk{}, &stdout, &stderr)
		require.Equal(t, 2, code)
		require.Contains(t, stderr.String(), "cannot read -: input/output error")

		stderr.Reset()
		code = cli.Main(t.Context(), []string{"plan", "-f", "-"}, strings.NewReader(strings.Repeat("#", 16<<20+1)), &stdout, &stderr)
		require.Equal(t, 2, code)
		require.Contains(t, stderr.String(), "has more than 16777216 bytes (split it) [LIMIT_EXCEEDED]")
		require.Empty(t, stdout.String())
	})

	t.Run("two command lines share nothing", func(t *testing.T) {
		t.Parallel()
		var one, two, stderr bytes.Buffer
		require.Zero(t, cli.Main(t.Context(), []string{"plan", "-f", "-", "--select", "a/b", "-o", "json"}, strings.NewReader(manifest), &one, &stderr))
		require.Zero(t, cli.Main(t.Context(), []string{"plan", "-f", "-"}, strings.NewReader(manifest), &two, &stderr))
		require.Contains(t, one.String(), `"fingerprint"`)
		require.Contains(t, two.String(), "1 task in 1 stage, fingerprint ")
	})
}
