package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// selfVariable turns the test binary into withpg, or into a command that withpg runs.
const selfVariable = "WITHPG_TEST_SELF"

func TestMain(m *testing.M) {
	switch os.Getenv(selfVariable) {
	case "withpg":
		main()
	case "listener":
		listener()
	}
	os.Exit(m.Run())
}

// listener reports where its server is and ends with a code for the signal it receives. A shell
// with a trap would not do: a signal that its child gets between fork and exec is lost.
func listener() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	fmt.Println(os.Getenv(urlVariable))
	os.Exit(map[os.Signal]int{syscall.SIGTERM: 9, syscall.SIGINT: 11}[<-signals])
}

// withpg is this program as a process, in an environment without a database.
func withpg(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = []string{selfVariable + "=withpg"}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, urlVariable+"=") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Stderr = os.Stderr
	return cmd
}

// session is a running withpg whose command has printed its first line.
type session struct {
	cmd   *exec.Cmd
	stdin io.Closer
	line  string
}

func begin(t *testing.T, args ...string) session {
	t.Helper()
	cmd := withpg(t, args...)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return session{cmd: cmd, stdin: stdin, line: strings.TrimSpace(line)}
}

// end waits for withpg and returns its exit code.
func (s session) end(t *testing.T) int {
	t.Helper()
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// socketOf is the unix socket that a database URL leads to.
func socketOf(t *testing.T, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	return filepath.Join(u.Query().Get("host"), ".s.PGSQL."+u.Query().Get("port"))
}

func TestWithPG(t *testing.T) {
	t.Parallel()

	t.Run("the command has a server while it runs, and its exit code is passed on", func(t *testing.T) {
		t.Parallel()
		s := begin(t, "--set", "max_connections=20", "--", "sh", "-c", `echo "$SERVO_DATABASE_URL"; read -r end; exit 7`)
		socket := socketOf(t, s.line)
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		require.NoError(t, s.stdin.Close())
		require.Equal(t, 7, s.end(t))
		require.NoDirExists(t, filepath.Dir(filepath.Dir(socket)), "the server's directory")
	})

	t.Run("signals reach the command, and the server goes after it", func(t *testing.T) {
		t.Parallel()
		self, err := os.Executable()
		require.NoError(t, err)
		for sent, want := range map[syscall.Signal]int{syscall.SIGTERM: 9, syscall.SIGINT: 11} {
			s := begin(t, "--", "env", selfVariable+"=listener", self)
			require.NoError(t, s.cmd.Process.Signal(sent))
			require.Equal(t, want, s.end(t))
			require.NoDirExists(t, filepath.Dir(filepath.Dir(socketOf(t, s.line))))
		}
	})

	t.Run("a command that a signal ended has the exit code of shells", func(t *testing.T) {
		t.Parallel()
		s := begin(t, "--", "sh", "-c", `echo up; kill -KILL $$`)
		require.Equal(t, 128+9, s.end(t))
	})

	t.Run("an existing server is used and none is started", func(t *testing.T) {
		t.Parallel()
		var stdout bytes.Buffer
		cmd := withpg(t, "--", "sh", "-c", `echo "$SERVO_DATABASE_URL"; exit 3`)
		cmd.Env = append(cmd.Env, urlVariable+"=postgres://elsewhere/db")
		cmd.Stdout = &stdout
		require.Error(t, cmd.Run())
		require.Equal(t, 3, cmd.ProcessState.ExitCode())
		require.Equal(t, "postgres://elsewhere/db\n", stdout.String())
	})

	t.Run("a setting that PostgreSQL refuses is reported and nothing is run", func(t *testing.T) {
		t.Parallel()
		var stdout, stderr bytes.Buffer
		cmd := withpg(t, "--set", "max_connections=many", "--", "echo", "ran")
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		require.Error(t, cmd.Run())
		require.Equal(t, exitFailure, cmd.ProcessState.ExitCode())
		require.Empty(t, stdout.String())
		require.Contains(t, stderr.String(), "PostgreSQL did not start")
	})
}

func TestStartGivesUpAtASignal(t *testing.T) {
	t.Parallel()

	t.Run("a signal while PostgreSQL starts ends the start", func(t *testing.T) {
		t.Parallel()
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGTERM
		server, err := start(nil, signals)
		require.Nil(t, server)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestParse(t *testing.T) {
	t.Parallel()

	t.Run("settings for tests are not durable unless asked", func(t *testing.T) {
		t.Parallel()
		settings, command, err := parse([]string{"--set", "fsync=on", "--set", "a.b=x=y", "--", "go", "test", "--set"}, io.Discard)
		require.NoError(t, err)
		require.Equal(t, []string{"go", "test", "--set"}, command)
		require.Equal(t, map[string]string{
			"fsync": "on", "max_connections": "600", "a.b": "x=y",
		}, settings)
	})

	t.Run("no command or a setting without a value is a usage error", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{nil, {"--"}, {"--set", "fsync", "--", "true"}, {"--unknown"}} {
			var stderr bytes.Buffer
			require.Equal(t, exitUsage, run(args, nil, nil, io.Discard, &stderr))
			require.Contains(t, stderr.String(), "usage: withpg")
		}
	})

	t.Run("a missing command is 127", func(t *testing.T) {
		t.Parallel()
		environment := []string{urlVariable + "=postgres://elsewhere/db"}
		require.Equal(t, exitMissing, run([]string{"/no/such/command"}, environment, nil, io.Discard, io.Discard))
	})
}
