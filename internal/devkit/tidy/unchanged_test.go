package tidy

import (
	"errors"
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
	script, err := filepath.Abs(filepath.Join("..", "..", "..", "scripts", "unchanged.sh"))
	require.NoError(t, err)
	write := func(dir, name, text string) error {
		return errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o750), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for name, c := range map[string]struct {
		change func(dir string) error
		fails  bool
	}{
		"nothing":           {func(string) error { return nil }, false},
		"a file is changed": {func(dir string) error { return write(dir, "gen/a.go", "other") }, true},
		"a file is new":     {func(dir string) error { return write(dir, "gen/c.go", "new") }, true},
		"a file is missing": {func(dir string) error { return os.Remove(filepath.Join(dir, "gen", "a.go")) }, true},
		"all are missing":   {func(dir string) error { return os.RemoveAll(filepath.Join(dir, "gen")) }, true},
		"a file has moved": {func(dir string) error {
			return os.Rename(filepath.Join(dir, "gen", "a.go"), filepath.Join(dir, "gen", "z.go"))
		}, true},
		"written once more":  {func(dir string) error { return write(dir, "gen/a.go", "a") }, false},
		"an ignored one new": {func(dir string) error { return write(dir, "x.tmp", "new") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, write(dir, ".gitignore", "*.tmp\n"))
			require.NoError(t, write(dir, "gen/a.go", "a"))
			require.NoError(t, write(dir, "gen/b.go", "b"))
			for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}} {
				out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput() //nolint:gosec // of this test
				require.NoError(t, err, string(out))
			}
			require.NoError(t, c.change(dir))
			out, err := exec.CommandContext(t.Context(), "bash", script, dir).CombinedOutput() //nolint:gosec // of this test
			if c.fails {
				require.Error(t, err, string(out))
				return
			}
			require.NoError(t, err, string(out))
		})
	}
}
