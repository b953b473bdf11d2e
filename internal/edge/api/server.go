// Package api has the handlers of the API: they map a request, call the engine or a query of the
// store, and map the result. They decide nothing about runs and contain no SQL. Package intercept
// has the interceptors, which gRPC and REST share.
package api

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/base/webhook"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/edge/oidc"
	"go.arco.dev/servo/internal/edge/ratelimit"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// Options configure a server.
type Options struct {
	Store     *store.Store
	Engine    *engine.Engine
	Logger    *slog.Logger
	Version   string // of this binary
	Name      string // of this server; unique among the servers
	StartedAt time.Time
	Tracer    trace.Tracer     // of calls; nil traces none
	Breakers  Breakers         // circuit breakers of push pools; nil if there are none
	Guard     *netguard.Guard  // decides which URLs may be saved; nil permits public ones only
	Rates     ratelimit.Limits // of each tenant; the zero value has no limits
	Open      bool             // calls need no key, and every caller may make every call

	Development bool // servo dev runs this server; clients show it

	Tokens *oidc.Verifier // of trusted issuers; nil trusts none. The caller starts and stops it
}

// Server implements the services of the contract.
type Server struct {
	*intercept.Chain

	options   Options
	store     *store.Store
	engine    *engine.Engine
	log       *slog.Logger
	tenants   *intercept.TenantNames
	manifests *manifests
	sender    *webhook.Sender

	closing context.Context //nolint:containedctx // ends with the server, not with a call
	close   context.CancelFunc
}

// New creates a server.
func New(options Options) *Server {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		options: options, store: options.Store, engine: options.Engine, log: options.Logger,
		tenants: intercept.NewTenantNames(options.Store), manifests: &manifests{store: options.Store, engine: options.Engine}, sender: webhook.NewSender(options.Version, options.Guard),
	}
	s.closing, s.close = context.WithCancel(context.Background())
	s.Chain = intercept.New(intercept.Options{
		Store: s.store, Engine: s.engine, Logger: s.log, Tenants: s.tenants, Tracer: options.Tracer, Rates: options.Rates, Open: options.Open,
		Tokens: options.Tokens, Closing: s.closing, Timing: intercept.DefaultTiming(),
	})
	return s
}

// Close ends waiting claims and streams. Other calls continue.
func (s *Server) Close() {
	s.close()
	s.Chain.Close()
	s.sender.Close()
}

// Register registers every service with a gRPC server, or with the channel that REST uses.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	for _, one := range Services() {
		one.register(to, s)
	}
}
