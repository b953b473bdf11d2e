package requests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// The size of the crowd.
const (
	crowdTenants     = 50
	crowdCallers     = 24
	crowdConnections = 4
)

var crowdRequests = int64(servotest.Size(3_000, 10_000))

// own is a name that contains its tenant's. Everything that a tenant has carries one.
var own = regexp.MustCompile(`zz\d\d`)

func crowdName(i int) string { return fmt.Sprintf("zz%02d", i) }

// crowd is a server with few connections and many tenants.
type crowd struct {
	store   *store.Store
	engine  *engine.Engine
	conn    *grpc.ClientConn
	keys    []string
	runs    []string // one of each tenant
	returns atomic.Int64
	panics  atomic.Int64
	opened  atomic.Int64
	mu      sync.Mutex
	wrong   []string
}

// panicAt is how many statements a call may send before it panics, in its context.
type panicAt struct{}

// errInjected is what calls panic with.
var errInjected = errors.New("injected")

// watch is what store.Options asks for: every connection that comes back is looked at,
// and some statements of calls panic.
func (c *crowd) watch(config *pgxpool.Config) {
	config.AfterRelease = c.released
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { c.opened.Add(1); return nil }
	config.ConnConfig.Tracer = c
}

// TraceQueryStart implements pgx.QueryTracer.
func (c *crowd) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	left, ok := ctx.Value(panicAt{}).(*atomic.Int64)
	// Our code runs inside of transactions: what the driver does outside of them cannot panic.
	// And what many wait for together is read for all of them, outside of the call.
	inside := ok && conn.PgConn().TxStatus() == 'T' && data.SQL != "rollback" && data.SQL != "commit" && !strings.Contains(data.SQL, "KeyByPublicID")
	if inside && left.Add(-1) == 0 {
		c.panics.Add(1)
		panic(errInjected)
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (c *crowd) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// released looks at a connection that is given back: it must have no role and tenant.
func (c *crowd) released(conn *pgx.Conn) bool {
	c.returns.Add(1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if status := conn.PgConn().TxStatus(); status != 'I' {
		return c.report("a connection came back inside of a transaction (%c)", status)
	}
	var user, session, role, of string
	err := conn.QueryRow(ctx, `SELECT current_user::text, session_user::text, current_setting('role'), coalesce(current_setting('servo.tenant', true), '')`,
		pgx.QueryExecModeSimpleProtocol).Scan(&user, &session, &role, &of)
	switch {
	case err != nil:
		return c.report("a connection came back broken: %v", err)
	case user != session || role != "none" || of != "":
		return c.report("a connection came back as %s, role %s, of tenant %q", user, role, of)
	}
	return true
}

func (c *crowd) report(format string, args ...any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	return false
}

// fragile makes calls that request it panic: before their handler, after it, or at a statement.
func fragile(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	asked := metadata.ValueFromIncomingContext(ctx, "x-panic")
	if len(asked) == 0 {
		return handler(ctx, req)
	}
	switch asked[0] {
	case "before":
		panic(errInjected)
	case "after":
		_, _ = handler(ctx, req)
		panic(errInjected)
	}
	left := &atomic.Int64{}
	left.Store(int64(len(asked[0])))
	return handler(context.WithValue(ctx, panicAt{}, left), req)
}

func setupCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{}
	var err error
	c.store, err = store.Open(t.Context(), store.Options{URL: servotest.DB(t).URL, MaxConns: crowdConnections, Watch: c.watch})
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	c.engine = engine.New(c.store, engine.Config{PollEvery: 50 * time.Millisecond, Quotas: tenant.NoLimits()}, log)
	server := api.New(api.Options{Store: c.store, Engine: c.engine, Logger: log, Name: "crowded"})
	listener := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	over := grpc.NewServer(grpc.ChainUnaryInterceptor(server.Unary(), fragile), grpc.ChainStreamInterceptor(server.Stream()))
	server.Register(over)
	go func() { served <- over.Serve(listener) }()
	c.conn, err = grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		server.Close()
		require.NoError(t, c.conn.Close())
		over.Stop()
		require.NoError(t, <-served)
		c.engine.Stop()
		c.store.Close()
	})
	c.fill(t)
	return c
}

// fill gives every tenant a key, a deployment, a config and a run, all with its name.
func (c *crowd) fill(t *testing.T) {
	t.Helper()
	_, platform, err := c.engine.Bootstrap(t.Context(), "ops", false, event.Meta{Actor: "test"})
	require.NoError(t, err)
	operator := withKey(t.Context(), platform.Text())
	for i := range crowdTenants {
		name := crowdName(i)
		_, err := servov1.NewTenantServiceClient(c.conn).CreateTenant(operator, &servov1.CreateTenantRequest{Name: name})
		require.NoError(t, err)
		owner, err := c.store.TenantByName(t.Context(), name)
		require.NoError(t, err)
		_, secret, err := c.engine.CreateAPIKey(t.Context(), owner, access.Settings{Name: "key-of-" + name, Role: access.TenantAdmin}, 0, event.Meta{Actor: "test"})
		require.NoError(t, err)
		c.keys = append(c.keys, secret.Text())
		ctx := withKey(t.Context(), secret.Text())
		_, err = servov1.NewDeploymentServiceClient(c.conn).Deploy(ctx, &servov1.DeployRequest{Tenant: name, Manifest: crowdManifest(t, name)})
		require.NoError(t, err)
		made, err := servov1.NewRunServiceClient(c.conn).TriggerRun(ctx, &servov1.TriggerRunRequest{Tenant: name, Pipeline: "pipeline-" + name})
		require.NoError(t, err)
		c.runs = append(c.runs, made.GetRun().GetId())
		_, err = servov1.NewConfigServiceClient(c.conn).CreateConfig(ctx, &servov1.CreateConfigRequest{Tenant: name, Name: "config-" + name, Spec: crowdSpec(name)})
		require.NoError(t, err)
	}
}

func crowdManifest(t *testing.T, name string) *structpb.Struct {
	t.Helper()
	out := &structpb.Struct{}
	require.NoError(t, out.UnmarshalJSON(fmt.Appendf(nil, `{"version":1,
		"assets":[{"key":"%[1]s/a","exec":{"command":["run"]},"tags":["%[1]s"]},{"key":"%[1]s/b","exec":{"command":["run"]},"upstream":["%[1]s/a"]}],
		"pipelines":[{"name":"pipeline-%[1]s","overlap":"allow","select":["%[1]s/*"]}]}`, name)))
	return out
}

func withKey(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "x-api-key", key)
}

func crowdSpec(name string) *servov1.ConfigSpec {
	return &servov1.ConfigSpec{Pipeline: "pipeline-" + name, Trigger: &servov1.ConfigTrigger{Manual: true}, Labels: map[string]string{"of": name}}
}

// call is a call of a tenant about something of its own, or of another's.
func (c *crowd) call(ctx context.Context, r *rand.Rand, me, other int) (answer proto.Message, err error, foreign bool) { //nolint:revive // the error is a result like others
	name := crowdName(me)
	runs, configs := servov1.NewRunServiceClient(c.conn), servov1.NewConfigServiceClient(c.conn)
	switch r.IntN(16) {
	case 0, 1:
		answer, err = runs.ListRuns(ctx, &servov1.ListRunsRequest{Tenant: name, PageSize: 20})
	case 2:
		answer, err = runs.GetRun(ctx, &servov1.GetRunRequest{Tenant: name, Run: c.runs[me]})
	case 3:
		answer, err = servov1.NewAssetServiceClient(c.conn).ListAssets(ctx, &servov1.ListAssetsRequest{Tenant: name})
	case 4:
		answer, err = servov1.NewAssetServiceClient(c.conn).ListPipelines(ctx, &servov1.ListPipelinesRequest{Tenant: name})
	case 5, 6:
		answer, err = configs.ListConfigs(ctx, &servov1.ListConfigsRequest{Tenant: name, PageSize: 50})
	case 7:
		answer, err = servov1.NewKeyServiceClient(c.conn).ListKeys(ctx, &servov1.ListKeysRequest{Tenant: name})
	case 8:
		answer, err = servov1.NewAuditServiceClient(c.conn).ListAudit(ctx, &servov1.ListAuditRequest{Tenant: name})
	case 9:
		answer, err = runs.ListRunEvents(ctx, &servov1.ListRunEventsRequest{Tenant: name, Run: c.runs[me]})
	case 10, 11:
		answer, err = runs.TriggerRun(ctx, &servov1.TriggerRunRequest{Tenant: name, Pipeline: "pipeline-" + name, Note: name})
	case 12:
		answer, err = configs.CreateConfig(ctx, &servov1.CreateConfigRequest{Tenant: name, Name: "config-" + name + "-" + uuid.NewString()[:8], Spec: crowdSpec(name)})
	case 13:
		answer, err = configs.PauseConfig(ctx, &servov1.PauseConfigRequest{Tenant: name, Config: "config-" + name, Reason: name})
	case 14: // another's run as one's own
		answer, err = runs.GetRun(ctx, &servov1.GetRunRequest{Tenant: name, Run: c.runs[other]})
		foreign = true
	default: // another's tenant
		answer, err = runs.ListRuns(ctx, &servov1.ListRunsRequest{Tenant: crowdName(other)})
		foreign = true
	}
	return answer, err, foreign
}

// one makes a call and returns what is wrong with its answer.
func (c *crowd) one(ctx context.Context, r *rand.Rand) error {
	me := r.IntN(crowdTenants)
	other := (me + 1 + r.IntN(crowdTenants-1)) % crowdTenants
	ctx, cancel := context.WithTimeout(withKey(ctx, c.keys[me]), patience)
	defer cancel()
	gone, breaks := r.IntN(10) == 0, r.IntN(10) == 0
	if gone {
		timer := time.AfterFunc(time.Duration(r.IntN(60_000))*time.Microsecond, cancel)
		defer timer.Stop()
	}
	if breaks {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-panic", []string{"before", "after", "1", "22", "333", "4444"}[r.IntN(6)])
	}
	answer, err, foreign := c.call(ctx, r, me, other)
	if err != nil {
		switch code := status.Code(err); {
		case gone && code == codes.Canceled, breaks && code == codes.Internal, foreign && code == codes.NotFound:
			return nil
		case code == codes.FailedPrecondition: // a config that is paused already
			return nil
		}
		return fmt.Errorf("%s: %w", crowdName(me), err)
	}
	text, err := protojson.Marshal(answer)
	if err != nil {
		return err
	}
	if foreign {
		return fmt.Errorf("%s was given something of %s: %s", crowdName(me), crowdName(other), text)
	}
	for _, found := range own.FindAllString(string(text), -1) {
		if found != crowdName(me) {
			return fmt.Errorf("%s received %s: %s", crowdName(me), found, text)
		}
	}
	return nil
}

// TestInterleavedTenants: many tenants on few connections, some of whose calls are given up or
// panic in the middle. Each sees its own rows, and a connection that is given back has no role and tenant.
func TestInterleavedTenants(t *testing.T) {
	t.Parallel()
	c := setupCrowd(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for range crowdCallers {
		group.Go(func() {
			for {
				number := next.Add(1)
				if number > crowdRequests || ctx.Err() != nil {
					return
				}
				if err := c.one(ctx, rand.New(rand.NewPCG(seed, uint64(number)))); err != nil && ctx.Err() == nil { //nolint:gosec // it is to be the same again
					cancel(fmt.Errorf("seed %d, request %d: %w", seed, number, err))
				}
			}
		})
	}
	group.Wait()
	require.NoError(t, context.Cause(ctx))
	t.Logf("%d connections were opened, and given back %d times; %d calls panicked at a statement", c.opened.Load(), c.returns.Load(), c.panics.Load())
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Empty(t, c.wrong)
	require.Greater(t, c.returns.Load(), crowdRequests/2, "connections are looked at when they are given back")
	require.Positive(t, c.panics.Load())
}
