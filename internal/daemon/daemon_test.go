package daemon_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// TestMain sees that stopped servers leave nothing behind. The cluster that the tests share
// lives as long as the binary.
func TestMain(m *testing.M) {
	const devpg = "go.arco.dev/servo/internal/devkit/devpg.(*Server)."
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(devpg+"launchOn.func1"), goleak.IgnoreAnyFunction(devpg+"spawn.func1"))
}

// eventually is the longest that something certain may take on a busy machine.
const eventually = time.Minute

// get asks over HTTP, on a connection of its own.
func get(t *testing.T, url string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	req.Close = true
	response, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, response.Header, string(body)
}

// refused starts a server that must not start, and gives its fault.
func refused(t *testing.T, config daemon.Config) *fault.Fault {
	t.Helper()
	if config.HTTP == "" {
		config.HTTP = "127.0.0.1:0"
	}
	if config.GRPC == "" {
		config.GRPC = "127.0.0.1:0"
	}
	d, err := daemon.Start(t.Context(), config)
	if err == nil {
		require.NoError(t, d.Stop(context.Background()))
	}
	require.Error(t, err)
	f, ok := fault.As(err)
	require.True(t, ok, "%v", err)
	return f
}

func TestHealth(t *testing.T) {
	t.Parallel()

	t.Run("a running server is healthy, ready, and lists its services", func(t *testing.T) {
		t.Parallel()
		s := servertest.Start(t)
		code, _, body := get(t, s.URL+"/healthz")
		require.Equal(t, http.StatusOK, code)
		require.JSONEq(t, `{"status": "alive"}`, body)
		code, _, body = get(t, s.URL+"/readyz")
		require.Equal(t, http.StatusOK, code, body)
		require.JSONEq(t, `{"status": "ready"}`, body)
		code, _, body = get(t, s.URL+"/")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, body, "<h1>Overview</h1>", "for people who open the address")
	})

	t.Run("without its database it lives but is not ready, and is again when it is back", func(t *testing.T) {
		t.Parallel()
		proxy := servotest.Proxy(t, servotest.DB(t).URL)
		s := servertest.StartWith(t, daemon.Config{DatabaseURL: proxy.URL})
		proxy.Refuse(true)
		proxy.CutAll()
		ready := func() int {
			code, _, _ := get(t, s.URL+"/readyz")
			return code
		}
		require.Eventually(t, func() bool { return ready() == http.StatusServiceUnavailable }, eventually, 50*time.Millisecond)
		code, header, body := get(t, s.URL+"/readyz")
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, "application/problem+json", header.Get("Content-Type"))
		var problem struct {
			Status  int
			Detail  string
			Missing []string
		}
		require.NoError(t, json.Unmarshal([]byte(body), &problem))
		require.Equal(t, http.StatusServiceUnavailable, problem.Status)
		require.Equal(t, []string{"the database does not answer"}, problem.Missing)
		code, _, _ = get(t, s.URL+"/healthz")
		require.Equal(t, http.StatusOK, code)

		proxy.Refuse(false)
		require.Eventually(t, func() bool { return ready() == http.StatusOK }, eventually, 50*time.Millisecond)
	})

	t.Run("a migration that is gone is named", func(t *testing.T) {
		t.Parallel()
		db := servotest.DB(t)
		s := servertest.StartWith(t, daemon.Config{DatabaseURL: db.URL})
		db.Exec(t, `DELETE FROM servo.migration_checksums WHERE version = 2`)
		require.Eventually(t, func() bool {
			code, _, body := get(t, s.URL+"/readyz")
			return code == http.StatusServiceUnavailable && strings.Contains(body, "migration 2")
		}, eventually, 50*time.Millisecond)
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := servertest.StartWith(t, daemon.Config{DatabaseURL: servotest.DB(t).URL, Version: "v1.2.3"})
	_, _, _ = get(t, s.URL+"/v1/tenants/missing")
	_, _, _ = get(t, s.URL+"/v1/tenants/missing-too")
	_, _, _ = get(t, s.URL+"/no/such/path")
	code, _, body := get(t, s.URL+"/metrics")
	require.Equal(t, http.StatusOK, code)
	for _, want := range []string{
		`servo_build_info{go_version="go`, `version="v1.2.3"} 1`,
		`servo_db_pool_max_connections 20`, `servo_db_pool_connections{state="idle"}`, `servo_db_pool_acquires_total`,
		`servo_db_statements_total`, `servo_db_transactions_total`, `servo_db_deadlocks_total`, `servo_db_retries_total`,
		`http_requests_total{code="404",method="GET",route="/v1/tenants/{tenant}"} 2`,
		`http_requests_total{code="404",method="GET",route="other"} 1`,
		`http_request_duration_seconds_count{method="GET",route="/v1/tenants/{tenant}"} 2`,
		`servo_batcher_waiting{lane="work"} 0`, `servo_batcher_batches_total{lane="control"}`, `servo_batcher_seconds_total{lane="heartbeats"}`,
		`go_goroutines`, `process_open_fds`,
	} {
		require.True(t, strings.Contains(body, want), want)
	}
}

func TestStart(t *testing.T) {
	t.Parallel()

	t.Run("an address that is taken is named with the flag that gives another", func(t *testing.T) {
		t.Parallel()
		taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // listening does not wait
		require.NoError(t, err)
		t.Cleanup(func() { _ = taken.Close() })
		url := servotest.DB(t).URL
		f := refused(t, daemon.Config{DatabaseURL: url, HTTP: taken.Addr().String()})
		require.Equal(t, fault.Conflict, f.Code)
		require.Equal(t, "--http", f.Violation.Field)
		require.Contains(t, f.Message, taken.Addr().String())
		f = refused(t, daemon.Config{DatabaseURL: url, GRPC: taken.Addr().String()})
		require.Equal(t, "--grpc", f.Violation.Field)
		f = refused(t, daemon.Config{DatabaseURL: url, GRPC: "no such address"})
		require.Equal(t, fault.InvalidArgument, f.Code)
	})

	t.Run("a database without this version's schema is refused, or migrated if asked", func(t *testing.T) {
		t.Parallel()
		url := servotest.Empty(t, "template0")
		f := refused(t, daemon.Config{DatabaseURL: url})
		require.Equal(t, fault.Conflict, f.Code)
		require.Contains(t, f.Violation.Remedy, "servo migrate up")
		require.Contains(t, f.Violation.Remedy, "--migrate")
		servertest.StartWith(t, daemon.Config{DatabaseURL: url, Migrate: true})
	})

	t.Run("what a newer version has migrated on top is let be, even by --migrate", func(t *testing.T) {
		t.Parallel()
		db := servotest.DB(t)
		db.Exec(t, `INSERT INTO servo.migration_checksums (version, name, sha256) VALUES (9999, '09999_future', 'x')`)
		s := servertest.StartWith(t, daemon.Config{DatabaseURL: db.URL, Migrate: true})
		code, _, body := get(t, s.URL+"/readyz")
		require.Equal(t, http.StatusOK, code, body)
	})

	t.Run("an unreachable database is a clear error", func(t *testing.T) {
		t.Parallel()
		proxy := servotest.Proxy(t, servotest.DB(t).URL)
		proxy.Refuse(true)
		f := refused(t, daemon.Config{DatabaseURL: proxy.URL})
		require.Equal(t, fault.Unavailable, f.Code)
		require.Equal(t, "--database", f.Violation.Field)
		require.Contains(t, f.Violation.Remedy, "--wait-for-database")
	})

	t.Run("or it is waited for", func(t *testing.T) {
		t.Parallel()
		proxy := servotest.Proxy(t, servotest.DB(t).URL)
		proxy.Refuse(true)
		logged := make(chan struct{}, 1)
		go func() {
			<-logged // the first try has failed
			proxy.Refuse(false)
		}()
		servertest.StartWith(t, daemon.Config{DatabaseURL: proxy.URL, WaitForDatabase: eventually, Logger: signalOn("waiting for the database", logged)})
	})

	t.Run("but not for one whose URL can never work", func(t *testing.T) {
		t.Parallel()
		f := refused(t, daemon.Config{DatabaseURL: "postgres://[", WaitForDatabase: eventually})
		require.Equal(t, fault.InvalidArgument, f.Code)
	})
}
