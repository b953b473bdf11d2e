package ledger_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/ledger"
)

type note struct {
	Task string
	who  string
}

func TestLedger(t *testing.T) {
	t.Parallel()

	t.Run("what was written before a crash is read, and half a line is not", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		path := filepath.Join(dir, "w0-1"+ledger.Suffix)
		for _, task := range []string{"a", "b"} { // the second life appends
			l, err := ledger.Open(path)
			require.NoError(t, err)
			require.Equal(t, path, l.Path())
			require.NoError(t, l.Write(note{Task: task}))
		}
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = file.WriteString(`{"Task":"c`)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		notes, err := ledger.Read(dir, func(n *note, process string) { n.who = process })
		require.NoError(t, err)
		require.Equal(t, []note{{"a", "w0-1"}, {"b", "w0-1"}}, notes)
	})

	t.Run("a damaged line is an error that names the file", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "w"+ledger.Suffix), []byte("{\n"), 0o600))
		_, err := ledger.Read(dir, func(*note, string) {})
		require.ErrorContains(t, err, "w.ledger")
	})
}
