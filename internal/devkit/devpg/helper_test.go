package devpg

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// helperVariable turns the test binary into a parent that tests can kill. Its value is the
// directory to keep, or "throwaway".
const helperVariable = "DEVPG_TEST_HELPER"

// eventually is the longest that something certain may take on a busy machine.
const eventually = time.Minute

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperVariable); dir != "" {
		os.Exit(helper(dir))
	}
	os.Exit(m.Run())
}

// parent is what a helper process reports about itself.
type parent struct {
	Postmaster, Watcher int
	URL, Dir            string

	cmd *exec.Cmd
}

// helper starts a server, reports what it started and then waits to be killed. It ends with
// the test that made it, since that holds its standard input.
func helper(dir string) int {
	signal.Ignore(os.Interrupt) // a parent that decides by itself what Ctrl-C means
	if dir == "throwaway" {
		dir = ""
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := Start(context.Background(), Options{Dir: dir, Logger: logger})
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(parent{
			Postmaster: s.PID(), Watcher: s.watcher.cmd.Process.Pid, URL: s.URL(""), Dir: s.files.dir,
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 1
}

// launchHelper starts a helper process in a process group of its own and does not wait for
// its server.
func launchHelper(t *testing.T, dir string) (cmd *exec.Cmd, output io.Reader) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd = exec.Command(program)
	cmd.Env = append(os.Environ(), helperVariable+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe() // held open until the helper ends
	require.NoError(t, err)
	output, err = cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, output
}

// startParent starts a helper process with a server and waits until that is up.
func startParent(t *testing.T, dir string) *parent {
	t.Helper()
	cmd, output := launchHelper(t, dir)
	line, err := bufio.NewReader(output).ReadBytes('\n')
	require.NoError(t, err)
	p := &parent{cmd: cmd}
	require.NoError(t, json.Unmarshal(line, p))
	return p
}

// kill kills the helper the hard way and collects it.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
}

// start starts a server that is stopped, and seen to be gone, at the end of the test.
func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	require.NoError(t, err)
	stopAtEnd(t, s)
	return s
}

func stopAtEnd(t *testing.T, s *Server) {
	t.Helper()
	pid, watcher := s.PID(), s.watcher.cmd.Process.Pid
	t.Cleanup(func() {
		require.NoError(t, s.Stop(context.Background()))
		require.Zero(t, s.PID())
		require.False(t, alive(pid), "postmaster %d is left", pid)
		require.False(t, alive(watcher), "watcher %d is left", watcher)
		require.Empty(t, processesIn(s.files.data))
		if s.throwaway {
			require.NoDirExists(t, s.files.dir)
		}
	})
}

// openDir is a directory that the owner of a cluster can reach, which t.TempDir is not for root.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "servo-devpg-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // other users must pass
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// query runs SQL with the psql that came with the server.
func query(t *testing.T, s *Server, url, sql string) string {
	t.Helper()
	cmd := exec.Command(s.install.program("psql"), "-XAt", "-v", "ON_ERROR_STOP=1", "-c", sql, url)
	cmd.Env = cleanEnvironment(os.Environ())
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, string(output))
	return strings.TrimSpace(string(output))
}

// until waits for something that is certain to happen.
func until(t *testing.T, what string, yes func() bool) {
	t.Helper()
	done, err := poll(context.Background(), eventually, yes)
	require.NoError(t, err)
	require.True(t, done, "it never came to this: %s", what)
}

// unfinished lists the data directories that initdb has not finished.
func unfinished(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, unfinishedPrefix+"*"))
	require.NoError(t, err)
	return found
}
