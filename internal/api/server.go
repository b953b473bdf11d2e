// Package api is the edge of the server: it checks what comes in, maps it, calls the engine
// or a read of the store, and maps what comes out. It decides nothing about runs, and knows
// no SQL. REST (package rest) goes through the same interceptors as gRPC.
package api

import (
	"log/slog"
	"time"

	"google.golang.org/grpc"

	servov1 "go.arco.dev/servo/gen/servo/v1"
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
}

// Server implements the services of the contract.
type Server struct {
	config Config
}

// New makes a server.
func New(config Config) *Server {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{config: config}
}

// Register offers every service: to gRPC, or to the channel that REST goes through.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	servov1.RegisterTenantServiceServer(to, &servov1.UnimplementedTenantServiceServer{})
	servov1.RegisterDeploymentServiceServer(to, &servov1.UnimplementedDeploymentServiceServer{})
	servov1.RegisterAssetServiceServer(to, &servov1.UnimplementedAssetServiceServer{})
	servov1.RegisterRunServiceServer(to, &servov1.UnimplementedRunServiceServer{})
	servov1.RegisterTaskServiceServer(to, &servov1.UnimplementedTaskServiceServer{})
	servov1.RegisterWorkerServiceServer(to, &servov1.UnimplementedWorkerServiceServer{})
	servov1.RegisterStatusServiceServer(to, &servov1.UnimplementedStatusServiceServer{})
	servov1.RegisterAdminServiceServer(to, &servov1.UnimplementedAdminServiceServer{})
}
