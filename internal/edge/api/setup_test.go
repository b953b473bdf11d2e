package api_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/engine"
)

// bundle is an API over gRPC on a database of its own, with the tenant acme, who has
// deployed, and the tenant brick, who has nothing.
type bundle struct {
	db     *servotest.Database
	engine *engine.Engine
	server *api.Server
	log    *recorder

	tenants     servov1.TenantServiceClient
	deployments servov1.DeploymentServiceClient
	assets      servov1.AssetServiceClient
	runs        servov1.RunServiceClient
	tasks       servov1.TaskServiceClient
	workers     servov1.WorkerServiceClient
	status      servov1.StatusServiceClient
	admin       servov1.AdminServiceClient
	conn        *grpc.ClientConn
}

// The manifest of most tests: a diamond a → b, c → d, a single task with parameters, and a
// task to fan out.
const manifestText = `
version: 1
assets:
  - {key: d/a, exec: {command: [run], env: {A: b}}, tags: [daily], owners: [jo]}
  - {key: d/b, exec: {command: [run]}, upstream: [d/a], description: the second}
  - {key: d/c, http: {url: "http://localhost/c"}, upstream: [d/a]}
  - {key: d/d, go: {handler: dee}, upstream: [d/b, d/c]}
  - {key: s/one, exec: {command: [run]}, timeout: 60s, retry: {max_attempts: 2, initial_delay: 1h}}
  - {key: f/scan, exec: {command: [run]}}
  - {key: f/fetch, exec: {command: [run]}, pool: fetch}
  - {key: f/join, exec: {command: [run]}, upstream: [f/scan]}
pipelines:
  - {name: diamond, overlap: allow, select: ["d/*"], max_execution: 2h}
  - name: single
    overlap: allow
    select: [s/one]
    priority: 7
    parameters:
      - {name: day, type: string, default: today, enum: [today, tomorrow]}
      - {name: n, type: integer}
  - {name: fan, overlap: allow, select: [f/scan, f/join]}
`

func setup(t testing.TB) *bundle {
	t.Helper()
	b := setupBare(t, engine.Config{PollEvery: 50 * time.Millisecond})
	for _, name := range []string{"acme", "brick"} {
		_, err := b.tenants.CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: name})
		require.NoError(t, err)
	}
	b.deploy(t, manifestText)
	return b
}

// setupBare has no tenants.
func setupBare(t testing.TB, config engine.Config) *bundle {
	t.Helper()
	if config.Quotas == (tenant.Quotas{}) {
		config.Quotas = tenant.NoLimits()
	}
	b := &bundle{db: servotest.DB(t), log: &recorder{}}
	log := slog.New(b.log)
	b.engine = engine.New(b.db.Store, config, log)
	b.server = api.New(api.Options{Store: b.db.Store, Engine: b.engine, Logger: log, Version: "v1.2.3", Name: "s1", StartedAt: time.Unix(1e9, 0), Open: true, Guard: netguard.NewGuard(netguard.Policy{Local: true})})
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(b.server.Unary()), grpc.ChainStreamInterceptor(b.server.Stream()))
	b.server.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		b.server.Close()
		require.NoError(t, conn.Close())
		server.Stop()
		require.NoError(t, <-served)
		b.engine.Stop()
	})
	b.conn = conn
	b.tenants, b.deployments = servov1.NewTenantServiceClient(conn), servov1.NewDeploymentServiceClient(conn)
	b.assets, b.runs = servov1.NewAssetServiceClient(conn), servov1.NewRunServiceClient(conn)
	b.tasks, b.workers = servov1.NewTaskServiceClient(conn), servov1.NewWorkerServiceClient(conn)
	b.status, b.admin = servov1.NewStatusServiceClient(conn), servov1.NewAdminServiceClient(conn)
	return b
}

// manifestOf is YAML as the API takes it.
func manifestOf(t testing.TB, text string) *structpb.Struct {
	t.Helper()
	manifest, err := asset.Parse([]byte(text), "servo.yaml")
	require.NoError(t, err)
	canonical, err := manifest.Canonical()
	require.NoError(t, err)
	out := &structpb.Struct{}
	require.NoError(t, out.UnmarshalJSON(canonical))
	return out
}

func (b *bundle) deploy(t testing.TB, text string) *servov1.DeployResponse {
	t.Helper()
	answer, err := b.deployments.Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: manifestOf(t, text)})
	require.NoError(t, err)
	return answer
}

func (b *bundle) trigger(t testing.TB, pipeline string) *servov1.Run {
	t.Helper()
	answer, err := b.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: pipeline})
	require.NoError(t, err)
	return answer.GetRun()
}

// admit queues what is ready.
func (b *bundle) admit(t testing.TB) {
	t.Helper()
	duty, err := b.db.TakeDuty(t.Context(), "admission", "test", time.Hour)
	require.NoError(t, err)
	_, _, err = b.engine.Admit(t.Context(), duty, 1000)
	require.NoError(t, err)
}

func claimRequest(most int32) *servov1.ClaimRequest {
	return &servov1.ClaimRequest{
		WorkerId: "w1", ClaimId: uuid.NewString(), Pools: []string{"default", "fetch"}, Max: most, Start: true, Wait: durationpb.New(0),
	}
}

// claim admits and claims started tasks.
func (b *bundle) claim(t testing.TB, most int32) []*servov1.Lease {
	t.Helper()
	b.admit(t)
	answer, err := b.workers.Claim(t.Context(), claimRequest(most))
	require.NoError(t, err)
	return answer.GetLeases()
}

func (b *bundle) one(t testing.TB) *servov1.Lease {
	t.Helper()
	leases := b.claim(t, 1)
	require.Len(t, leases, 1)
	return leases[0]
}

func (b *bundle) report(t testing.TB, items ...*servov1.ReportItem) []*servov1.ReportAnswer {
	t.Helper()
	answer, err := b.workers.Report(t.Context(), &servov1.ReportRequest{WorkerId: "w1", Items: items})
	require.NoError(t, err)
	require.Len(t, answer.GetAnswers(), len(items))
	return answer.GetAnswers()
}

func complete(l *servov1.Lease, result *structpb.Value) *servov1.ReportItem {
	return &servov1.ReportItem{Lease: l.GetLease(), Action: &servov1.ReportItem_Complete{Complete: &servov1.Complete{Result: result}}}
}

// drain works until nothing is ready or queued any more.
func (b *bundle) drain(t testing.TB) {
	t.Helper()
	for {
		leases := b.claim(t, 1000)
		if len(leases) == 0 {
			return
		}
		items := make([]*servov1.ReportItem, len(leases))
		for i, l := range leases {
			items[i] = complete(l, structpb.NewStringValue(l.GetAsset()))
		}
		for _, answer := range b.report(t, items...) {
			require.Nil(t, answer.GetError())
		}
	}
}

// problemOf is the problem that a refused call returns.
func problemOf(t testing.TB, err error) *servov1.Problem {
	t.Helper()
	require.Error(t, err)
	for _, detail := range status.Convert(err).Details() {
		if p, ok := detail.(*servov1.Problem); ok {
			return p
		}
	}
	require.Fail(t, "no problem in the status", "%v", err)
	return nil
}

// requireRefused wants a status, and a problem about a field that states what to do.
func requireRefused(t testing.TB, err error, code codes.Code, field string) *servov1.Problem {
	t.Helper()
	p := problemOf(t, err)
	require.Equal(t, code, status.Code(err), "%v", err)
	require.Equal(t, field, p.GetField(), "%v", p)
	require.NotEmpty(t, p.GetMessage())
	require.NotEmpty(t, p.GetRemedy())
	return p
}

// recorder keeps what is logged.
type recorder struct {
	mu      sync.Mutex
	records []slog.Record
}

func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *recorder) WithGroup(string) slog.Handler            { return r }

func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, record)
	return nil
}

// with are the records of a message, as maps.
func (r *recorder) with(message string) []map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []map[string]string
	for _, record := range r.records {
		if record.Message == message {
			attributes := map[string]string{"level": record.Level.String()}
			record.Attrs(func(a slog.Attr) bool { attributes[a.Key] = a.Value.String(); return true })
			found = append(found, attributes)
		}
	}
	return found
}

// events are all events of a run, as soon as they can be read. Transactions of other tests
// in the same cluster hold events back for as long as they run.
func (b *bundle) events(t testing.TB, run string) []*servov1.Event {
	t.Helper()
	var events []*servov1.Event
	for token := ""; ; {
		answer, err := b.runs.ListRunEvents(t.Context(), &servov1.ListRunEventsRequest{Tenant: "acme", Run: run, PageToken: token, PageSize: 100})
		require.NoError(t, err)
		events = append(events, answer.GetEvents()...)
		if token = answer.GetNextPageToken(); token == "" && len(events) > 0 {
			return events
		}
	}
}

func codeOf(err error) codes.Code { return status.Code(err) }

// How long a test waits for what must come, and how often it looks.
const (
	waitLong  = 30 * time.Second
	waitShort = 10 * time.Millisecond
)
