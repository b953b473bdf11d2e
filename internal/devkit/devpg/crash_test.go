package devpg

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParentDies(t *testing.T) {
	t.Parallel()

	t.Run("killed -9, a throwaway server and its directory are gone soon after", func(t *testing.T) {
		t.Parallel()
		p := startParent(t, "throwaway")
		require.True(t, alive(p.Postmaster))
		require.DirExists(t, p.Dir)
		kill(t, p.cmd)
		until(t, "watcher gone", func() bool { return !alive(p.Watcher) })
		require.False(t, alive(p.Postmaster))
		require.Empty(t, processesIn(filepath.Join(p.Dir, dataName)))
		require.NoDirExists(t, p.Dir)
	})

	t.Run("killed -9, a kept server stops cleanly and its data is there for the next", func(t *testing.T) {
		t.Parallel()
		dir := openDir(t)
		first := startParent(t, dir)
		reader := &Server{install: anyInstall(t)}
		query(t, reader, first.URL, "CREATE TABLE kept AS SELECT 7 AS n")
		kill(t, first.cmd)
		until(t, "watcher gone", func() bool { return !alive(first.Watcher) })
		require.False(t, alive(first.Postmaster))
		requireFastStop(t, dir)

		second := start(t, Options{Dir: dir, Settings: fast()})
		require.Equal(t, "7", query(t, second, second.URL(""), "SELECT n FROM kept"))
	})

	t.Run("killed together with its watcher, the next start stops the remaining processes and continues", func(t *testing.T) {
		t.Parallel()
		dir := openDir(t)
		first := startParent(t, dir)
		reader := &Server{install: anyInstall(t)}
		query(t, reader, first.URL, "CREATE TABLE kept AS SELECT 7 AS n")
		require.NoError(t, syscall.Kill(first.Watcher, syscall.SIGKILL))
		kill(t, first.cmd)
		require.True(t, alive(first.Postmaster), "its parent could not stop it")

		second := start(t, Options{Dir: dir, Settings: fast()})
		require.False(t, alive(first.Postmaster))
		requireFastStop(t, dir)
		require.Equal(t, "7", query(t, second, second.URL(""), "SELECT n FROM kept"))
	})

	t.Run("killed -9 in the middle of initdb, no half cluster is taken for a whole one", func(t *testing.T) {
		t.Parallel()
		dir := openDir(t)
		cmd, _ := launchHelper(t, dir)
		until(t, "initdb at work", func() bool { return len(unfinished(t, dir)) > 0 })
		kill(t, cmd)
		s := start(t, Options{Dir: dir, Settings: fast()})
		require.Equal(t, "1", query(t, s, s.URL(""), "SELECT 1"))
		require.Empty(t, unfinished(t, dir))
	})

	t.Run("Ctrl-C in the terminal reaches neither PostgreSQL nor the watcher", func(t *testing.T) {
		t.Parallel()
		p := startParent(t, "throwaway")
		require.NoError(t, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT)) // the whole group, as a terminal does
		for _, pid := range []int{p.Postmaster, p.Watcher} {
			group, err := syscall.Getpgid(pid)
			require.NoError(t, err)
			require.Equal(t, pid, group, "a group of its own")
		}
		reader := &Server{install: anyInstall(t)}
		require.Equal(t, "1", query(t, reader, p.URL, "SELECT 1"))
		kill(t, p.cmd)
		until(t, "watcher gone", func() bool { return !alive(p.Watcher) })
		require.NoDirExists(t, p.Dir)
	})
}

func TestPostgresCrashes(t *testing.T) {
	t.Parallel()

	t.Run("after an immediate stop a restart has the same address and all that was committed", func(t *testing.T) {
		t.Parallel()
		s := start(t, Options{})
		address, url, pid := s.TCPAddr(), s.URL(""), s.PID()
		query(t, s, url, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
		require.NoError(t, s.StopImmediate(t.Context()))
		require.Zero(t, s.PID())
		require.False(t, alive(pid))
		require.DirExists(t, s.files.data)

		require.NoError(t, s.Restart(t.Context()))
		stopAtEnd(t, s)
		require.NotEqual(t, pid, s.PID())
		require.Equal(t, address, s.TCPAddr())
		require.Equal(t, url, s.URL(""))
		require.Equal(t, "1000", query(t, s, url, "SELECT count(*) FROM kept"))
	})

	t.Run("after kill -9 of the postmaster a busy backend does not keep the restart away", func(t *testing.T) {
		t.Parallel()
		s := start(t, Options{})
		query(t, s, s.URL(""), "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
		busy := exec.Command(s.install.program("psql"), "-Xqc", "SELECT count(*) FROM generate_series(1, 1000000000000)", s.URL(""))
		require.NoError(t, busy.Start())
		until(t, "a busy backend", func() bool {
			return query(t, s, s.URL(""), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%1000000000000)' AND pid <> pg_backend_pid()") == "1"
		})
		require.NoError(t, syscall.Kill(s.PID(), syscall.SIGKILL))
		until(t, "the crash noticed", func() bool { return s.PID() == 0 })

		require.NoError(t, s.Restart(t.Context()))
		stopAtEnd(t, s)
		require.Error(t, busy.Wait())
		require.Equal(t, "1000", query(t, s, s.URL(""), "SELECT count(*) FROM kept"))
	})

	t.Run("a crashed server can be stopped", func(t *testing.T) {
		t.Parallel()
		s := start(t, Options{Settings: fast()})
		require.NoError(t, syscall.Kill(s.PID(), syscall.SIGKILL))
		require.NoError(t, s.Stop(t.Context()))
		require.NoDirExists(t, s.files.dir)
	})

	t.Run("a kept server restarts after Stop, and restarting a running one is a stop and a start", func(t *testing.T) {
		t.Parallel()
		s := start(t, Options{Dir: openDir(t), Settings: fast()})
		require.NoError(t, s.Stop(t.Context()))
		require.NoError(t, s.Restart(t.Context()))
		stopAtEnd(t, s)
		pid := s.PID()
		require.NoError(t, s.Restart(t.Context()))
		stopAtEnd(t, s)
		require.False(t, alive(pid))
		require.Equal(t, "1", query(t, s, s.URL(""), "SELECT 1"))
	})
}

func TestStalePidFile(t *testing.T) {
	t.Parallel()

	// leave makes a stopped cluster whose postmaster.pid names pid, as a crash leaves it.
	leave := func(t *testing.T, pid int) string {
		t.Helper()
		dir := openDir(t)
		s := start(t, Options{Dir: dir, Settings: fast()})
		query(t, s, s.URL(""), "CREATE TABLE kept AS SELECT 7 AS n")
		file := filepath.Join(s.files.data, "postmaster.pid")
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, s.Stop(t.Context()))
		_, rest, _ := strings.Cut(string(content), "\n")
		require.NoError(t, os.WriteFile(file, []byte(strconv.Itoa(pid)+"\n"+rest), 0o600))
		require.NoError(t, os.Chown(file, int(s.owner.uid), int(s.owner.gid)))
		return dir
	}

	t.Run("of a dead process does not keep the start away", func(t *testing.T) {
		t.Parallel()
		dead := exec.Command("true")
		require.NoError(t, dead.Run())
		s := start(t, Options{Dir: leave(t, dead.Process.Pid), Settings: fast()})
		require.Equal(t, "7", query(t, s, s.URL(""), "SELECT n FROM kept"))
	})

	t.Run("of another program that has the pid now neither prevents the start nor harms that program", func(t *testing.T) {
		t.Parallel()
		own, err := ownerOf("")
		require.NoError(t, err)
		unrelated := own.command(t.Context(), "sleep", "1000") // PostgreSQL looks hardest at processes of its own user
		require.NoError(t, unrelated.Start())
		s := start(t, Options{Dir: leave(t, unrelated.Process.Pid), Settings: fast()})
		require.Equal(t, "7", query(t, s, s.URL(""), "SELECT n FROM kept"))
		require.True(t, alive(unrelated.Process.Pid))
		require.NoError(t, unrelated.Process.Kill())
		require.Error(t, unrelated.Wait())
	})

	t.Run("is read as PostgreSQL writes it", func(t *testing.T) {
		t.Parallel()
		file, ok := parsePidFile("42\n/data\n1700000000\n5432\n/run\n127.0.0.1\n  123 4\nready   \n")
		require.True(t, ok)
		require.Equal(t, pidFile{pid: 42, ready: true}, file)
		file, ok = parsePidFile("42\n/data\n1700000000\n5432\n/run\n127.0.0.1\n  123 4\nstarting\n")
		require.True(t, ok)
		require.False(t, file.ready)
		for _, nonsense := range []string{"", "\n", "-1\n", "0\n", "x\n"} {
			_, ok := parsePidFile(nonsense)
			require.False(t, ok, fmt.Sprintf("%q", nonsense))
		}
	})
}

// anyInstall is where psql is found when another process runs the server.
func anyInstall(t *testing.T) installation {
	t.Helper()
	own, err := ownerOf("")
	require.NoError(t, err)
	found, err := systemFinder(own).find(t.Context())
	require.NoError(t, err)
	return found[0]
}

// requireFastStop reads in the log that PostgreSQL was asked to stop cleanly and did.
func requireFastStop(t *testing.T, dir string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(dir, "postgres.log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "received fast shutdown request")
	require.Contains(t, string(log), "database system is shut down")
}
