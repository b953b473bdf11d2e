package fleet

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/ledger"
)

func TestOrphan(t *testing.T) {
	t.Parallel()
	// setup starts a worker that reaches no server.
	setup := func(t *testing.T) *process {
		t.Helper()
		dir := t.TempDir()
		p := &process{
			name: "w0", dir: dir, began: func(string) {}, ended: func() {},
			role: func(name string) role {
				return role{Name: name, Servers: []string{newRelay(t).address()}, Ledger: filepath.Join(dir, name+ledger.Suffix)}
			},
		}
		t.Cleanup(p.end)
		require.NoError(t, p.start())
		return p
	}

	t.Run("a process does not outlive its parent", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		l := p.expectEnd()
		require.NoError(t, l.words.Close())
		<-l.exited
		require.Equal(t, exitOrphaned, l.code())
		require.Empty(t, p.leftovers())
	})

	t.Run("an unexpected end is noticed", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		require.NoError(t, p.current().cmd.Process.Kill())
		<-p.current().exited
		require.ErrorContains(t, p.failure(), "w0-1 ended by itself")
	})

	t.Run("without a task nothing happens in one, and the worker behaves again", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		_, caught := p.lure(t.Context(), wordDie)
		require.False(t, caught)
		require.NoError(t, p.retire(exitGood))
		require.NoError(t, p.failure())
	})
}
