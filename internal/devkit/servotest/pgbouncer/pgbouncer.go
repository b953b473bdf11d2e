// Package pgbouncer puts a private PgBouncer in transaction mode in front of a test's
// database: few connections to PostgreSQL, each handed from transaction to transaction.
// Nothing outside of tests imports it.
package pgbouncer

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// port is part of the socket's name: each PgBouncer has a directory of its own.
const port = 6432

// Start gives the URL of a database through a PgBouncer with a number of connections to it,
// until the test ends.
func Start(t testing.TB, databaseURL string, connections int) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // the directory of Debian, which may be missing in PATH
	}
	require.FileExists(t, program, "there is no PgBouncer: run scripts/setup.sh")
	target, err := pgconn.ParseConfig(databaseURL)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "pgb") // short: the name of a socket has its limit
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	owner := ownerOf(t)
	if owner != nil {
		require.NoError(t, os.Chown(dir, int(owner.Uid), int(owner.Gid)))
	}
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // the test connects through its socket
	ini := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(ini, []byte(settings(target, dir, connections)), 0o644)) //nolint:gosec // PgBouncer reads it as another user
	run(t, program, ini, owner)
	through := url.URL{
		Scheme: "postgres", User: url.User(target.User), Path: "/" + target.Database,
		RawQuery: url.Values{"host": {dir}, "port": {strconv.Itoa(port)}, "sslmode": {"disable"}}.Encode(),
	}
	waitFor(t, through.String(), filepath.Join(dir, "log"))
	return through.String()
}

// settings returns the settings of a pooler that requires no password at its socket.
func settings(target *pgconn.Config, dir string, connections int) string {
	server := fmt.Sprintf("host=%s port=%d dbname=%s user=%s", target.Host, target.Port, target.Database, target.User)
	if target.Password != "" {
		server += " password=" + target.Password
	}
	return strings.Join([]string{
		"[databases]",
		target.Database + " = " + server,
		"[pgbouncer]",
		"pool_mode = transaction",
		"auth_type = any",
		fmt.Sprintf("default_pool_size = %d", connections),
		"max_client_conn = 500",
		"unix_socket_dir = " + dir,
		fmt.Sprintf("listen_port = %d", port),
		"logfile = " + filepath.Join(dir, "log"),
		"",
	}, "\n")
}

// ownerOf is who runs PgBouncer if the caller is root, which it refuses: as for PostgreSQL.
func ownerOf(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	account, err := user.Lookup("postgres")
	require.NoError(t, err)
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	require.NoError(t, err)
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	require.NoError(t, err)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// run starts PgBouncer under a shell that ends it when its own input ends: when the test does,
// however it does.
func run(t testing.TB, program, ini string, owner *syscall.Credential) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `"$0" -q "$1" & read -r end; kill -KILL $!; wait $!`, program, ini) //nolint:gosec,noctx // a program of the machine; its input ends it
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: owner}
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	alive, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = alive.Close()
		_ = cmd.Wait() // it was killed
	})
}

// patience bounds the start, which takes milliseconds.
const patience = 30 * time.Second

// waitFor asks until a connection through PgBouncer comes about.
func waitFor(t testing.TB, through, log string) {
	t.Helper()
	var last error
	connected := func() bool {
		conn, err := pgconn.Connect(t.Context(), through)
		if last = err; err != nil {
			return false
		}
		return conn.Close(t.Context()) == nil
	}
	for until := time.Now().Add(patience); !connected(); {
		if time.Now().After(until) {
			output, _ := os.ReadFile(log) //nolint:gosec // in our own directory
			require.NoError(t, last, "PgBouncer did not start: %s", output)
		}
	}
}
