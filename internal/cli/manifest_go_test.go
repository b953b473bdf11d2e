package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/cli"
)

// TestGoManifest builds workers and plans what they declare.
func TestGoManifest(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, args ...string) (code int, stdout, stderr string) {
		t.Helper()
		var out, problems bytes.Buffer
		code = cli.Main(t.Context(), args, nil, &out, &problems)
		return code, out.String(), problems.String()
	}

	t.Run("the assets of a worker", func(t *testing.T) {
		t.Parallel()
		code, out, problems := run(t, "plan", "--go", "../../examples/hello/worker", "--pipeline", "hello")
		require.Zero(t, code, problems)
		require.Contains(t, out, "gold/report")
		require.Contains(t, out, "bronze/orders")
	})

	t.Run("a package that does not build", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { nosuch() }\n"), 0o600))
		code, _, problems := run(t, "plan", "--go", filepath.Join(dir, "main.go"))
		require.Equal(t, 2, code)
		require.Contains(t, problems, "main.go:3:15: undefined: nosuch")
	})

	t.Run("a program that is no worker", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { println(1) }\n"), 0o600))
		code, _, problems := run(t, "plan", "--go", filepath.Join(dir, "main.go"))
		require.Equal(t, 2, code)
		require.NotEmpty(t, problems)
	})

	t.Run("one source only", func(t *testing.T) {
		t.Parallel()
		code, _, problems := run(t, "plan", "--go", "./x", "-f", "y.yaml")
		require.Equal(t, 2, code)
		require.Contains(t, problems, "--go: is set together with --file or --python")
	})
}
