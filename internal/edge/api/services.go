package api

import (
	"context"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// Service is a service of the contract.
type Service struct {
	register func(to grpc.ServiceRegistrar, s *Server)
	// Route adds the service's REST paths to a mux, which calls the service through a connection.
	// Calls pass the interceptors of that connection, unlike those of the generated
	// RegisterXHandlerServer.
	Route func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error
}

func service[S, C any](register func(grpc.ServiceRegistrar, S), implement func(*Server) S, client func(grpc.ClientConnInterface) C, route func(context.Context, *runtime.ServeMux, C) error) Service {
	return Service{
		register: func(to grpc.ServiceRegistrar, s *Server) { register(to, implement(s)) },
		Route: func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
			return route(ctx, mux, client(conn))
		},
	}
}

// Services returns all services of the contract. gRPC and REST register them from this table.
func Services() []Service {
	return []Service{
		service(servov1.RegisterTenantServiceServer, func(s *Server) servov1.TenantServiceServer { return tenantService{s} },
			servov1.NewTenantServiceClient, servov1.RegisterTenantServiceHandlerClient),
		service(servov1.RegisterDeploymentServiceServer, func(s *Server) servov1.DeploymentServiceServer { return deploymentService{s} },
			servov1.NewDeploymentServiceClient, servov1.RegisterDeploymentServiceHandlerClient),
		service(servov1.RegisterAssetServiceServer, func(s *Server) servov1.AssetServiceServer { return assetService{s} },
			servov1.NewAssetServiceClient, servov1.RegisterAssetServiceHandlerClient),
		service(servov1.RegisterRunServiceServer, func(s *Server) servov1.RunServiceServer { return runService{s} },
			servov1.NewRunServiceClient, servov1.RegisterRunServiceHandlerClient),
		service(servov1.RegisterTaskServiceServer, func(s *Server) servov1.TaskServiceServer { return taskService{s} },
			servov1.NewTaskServiceClient, servov1.RegisterTaskServiceHandlerClient),
		service(servov1.RegisterWorkerServiceServer, func(s *Server) servov1.WorkerServiceServer { return workerService{s} },
			servov1.NewWorkerServiceClient, servov1.RegisterWorkerServiceHandlerClient),
		service(servov1.RegisterStatusServiceServer, func(s *Server) servov1.StatusServiceServer { return statusService{s} },
			servov1.NewStatusServiceClient, servov1.RegisterStatusServiceHandlerClient),
		service(servov1.RegisterAdminServiceServer, func(s *Server) servov1.AdminServiceServer { return adminService{s} },
			servov1.NewAdminServiceClient, servov1.RegisterAdminServiceHandlerClient),
		service(servov1.RegisterFairnessServiceServer, func(s *Server) servov1.FairnessServiceServer { return fairnessService{s} },
			servov1.NewFairnessServiceClient, servov1.RegisterFairnessServiceHandlerClient),
		service(servov1.RegisterLockServiceServer, func(s *Server) servov1.LockServiceServer { return lockService{s} },
			servov1.NewLockServiceClient, servov1.RegisterLockServiceHandlerClient),
		service(servov1.RegisterMetricsServiceServer, func(s *Server) servov1.MetricsServiceServer { return metricsService{s} },
			servov1.NewMetricsServiceClient, servov1.RegisterMetricsServiceHandlerClient),
		service(servov1.RegisterPoolServiceServer, func(s *Server) servov1.PoolServiceServer { return poolService{s} },
			servov1.NewPoolServiceClient, servov1.RegisterPoolServiceHandlerClient),
		service(servov1.RegisterReleaseServiceServer, func(s *Server) servov1.ReleaseServiceServer { return releaseService{s} },
			servov1.NewReleaseServiceClient, servov1.RegisterReleaseServiceHandlerClient),
		service(servov1.RegisterReleaseChannelServiceServer, func(s *Server) servov1.ReleaseChannelServiceServer { return channelService{s} },
			servov1.NewReleaseChannelServiceClient, servov1.RegisterReleaseChannelServiceHandlerClient),
		service(servov1.RegisterSigningKeyServiceServer, func(s *Server) servov1.SigningKeyServiceServer { return signingKeyService{s} },
			servov1.NewSigningKeyServiceClient, servov1.RegisterSigningKeyServiceHandlerClient),
		service(servov1.RegisterConfigServiceServer, func(s *Server) servov1.ConfigServiceServer { return configService{s} },
			servov1.NewConfigServiceClient, servov1.RegisterConfigServiceHandlerClient),
		service(servov1.RegisterAlertServiceServer, func(s *Server) servov1.AlertServiceServer { return alertService{s} },
			servov1.NewAlertServiceClient, servov1.RegisterAlertServiceHandlerClient),
		service(servov1.RegisterKeyServiceServer, func(s *Server) servov1.KeyServiceServer { return keyService{s} },
			servov1.NewKeyServiceClient, servov1.RegisterKeyServiceHandlerClient),
		service(servov1.RegisterAuditServiceServer, func(s *Server) servov1.AuditServiceServer { return auditService{s} },
			servov1.NewAuditServiceClient, servov1.RegisterAuditServiceHandlerClient),
		service(servov1.RegisterSubscriptionServiceServer, func(s *Server) servov1.SubscriptionServiceServer { return subscriptionService{s} },
			servov1.NewSubscriptionServiceClient, servov1.RegisterSubscriptionServiceHandlerClient),
		service(servov1.RegisterBackfillServiceServer, func(s *Server) servov1.BackfillServiceServer { return backfillService{s} },
			servov1.NewBackfillServiceClient, servov1.RegisterBackfillServiceHandlerClient),
		service(servov1.RegisterMaterializationServiceServer, func(s *Server) servov1.MaterializationServiceServer { return materializationService{s} },
			servov1.NewMaterializationServiceClient, servov1.RegisterMaterializationServiceHandlerClient),
		service(servov1.RegisterSchedulerServiceServer, func(s *Server) servov1.SchedulerServiceServer { return schedulerService{s} },
			servov1.NewSchedulerServiceClient, servov1.RegisterSchedulerServiceHandlerClient),
		service(servov1.RegisterEventServiceServer, func(s *Server) servov1.EventServiceServer { return eventService{s} },
			servov1.NewEventServiceClient, servov1.RegisterEventServiceHandlerClient),
		service(servov1.RegisterTemplateServiceServer, func(s *Server) servov1.TemplateServiceServer { return templateService{s} },
			servov1.NewTemplateServiceClient, servov1.RegisterTemplateServiceHandlerClient),
		service(servov1.RegisterSearchServiceServer, func(s *Server) servov1.SearchServiceServer { return searchService{s} },
			servov1.NewSearchServiceClient, servov1.RegisterSearchServiceHandlerClient),
		service(servov1.RegisterSimulationServiceServer, func(s *Server) servov1.SimulationServiceServer { return newSimulationService(s) },
			servov1.NewSimulationServiceClient, servov1.RegisterSimulationServiceHandlerClient),
	}
}
