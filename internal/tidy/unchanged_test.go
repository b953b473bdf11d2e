package tidy

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnchanged holds the script with which generated files are compared to every way in which
// they can differ.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(filepath.Join("..", "..", "scripts", "unchanged.sh"))
	require.NoError(t, err)
	write := func(t *testing.T, dir, name, text string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		fails  bool
	}{
		"nothing":            {func(*testing.T, string) {}, false},
		"a file is changed":  {func(t *testing.T, dir string) { write(t, dir, "gen/a.go", "other") }, true},
		"a file is new":      {func(t *testing.T, dir string) { write(t, dir, "gen/c.go", "new") }, true},
		"a file is missing":  {func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "gen", "a.go"))) }, true},
		"all are missing":    {func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(filepath.Join(dir, "gen"))) }, true},
		"a file has moved":   {func(t *testing.T, dir string) { require.NoError(t, os.Rename(filepath.Join(dir, "gen", "a.go"), filepath.Join(dir, "gen", "z.go"))) }, true},
		"written once more":  {func(t *testing.T, dir string) { write(t, dir, "gen/a.go", "a") }, false},
		"an ignored one new": {func(t *testing.T, dir string) { write(t, dir, "x.tmp", "new") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, ".gitignore", "*.tmp\n")
			write(t, dir, "gen/a.go", "a")
			write(t, dir, "gen/b.go", "b")
			for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}} {
				out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput() //nolint:gosec // of this test
				require.NoError(t, err, string(out))
			}
			c.change(t, dir)
			out, err := exec.CommandContext(t.Context(), "bash", script, dir).CombinedOutput() //nolint:gosec // of this test
			if c.fails {
				require.Error(t, err, string(out))
				return
			}
			require.NoError(t, err, string(out))
		})
	}
}
