package devpg

import (
	"context"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
)

// fast gives up what tests of the package's own behaviour do not need.
func fast() map[string]string {
	return map[string]string{"fsync": "off", "shared_buffers": "16MB", "max_connections": "20"}
}

func TestStart(t *testing.T) {
	t.Parallel()

	t.Run("a throwaway server answers over socket and TCP, for this machine alone", func(t *testing.T) {
		t.Parallel()
		s := start(t, Options{})
		who := "SELECT current_user, usesuper, current_database(), inet_server_addr() FROM pg_user WHERE usename = current_user"
		require.Equal(t, "servo|t|postgres|", query(t, s, s.URL(""), who))
		require.Equal(t, "servo|t|template1|127.0.0.1", query(t, s, "postgres://servo@"+s.TCPAddr()+"/template1", who))
	})

	t.Run("the defaults suit development and what is asked for wins", func(t *testing.T) {
		t.Parallel()
		awkward := `it's a \ "path"` + "\n$1 #"
		s := start(t, Options{Settings: map[string]string{"max_connections": "42", "servo.test": awkward}})
		show := func(name string) string { return query(t, s, s.URL(""), "SHOW "+name) }
		require.Equal(t, "on", show("fsync"))
		require.Equal(t, "256MB", show("shared_buffers"))
		require.Equal(t, "UTC", show("timezone"))
		require.Equal(t, "127.0.0.1", show("listen_addresses"))
		require.Equal(t, "UTF8", show("server_encoding"))
		require.Equal(t, "42", show("max_connections"))
		require.Equal(t, awkward, show("servo.test"))
		if s.install.hasExtension("pg_stat_statements") {
			require.Equal(t, "pg_stat_statements", show("shared_preload_libraries"))
		}
	})

	t.Run("settings are PostgreSQL's own except for the few that are explained", func(t *testing.T) {
		t.Parallel()
		s := start(t, Options{})
		changed := query(t, s, s.URL(""), `SELECT string_agg(name, ' ' ORDER BY name) FROM pg_settings
			WHERE source = 'configuration file' AND name NOT IN ('port', 'listen_addresses', 'unix_socket_directories', 'shared_preload_libraries')`)
		require.Equal(t, "TimeZone lc_messages log_line_prefix log_timezone max_connections shared_buffers", changed)
		require.Equal(t, "on", query(t, s, s.URL(""), "SHOW jit"))
	})

	t.Run("PostgreSQL never runs as root", func(t *testing.T) {
		t.Parallel()
		s := start(t, Options{Settings: fast()})
		holder, err := statOwner(s.files.data)
		require.NoError(t, err)
		require.NotZero(t, holder.uid)
		require.Equal(t, s.owner.uid, holder.uid)
	})

	t.Run("a path too long for a socket gets one elsewhere, until Stop", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(openDir(t), strings.Repeat("long", 25))
		s := start(t, Options{Dir: dir, Settings: fast()})
		require.Equal(t, "1", query(t, s, s.URL(""), "SELECT 1"))
		require.NotContains(t, s.files.socket, dir)
		require.NoError(t, s.Stop(t.Context()))
		require.NoDirExists(t, s.files.socket)
		require.DirExists(t, s.files.data)
	})

	t.Run("a port in use is named", func(t *testing.T) {
		t.Parallel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close()
		dir := openDir(t)
		_, err = Start(t.Context(), Options{Dir: dir, Port: listener.Addr().(*net.TCPAddr).Port})
		f, ok := fault.As(err)
		require.True(t, ok, "%v", err)
		require.Equal(t, fault.Conflict, f.Code)
		require.Equal(t, "port", f.Violation.Field)
		require.Empty(t, processesIn(filepath.Join(dir, dataName)))
	})

	t.Run("PostgreSQL's own complaint is passed on", func(t *testing.T) {
		t.Parallel()
		dir := openDir(t)
		_, err := Start(t.Context(), Options{Dir: dir, Settings: map[string]string{"max_connections": "many"}})
		require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
		require.ErrorContains(t, err, "configuration file")

		s := start(t, Options{Dir: dir, Settings: fast()}) // and the next start is not harmed
		require.Equal(t, "1", query(t, s, s.URL(""), "SELECT 1"))
	})

	t.Run("invalid options are reported together", func(t *testing.T) {
		t.Parallel()
		_, err := Start(t.Context(), Options{Port: 70000, Settings: map[string]string{
			"port": "1", "Bad Name": "x", "search_path": "a\x00b", "work_mem": "4MB",
		}})
		f, ok := fault.As(err)
		require.True(t, ok)
		var fields []string
		for _, violation := range f.Violations() {
			require.Equal(t, fault.InvalidArgument, violation.Code)
			require.NotEmpty(t, violation.Message)
			require.NotEmpty(t, violation.Remedy)
			fields = append(fields, violation.Field)
		}
		require.Equal(t, []string{"port", "settings[Bad Name]", "settings[port]", "settings[search_path]"}, fields)
	})

	t.Run("a start that is called off leaves nothing running and nothing half made", func(t *testing.T) {
		t.Parallel()
		dir := openDir(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			s, err := Start(ctx, Options{Dir: dir})
			if err == nil {
				err = s.Stop(context.Background())
			}
			ended <- err
		}()
		until(t, "initdb at work", func() bool { return len(unfinished(t, dir)) > 0 })
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Empty(t, unfinished(t, dir))
		require.NoDirExists(t, filepath.Join(dir, dataName))

		s := start(t, Options{Dir: dir, Settings: fast()})
		require.Equal(t, "1", query(t, s, s.URL(""), "SELECT 1"))
	})
}

func TestDirectory(t *testing.T) {
	t.Parallel()

	t.Run("kept data survives stop and start", func(t *testing.T) {
		t.Parallel()
		dir := openDir(t)
		first := start(t, Options{Dir: dir, Settings: fast()})
		query(t, first, first.URL(""), "CREATE TABLE kept AS SELECT 7 AS n")
		require.NoError(t, first.Stop(t.Context()))

		second := start(t, Options{Dir: dir, Settings: fast()})
		require.Equal(t, "7", query(t, second, second.URL(""), "SELECT n FROM kept"))
	})

	t.Run("memory is used where there is room, and left as it was", func(t *testing.T) {
		t.Parallel()
		dir := openDir(t)
		require.Equal(t, dir, memoryDir(dir, 1))
		require.Empty(t, memoryDir(dir, math.MaxUint64), "too small")
		require.Empty(t, memoryDir(filepath.Join(dir, "nowhere"), 1))
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)

		s := start(t, Options{Memory: true, Settings: fast()})
		if parent := memoryDir(memoryPath, memoryNeeded); parent != "" {
			require.Equal(t, parent, filepath.Dir(s.files.dir))
		}
		require.Equal(t, "1", query(t, s, s.URL(""), "SELECT 1"))
		require.NoError(t, s.Stop(t.Context()))
		require.NoDirExists(t, s.files.dir)
	})

	t.Run("of many starts on one directory one wins and the others name its owner", func(t *testing.T) {
		t.Parallel()
		dir := openDir(t)
		var group sync.WaitGroup
		servers, faults := make(chan *Server, 4), make(chan error, 4)
		for range 4 {
			group.Go(func() {
				s, err := Start(context.Background(), Options{Dir: dir, Settings: fast()})
				if err != nil {
					faults <- err
					return
				}
				servers <- s
			})
		}
		group.Wait()
		require.Len(t, servers, 1)
		require.Len(t, faults, 3)
		for range 3 {
			require.True(t, fault.Is(<-faults, fault.Conflict))
		}
		s := <-servers
		stopAtEnd(t, s)

		_, err := Start(t.Context(), Options{Dir: dir})
		require.True(t, fault.Is(err, fault.Conflict))
		require.ErrorContains(t, err, "pid "+strconv.Itoa(os.Getpid()))
		require.Equal(t, "1", query(t, s, s.URL(""), "SELECT 1"), "the winner is not disturbed")
	})

	t.Run("a directory that is no cluster stays unchanged", func(t *testing.T) {
		t.Parallel()
		dir := openDir(t)
		letter := filepath.Join(dir, dataName, "letter.txt")
		require.NoError(t, os.Mkdir(filepath.Dir(letter), 0o755)) //nolint:gosec // another user's directory
		require.NoError(t, os.WriteFile(letter, []byte("dear"), 0o600))
		_, err := Start(t.Context(), Options{Dir: dir})
		require.True(t, fault.Is(err, fault.Conflict), "%v", err)
		require.FileExists(t, letter)
	})

	t.Run("a cluster of a version that is not here is named, not converted", func(t *testing.T) {
		t.Parallel()
		dir := openDir(t)
		require.NoError(t, os.Mkdir(filepath.Join(dir, dataName), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, dataName, "PG_VERSION"), []byte("9\n"), 0o600))
		_, err := Start(t.Context(), Options{Dir: dir})
		require.True(t, fault.Is(err, fault.Conflict), "%v", err)
		require.ErrorContains(t, err, "PostgreSQL 9")
	})

	t.Run("an unfinished cluster is cleared away", func(t *testing.T) {
		t.Parallel()
		dir := openDir(t)
		require.NoError(t, os.Mkdir(filepath.Join(dir, unfinishedPrefix+"123"), 0o700))
		start(t, Options{Dir: dir, Settings: fast()})
		require.Empty(t, unfinished(t, dir))
	})

	t.Run("a throwaway server cannot come back after Stop, and stopping twice is nothing", func(t *testing.T) {
		t.Parallel()
		s := start(t, Options{Settings: fast()})
		require.NoError(t, s.Stop(t.Context()))
		require.NoDirExists(t, s.files.dir)
		require.NoError(t, s.Stop(t.Context()))
		require.True(t, fault.Is(s.Restart(t.Context()), fault.Conflict))
	})
}
