package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// through is a server with connections of its own to a database, by whichever way.
func through(t testing.TB, db *servotest.Database, url string, connections int32) (*replica, *store.Store) {
	t.Helper()
	own, err := store.Open(t.Context(), store.Options{URL: url, MaxConns: connections})
	require.NoError(t, err)
	t.Cleanup(own.Close)
	made := engine.New(own, engine.Config{Quotas: tenant.NoLimits(), PollEvery: 50 * time.Millisecond}, nil)
	t.Cleanup(made.Stop)
	b := &bundle{db: &servotest.Database{Store: own, URL: db.URL}, engine: made}
	return newReplica(t, b, api.Options{}), own
}

// answered counts the keys that stand for an answer.
func (b *bundle) answered(t testing.TB, key string) int {
	t.Helper()
	return b.db.Count(t, `SELECT count(*) FROM servo.answered_calls WHERE key = $1`, key)
}

func (b *bundle) tenantsNamed(t testing.TB, name string) int {
	t.Helper()
	return b.db.Count(t, `SELECT count(*) FROM servo.tenants WHERE name = $1`, name)
}

func TestFiftyAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var servers []*replica
	for range 3 {
		r, _ := through(t, b.db, b.db.URL, 8)
		servers = append(servers, r)
	}
	spec := &servov1.ConfigSpec{Pipeline: "single", Trigger: &servov1.ConfigTrigger{Cron: "0 6 * * *"}}
	for _, c := range []struct {
		path    string
		req     proto.Message
		effects string
	}{
		{servov1.TenantService_CreateTenant_FullMethodName, &servov1.CreateTenantRequest{Name: "fifty"}, `SELECT count(*) FROM servo.tenants WHERE name = 'fifty'`},
		{servov1.ConfigService_CreateConfig_FullMethodName, &servov1.CreateConfigRequest{Tenant: "acme", Name: "fifty", Spec: spec}, `SELECT count(*) FROM servo.configs WHERE name = 'fifty'`},
		{servov1.KeyService_CreateKey_FullMethodName, &servov1.CreateKeyRequest{Tenant: "acme", Name: "fifty", Role: "viewer"}, `SELECT count(*) FROM servo.api_keys WHERE name = 'fifty'`},
	} {
		t.Run(c.path+" with one key on three servers has one effect", func(t *testing.T) {
			t.Parallel()
			var (
				mu      sync.Mutex
				all     sync.WaitGroup
				answers []proto.Message
				secrets int
			)
			key := uuid.NewString()
			for i := range 50 {
				all.Go(func() {
					method, err := protoFind(c.path)
					if err != nil {
						t.Error(err)
						return
					}
					answer := newAnswer(t, method)
					err = servers[i%len(servers)].Invoke(keyed(t.Context(), key), c.path, c.req, answer)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Errorf("call %d: %v", i, err) // ten seconds are enough for the first of them
						return
					}
					if made, ok := answer.(*servov1.CreateKeyResponse); ok && made.GetSecret() != "" {
						secrets++
					}
					answers = append(answers, intercept.WithoutSecrets(answer))
				})
			}
			all.Wait()
			require.Len(t, answers, 50)
			for _, answer := range answers[1:] {
				require.True(t, proto.Equal(answers[0], answer), "%v is not %v", answer, answers[0])
			}
			require.Equal(t, 1, b.db.Count(t, c.effects))
			require.Equal(t, 1, b.answered(t, key))
			if c.path == servov1.KeyService_CreateKey_FullMethodName {
				require.Equal(t, 1, secrets, "one caller has the secret")
			}
		})
	}
}

func protoFind(path string) (protoreflect.MethodDescriptor, error) {
	for _, file := range intercept.Contract() {
		for i := range file.Services().Len() {
			of := file.Services().Get(i).Methods()
			for j := range of.Len() {
				if pathOf(of.Get(j)) == path {
					return of.Get(j), nil
				}
			}
		}
	}
	return nil, fmt.Errorf("no call %s", path)
}

func TestKeysOfCalls(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	workspaces := servov1.NewTenantServiceClient(g.conn)
	acme, _ := g.key(t, "acme", access.Settings{Role: access.TenantAdmin})
	colleague, _ := g.key(t, "acme", access.Settings{Role: access.TenantAdmin})
	brick, _ := g.key(t, "brick", access.Settings{Role: access.TenantAdmin})
	create := func(as, key, tenant, name string) (*servov1.Workspace, metadata.MD, error) {
		md := metadata.MD{}
		made, err := workspaces.CreateWorkspace(keyed(with(t.Context(), as), key), &servov1.CreateWorkspaceRequest{Tenant: tenant, Name: name}, grpc.Header(&md))
		return made, md, err
	}

	t.Run("each tenant has keys of its own", func(t *testing.T) {
		t.Parallel()
		one, _, err := create(acme, "shared", "acme", "w1")
		require.NoError(t, err)
		two, md, err := create(brick, "shared", "brick", "w1")
		require.NoError(t, err)
		require.False(t, replayed(md))
		require.NotEqual(t, one.GetId(), two.GetId())
	})

	t.Run("a key that was used for another request is a conflict", func(t *testing.T) {
		t.Parallel()
		_, _, err := create(acme, "used", "acme", "w2")
		require.NoError(t, err)
		_, _, err = create(acme, "used", "acme", "w3")
		requireRefused(t, err, codes.FailedPrecondition, "idempotency_key")
		err = g.conn.Invoke(keyed(with(t.Context(), acme), "used"), servov1.TemplateService_SetTemplate_FullMethodName,
			&servov1.SetTemplateRequest{Tenant: "acme", Name: "t", Cron: "0 6 * * *"}, &servov1.SetTemplateResponse{})
		requireRefused(t, err, codes.FailedPrecondition, "idempotency_key")
	})

	t.Run("an answer is not returned to another caller", func(t *testing.T) {
		t.Parallel()
		_, _, err := create(acme, "mine", "acme", "w4")
		require.NoError(t, err)
		_, _, err = create(colleague, "mine", "acme", "w4")
		requireRefused(t, err, codes.FailedPrecondition, "idempotency_key")
	})

	t.Run("a refused call leaves its key free", func(t *testing.T) {
		t.Parallel()
		_, _, err := create(acme, "again", "acme", "default")
		require.Equal(t, codes.AlreadyExists, status.Code(err))
		_, md, err := create(acme, "again", "acme", "w5")
		require.NoError(t, err)
		require.False(t, replayed(md))
	})

	t.Run("a day later it is a new key", func(t *testing.T) {
		t.Parallel()
		_, _, err := create(acme, "old", "acme", "w6")
		require.NoError(t, err)
		g.db.Exec(t, `UPDATE servo.answered_calls SET created_at = created_at - interval '24 hours' WHERE key = 'old'`)
		_, md, err := create(acme, "old", "acme", "w7")
		require.NoError(t, err)
		require.False(t, replayed(md))
		_, md, err = create(acme, "old", "acme", "w7")
		require.NoError(t, err)
		require.True(t, replayed(md))
	})

	t.Run("what is no key is refused", func(t *testing.T) {
		t.Parallel()
		for _, bad := range []string{"", strings.Repeat("k", 256)} {
			_, _, err := create(acme, bad, "acme", "w8")
			requireRefused(t, err, codes.InvalidArgument, "idempotency_key")
		}
		_, err := workspaces.CreateWorkspace(keyed(keyed(with(t.Context(), acme), "a"), "b"), &servov1.CreateWorkspaceRequest{Tenant: "acme", Name: "w8"})
		requireRefused(t, err, codes.InvalidArgument, "idempotency_key")
	})

	t.Run("reads take no notice of it", func(t *testing.T) {
		t.Parallel()
		for _, key := range []string{"read", "read", strings.Repeat("k", 256)} {
			md := metadata.MD{}
			_, err := workspaces.GetTenant(keyed(with(t.Context(), acme), key), &servov1.GetTenantRequest{Tenant: "acme"}, grpc.Header(&md))
			require.NoError(t, err)
			require.False(t, replayed(md))
		}
		require.Zero(t, g.answered(t, "read"))
	})

	t.Run("over REST a repeat is marked, and a secret is shown once", func(t *testing.T) {
		t.Parallel()
		post := func() (http.Header, string) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.web.URL+"/v1/tenants/acme/keys", strings.NewReader(`{"name": "rest", "role": "viewer"}`))
			require.NoError(t, err)
			for name, value := range map[string]string{"Authorization": "Bearer " + acme, "Content-Type": "application/json", "Idempotency-Key": "rest"} {
				req.Header.Set(name, value)
			}
			return do(t, req)
		}
		header, body := post()
		require.Empty(t, header.Get("Idempotency-Replayed"))
		require.Contains(t, body, `"secret":"sk_`)
		header, body = post()
		require.Equal(t, "true", header.Get("Idempotency-Replayed"))
		require.Contains(t, body, `"name":"rest"`)
		require.NotContains(t, body, "sk_")
		require.Zero(t, g.db.Count(t, `SELECT count(*) FROM servo.answered_calls WHERE position('sk_'::bytea IN answer) > 0`))
	})
}

func do(t testing.TB, req *http.Request) (http.Header, string) {
	t.Helper()
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, answer.Body.Close()) }()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.Header, string(body)
}

// within makes a keyed CreateTenant whose handler is another one.
func within(ctx context.Context, b *bundle, key, name string, handler func(ctx context.Context) (any, error)) (any, error) {
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("idempotency-key", key))
	return b.server.Unary()(ctx, &servov1.CreateTenantRequest{Name: name}, &grpc.UnaryServerInfo{FullMethod: servov1.TenantService_CreateTenant_FullMethodName},
		func(ctx context.Context, _ any) (any, error) { return handler(ctx) })
}

func TestFailedCallsLeaveNothing(t *testing.T) {
	t.Parallel()
	b := setupBare(t, engine.Config{})
	create := func(ctx context.Context, name string) (any, error) {
		made, err := b.engine.CreateTenant(ctx, name, event.Meta{Actor: "test"})
		return &servov1.Tenant{Id: made.String(), Name: name}, err
	}
	nothing := func(t *testing.T, key, name string) {
		t.Helper()
		require.Zero(t, b.tenantsNamed(t, name), "no effect")
		require.Zero(t, b.answered(t, key), "no key")
		made, err := b.tenants.CreateTenant(keyed(t.Context(), key), &servov1.CreateTenantRequest{Name: name})
		require.NoError(t, err, "the key can be used again")
		require.Equal(t, name, made.GetName())
		require.Equal(t, 1, b.tenantsNamed(t, name))
		require.Equal(t, 1, b.answered(t, key))
	}
	t.Run("a panic after the effect", func(t *testing.T) { //nolint:paralleltest // connections are counted
		_, err := within(t.Context(), b, "panic", "panic", func(ctx context.Context) (any, error) {
			_, err := create(ctx, "panic")
			require.NoError(t, err)
			panic("after the effect")
		})
		require.Equal(t, codes.Internal, status.Code(err))
		require.Zero(t, b.db.PoolStats().Acquired, "the connection was given back")
		nothing(t, "panic", "panic")
	})
	t.Run("an error after the effect", func(t *testing.T) { //nolint:paralleltest // connections are counted
		_, err := within(t.Context(), b, "error", "error", func(ctx context.Context) (any, error) {
			_, err := create(ctx, "error")
			require.NoError(t, err)
			return nil, errors.New("after the effect")
		})
		require.Equal(t, codes.Internal, status.Code(err))
		require.Zero(t, b.db.PoolStats().Acquired, "the connection was given back")
		nothing(t, "error", "error")
	})
	t.Run("a caller who has gone", func(t *testing.T) { //nolint:paralleltest // connections are counted
		ctx, cancel := context.WithCancel(t.Context())
		_, err := within(ctx, b, "gone", "gone", func(ctx context.Context) (any, error) {
			defer cancel()
			return create(ctx, "gone")
		})
		require.Equal(t, codes.Canceled, status.Code(err))
		require.Zero(t, b.db.PoolStats().Acquired, "the connection was given back")
		nothing(t, "gone", "gone")
	})
	t.Run("a connection that is killed between the effect and the commit", func(t *testing.T) { //nolint:paralleltest // connections are counted
		_, err := within(t.Context(), b, "killed", "killed", func(ctx context.Context) (any, error) {
			answer, err := create(ctx, "killed")
			b.db.Exec(t, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`)
			return answer, err
		})
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.Eventually(t, func() bool { return b.db.PoolStats().Acquired == 0 }, waitLong, waitShort, "the connection was given back")
		nothing(t, "killed", "killed")
	})
	verifytest.Clean(t, b.db)
}

func TestTwins(t *testing.T) {
	t.Parallel()
	b := setupBare(t, engine.Config{})
	create := func(ctx context.Context, name string) (any, error) {
		made, err := b.engine.CreateTenant(ctx, name, event.Meta{Actor: "test"})
		return &servov1.Tenant{Id: made.String(), Name: name}, err
	}

	t.Run("a twin has the answer of the first", func(t *testing.T) {
		t.Parallel()
		elsewhere, own := through(t, b.db, b.db.URL, 2)
		var twin *servov1.Tenant
		var failed error
		var done sync.WaitGroup
		first, err := within(t.Context(), b, "twin", "twin", func(ctx context.Context) (any, error) {
			answer, err := create(ctx, "twin")
			require.NoError(t, err)
			before := own.PoolStats().AcquireCount
			done.Go(func() {
				twin, failed = servov1.NewTenantServiceClient(elsewhere).CreateTenant(keyed(t.Context(), "twin"), &servov1.CreateTenantRequest{Name: "twin"})
			})
			require.Eventually(t, func() bool { // it has looked, met the lock, and looked again
				return own.PoolStats().AcquireCount >= before+3
			}, waitLong, waitShort)
			return answer, nil
		})
		require.NoError(t, err)
		done.Wait()
		require.NoError(t, failed)
		require.True(t, proto.Equal(first.(*servov1.Tenant), twin)) //nolint:forcetypeassert // made above
		require.Equal(t, 1, b.tenantsNamed(t, "twin"))
	})

	t.Run("a twin whose patience is over is asked to repeat the call", func(t *testing.T) {
		t.Parallel()
		impatient := newReplica(t, b, api.Options{})
		impatient.server.SetPatience(time.Millisecond)
		_, err := within(t.Context(), b, "slow", "slow", func(ctx context.Context) (any, error) {
			answer, err := create(ctx, "slow")
			require.NoError(t, err)
			_, twin := servov1.NewTenantServiceClient(impatient).CreateTenant(keyed(t.Context(), "slow"), &servov1.CreateTenantRequest{Name: "slow"})
			p := requireRefused(t, twin, codes.FailedPrecondition, "idempotency_key")
			require.Positive(t, p.GetRetryAfter().AsDuration())
			return answer, nil
		})
		require.NoError(t, err)
		require.Equal(t, 1, b.tenantsNamed(t, "slow"))
	})

	t.Run("what another has done in between is not done again", func(t *testing.T) {
		t.Parallel()
		for name, effect := range map[string]func(ctx context.Context) (any, error){
			"between-effect": func(ctx context.Context) (any, error) { return create(ctx, "never") },
			"between-look":   func(context.Context) (any, error) { return nil, errors.New("it already exists") },
			"between-keep":   func(context.Context) (any, error) { return &servov1.Tenant{Name: "never"}, nil },
		} {
			var other *servov1.Tenant
			got, err := within(t.Context(), b, name, name, func(ctx context.Context) (any, error) {
				var err error
				other, err = b.tenants.CreateTenant(keyed(t.Context(), name), &servov1.CreateTenantRequest{Name: name})
				require.NoError(t, err)
				return effect(ctx)
			})
			require.NoError(t, err, name)
			require.True(t, proto.Equal(other, got.(*servov1.Tenant)), name) //nolint:forcetypeassert // made above
		}
		require.Zero(t, b.tenantsNamed(t, "never"))
	})
}

// TestCommitsThatAreCut cuts the connection at each commit of a call in turn.
func TestCommitsThatAreCut(t *testing.T) {
	t.Parallel()
	b := setupBare(t, engine.Config{})
	proxy := servotest.Proxy(t, b.db.URL)
	server, own := through(t, b.db, proxy.URL, 4)
	tenants := servov1.NewTenantServiceClient(server)
	for _, fate := range []servotest.Fate{servotest.CutBefore, servotest.CutAfter} {
		for nth := 1; nth <= 4; nth++ {
			name := fmt.Sprintf("cut-%d-%d", fate, nth)
			var mu sync.Mutex
			n := 0
			proxy.OnCommit(func() servotest.Fate {
				mu.Lock()
				defer mu.Unlock()
				if n++; n == nth {
					return fate
				}
				return servotest.Pass
			})
			req := &servov1.CreateTenantRequest{Name: name}
			first, err := tenants.CreateTenant(keyed(t.Context(), name), req)
			proxy.OnCommit(nil)
			if err != nil {
				require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
			}
			require.Equal(t, b.tenantsNamed(t, name), b.answered(t, name), "%s: never one without the other", name)
			if err == nil {
				require.Equal(t, 1, b.tenantsNamed(t, name))
			}
			require.Eventually(t, func() bool { return own.PoolStats().Acquired == 0 }, waitLong, waitShort)
			again, err := tenants.CreateTenant(keyed(t.Context(), name), req)
			require.NoError(t, err, name)
			if first != nil {
				require.True(t, proto.Equal(first, again))
			}
			require.Equal(t, 1, b.tenantsNamed(t, name))
			require.Equal(t, 1, b.answered(t, name))
		}
	}
	require.Positive(t, proxy.Cuts())
}

// TestKeysCostFewStatements counts what a key adds to a call: the look before it, the lock and
// the look under it, and the row of the answer.
func TestKeysCostFewStatements(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server, own := through(t, b.db, b.db.URL, 2)
	cost := func(ctx context.Context, name string) store.Stats {
		before := own.Stats()
		_, err := servov1.NewTenantServiceClient(server).CreateWorkspace(ctx, &servov1.CreateWorkspaceRequest{Tenant: "acme", Name: name})
		require.NoError(t, err)
		after := own.Stats()
		return store.Stats{Transactions: after.Transactions - before.Transactions, Statements: after.Statements - before.Statements}
	}
	cost(t.Context(), "first") // names of tenants are remembered
	plain, first, again := cost(t.Context(), "plain"), cost(keyed(t.Context(), "k"), "keyed"), cost(keyed(t.Context(), "k"), "keyed")
	t.Logf("without a key %+v, with one %+v, repeated %+v", plain, first, again)
	require.LessOrEqual(t, first.Statements-plain.Statements, int64(6))
	require.LessOrEqual(t, first.Transactions, plain.Transactions, "what it reads after its effect is in the same transaction")
	require.Less(t, again.Statements, plain.Statements)
}

func TestFewConnections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server, own := through(t, b.db, b.db.URL, 2)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			ctx := keyed(t.Context(), fmt.Sprintf("few-%d", i))
			if _, err := servov1.NewTenantServiceClient(server).CreateWorkspace(ctx, &servov1.CreateWorkspaceRequest{Tenant: "acme", Name: fmt.Sprintf("few-%d", i)}); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 20, b.db.Count(t, `SELECT count(*) FROM servo.workspaces WHERE name LIKE 'few-%'`))
	require.Zero(t, own.PoolStats().Acquired)
}
