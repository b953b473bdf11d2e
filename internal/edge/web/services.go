package web

import (
	"google.golang.org/grpc"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// services are the clients of the API.
type services struct {
	admin         servov1.AdminServiceClient
	alerts        servov1.AlertServiceClient
	assets        servov1.AssetServiceClient
	audit         servov1.AuditServiceClient
	backfills     servov1.BackfillServiceClient
	channels      servov1.ReleaseChannelServiceClient
	configs       servov1.ConfigServiceClient
	deployments   servov1.DeploymentServiceClient
	events        servov1.EventServiceClient
	fairness      servov1.FairnessServiceClient
	keys          servov1.KeyServiceClient
	locks         servov1.LockServiceClient
	metrics       servov1.MetricsServiceClient
	pools         servov1.PoolServiceClient
	releases      servov1.ReleaseServiceClient
	runs          servov1.RunServiceClient
	search        servov1.SearchServiceClient
	signingKeys   servov1.SigningKeyServiceClient
	simulation    servov1.SimulationServiceClient
	status        servov1.StatusServiceClient
	subscriptions servov1.SubscriptionServiceClient
	tasks         servov1.TaskServiceClient
	templates     servov1.TemplateServiceClient
	tenants       servov1.TenantServiceClient
	workers       servov1.WorkerServiceClient
}

func newServices(c grpc.ClientConnInterface) services {
	return services{
		admin:         servov1.NewAdminServiceClient(c),
		alerts:        servov1.NewAlertServiceClient(c),
		assets:        servov1.NewAssetServiceClient(c),
		audit:         servov1.NewAuditServiceClient(c),
		backfills:     servov1.NewBackfillServiceClient(c),
		channels:      servov1.NewReleaseChannelServiceClient(c),
		configs:       servov1.NewConfigServiceClient(c),
		deployments:   servov1.NewDeploymentServiceClient(c),
		events:        servov1.NewEventServiceClient(c),
		fairness:      servov1.NewFairnessServiceClient(c),
		keys:          servov1.NewKeyServiceClient(c),
		locks:         servov1.NewLockServiceClient(c),
		metrics:       servov1.NewMetricsServiceClient(c),
		pools:         servov1.NewPoolServiceClient(c),
		releases:      servov1.NewReleaseServiceClient(c),
		runs:          servov1.NewRunServiceClient(c),
		search:        servov1.NewSearchServiceClient(c),
		signingKeys:   servov1.NewSigningKeyServiceClient(c),
		simulation:    servov1.NewSimulationServiceClient(c),
		status:        servov1.NewStatusServiceClient(c),
		subscriptions: servov1.NewSubscriptionServiceClient(c),
		tasks:         servov1.NewTaskServiceClient(c),
		templates:     servov1.NewTemplateServiceClient(c),
		tenants:       servov1.NewTenantServiceClient(c),
		workers:       servov1.NewWorkerServiceClient(c),
	}
}
