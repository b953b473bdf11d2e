// Package api is the edge of the server: it checks what comes in, maps it, calls the engine
// or a read of the store, and maps what comes out. It decides nothing about runs, and knows
// no SQL. REST (package rest) goes through the same interceptors as gRPC.
package api

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/base/webhook"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/oidc"
	"go.arco.dev/servo/internal/edge/ratelimit"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// Config is what the API stands on.
type Config struct {
	Store     *store.Store
	Engine    *engine.Engine
	Logger    *slog.Logger
	Version   string // of this binary
	Name      string // of this server among the others
	StartedAt time.Time
	Tracer    trace.Tracer     // of calls; nil is none
	Breakers  Breakers         // nil knows of none
	Guard     *netguard.Guard  // says which URLs may be saved; nil allows public ones only
	Rates     ratelimit.Limits // of each tenant; the zero value has none
	Open      bool             // no keys are asked for: whoever calls may do everything

	Development bool // this is servo dev: callers are told

	Tokens *oidc.Verifier // of issuers that are trusted; nil trusts none. It is for the caller to start and stop
}

// Server implements the services of the contract.
type Server struct {
	config    Config
	store     *store.Store
	engine    *engine.Engine
	log       *slog.Logger
	validator *validator
	tenants   *tenantNames
	manifests *manifests
	tokens    *sealer
	rates     *limiter
	callers   *authenticator
	sender    *webhook.Sender
	methods   map[string]access.Method
	patience  time.Duration // of a call, for another one with the same idempotency key

	closing context.Context //nolint:containedctx // it is the server's own life, not a call's
	close   context.CancelFunc
}

// New makes a server. It prepares the checks of every message, so that no first request
// pays for them; a contract whose checks make no sense is a programmer's mistake and panics.
func New(config Config) *Server {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		config: config, store: config.Store, engine: config.Engine, log: config.Logger,
		validator: newValidator(), tenants: newTenantNames(config.Store), manifests: newManifests(config.Store), tokens: newSealer(config.Store),
		rates:   newLimiter(config.Store, config.Rates, config.Logger),
		callers: newAuthenticator(config), methods: access.Methods(), sender: webhook.NewSender(config.Version, config.Guard),
		patience: twinPatience,
	}
	s.closing, s.close = context.WithCancel(context.Background())
	return s
}

// Close tells calls that wait, parked claims and streams, to end. Other calls go on.
func (s *Server) Close() {
	s.close()
	s.callers.close()
	s.rates.close()
	s.sender.Close()
}

// Register offers every service: to gRPC, or to the channel that REST goes through.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	servov1.RegisterTenantServiceServer(to, tenantService{Server: s})
	servov1.RegisterDeploymentServiceServer(to, deploymentService{Server: s})
	servov1.RegisterAssetServiceServer(to, assetService{Server: s})
	servov1.RegisterRunServiceServer(to, runService{Server: s})
	servov1.RegisterTaskServiceServer(to, taskService{Server: s})
	servov1.RegisterWorkerServiceServer(to, workerService{Server: s})
	servov1.RegisterStatusServiceServer(to, statusService{Server: s})
	servov1.RegisterAdminServiceServer(to, adminService{Server: s})
	servov1.RegisterFairnessServiceServer(to, fairnessService{Server: s})
	servov1.RegisterLockServiceServer(to, lockService{Server: s})
	servov1.RegisterMetricsServiceServer(to, metricsService{Server: s})
	servov1.RegisterPoolServiceServer(to, poolService{Server: s})
	servov1.RegisterSigningKeyServiceServer(to, signingKeyService{Server: s})
	servov1.RegisterConfigServiceServer(to, configService{Server: s})
	servov1.RegisterAlertServiceServer(to, alertService{Server: s})
	servov1.RegisterKeyServiceServer(to, keyService{Server: s})
	servov1.RegisterAuditServiceServer(to, auditService{Server: s})
	servov1.RegisterSubscriptionServiceServer(to, subscriptionService{Server: s})
	servov1.RegisterSchedulerServiceServer(to, schedulerService{Server: s})
	servov1.RegisterEventServiceServer(to, eventService{Server: s})
	servov1.RegisterTemplateServiceServer(to, templateService{Server: s})
	servov1.RegisterSearchServiceServer(to, searchService{Server: s})
	servov1.RegisterSimulationServiceServer(to, newSimulationService(s))
}

// stopping answers a call that was waiting when the server began to stop.
func stopping() error {
	return fault.New(fault.Unavailable, "this server is stopping", fault.RetryAfter(time.Second), fault.Remedy("go on with another server"))
}
