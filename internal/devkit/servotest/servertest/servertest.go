// Package servertest starts a complete server for a test, with its own database, on loopback. It
// is for tests of clients of a server: client, worker, command line.
package servertest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/pgbouncer"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
)

// Server is a server that stops with its test.
type Server struct {
	*daemon.Daemon

	URL string // of REST: http://127.0.0.1:port
	// BlobURL is its blob store.
	BlobURL string
	GRPC    string // host:port
}

// Start starts one.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartWith(t, daemon.Config{DatabaseURL: servotest.DB(t).URL})
}

// StartWith starts one on an existing database, for tests with several servers on one
// database. Addresses and name are filled in. It asks for no keys.
func StartWith(t testing.TB, config daemon.Config) *Server {
	t.Helper()
	config.Open = true
	return StartKeyed(t, config)
}

// StartKeyed is StartWith for a server that asks for keys.
func StartKeyed(t testing.TB, config daemon.Config) *Server {
	t.Helper()
	if config.HTTP == "" {
		config.HTTP = "127.0.0.1:0"
	}
	if config.GRPC == "" {
		config.GRPC = "127.0.0.1:0"
	}
	if config.Targets.Networks == nil && config.Targets.Resolver == nil {
		config.Targets.Local = true // receivers and workers of tests listen on loopback
	}
	if config.Drain == 0 {
		config.Drain = 5 * time.Second // a test that leaves a call behind should not wait for long
	}
	if config.Name == "" {
		config.Name = t.Name()
	}
	if config.Engine == (engine.Config{}) {
		config.Engine = engine.Config{PollEvery: 50 * time.Millisecond}
	}
	if config.Engine.Quotas == (tenant.Quotas{}) {
		config.Engine.Quotas = tenant.NoLimits()
	}
	if servotest.ThroughPooler() && !config.Pooler {
		if config.ListenURL == "" {
			config.ListenURL = config.DatabaseURL // to listen needs a session
		}
		config.DatabaseURL, config.Pooler = pgbouncer.Start(t, config.DatabaseURL, servotest.PoolerConnections), true
	}
	if config.BlobURL == "" {
		config.BlobURL = "file://" + t.TempDir()
	}
	d, err := daemon.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Stop(context.Background())) })
	return &Server{Daemon: d, BlobURL: config.BlobURL, URL: "http://" + d.HTTPAddr(), GRPC: d.GRPCAddr()}
}

// Dial connects to the server's gRPC.
func (s *Server) Dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// StartLocked starts one that asks for keys, and gives its first platform key.
func StartLocked(t testing.TB) (server *Server, key string) {
	t.Helper()
	servers, key := StartLockedFleet(t, 1)
	return servers[0], key
}

// StartLockedFleet starts several on one database.
func StartLockedFleet(t testing.TB, size int) (servers []*Server, key string) {
	t.Helper()
	db := servotest.DB(t)
	e := engine.New(db.Store, engine.Config{}, slog.New(slog.DiscardHandler))
	_, secret, err := e.Bootstrap(t.Context(), "ops", false, event.Meta{})
	require.NoError(t, err)
	e.Stop()
	for i := range size {
		servers = append(servers, StartKeyed(t, daemon.Config{DatabaseURL: db.URL, Name: fmt.Sprintf("%s-%d", t.Name(), i)}))
	}
	return servers, secret.Text()
}
