package api_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/edge/rest"
)

// guarded is a server that asks for keys, beside the open one of the bundle, which makes them.
type guarded struct {
	*bundle

	api  *api.Server
	conn *grpc.ClientConn
	web  *httptest.Server
}

func setupGuarded(t testing.TB) *guarded {
	t.Helper()
	g := &guarded{bundle: setup(t)}
	return g.another(t)
}

// another is one more server on the same database.
func (g *guarded) another(t testing.TB, changes ...func(*api.Options)) *guarded {
	t.Helper()
	config := api.Options{Store: g.db.Store, Engine: g.engine, Name: "guarded", Logger: slog.New(g.log)}
	for _, change := range changes {
		change(&config)
	}
	made := api.New(config)
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(made.Unary()), grpc.ChainStreamInterceptor(made.Stream()))
	made.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	handler, err := rest.New(made, nil)
	require.NoError(t, err)
	web := httptest.NewServer(handler)
	t.Cleanup(func() {
		made.Close()
		require.NoError(t, conn.Close())
		server.Stop()
		require.NoError(t, <-served)
		web.Close()
	})
	return &guarded{bundle: g.bundle, api: made, conn: conn, web: web}
}

// key makes a key of a tenant, or of the installation if it has no name.
func (g *guarded) key(t testing.TB, tenant string, settings access.Settings) (text string, made access.Key) {
	t.Helper()
	var owner id.Tenant
	if tenant != "" {
		var err error
		owner, err = g.db.TenantByName(t.Context(), tenant)
		require.NoError(t, err)
	}
	if settings.Name == "" {
		settings.Name = "k" + strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	made, secret, err := g.engine.CreateAPIKey(t.Context(), owner, settings, 0, event.Meta{Actor: "test"})
	require.NoError(t, err)
	return secret.Text(), made
}

// roleKey makes a key with a role, of acme if it is a role of a tenant.
func (g *guarded) roleKey(t testing.TB, role access.Role) string {
	t.Helper()
	tenant, settings := "acme", access.Settings{Role: role}
	if role == access.Platform || role == access.Worker || role == access.Tick {
		tenant = ""
	}
	if role == access.Worker {
		settings.Pools = []string{"default"}
	}
	text, _ := g.key(t, tenant, settings)
	return text
}

func with(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key)
}

func pathOf(method protoreflect.MethodDescriptor) string {
	return fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
}

// request makes a request of a method that reaches its handler.
func request(t testing.TB, method protoreflect.MethodDescriptor, tenant string) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	require.NoError(t, err)
	return filled(kind.New(), tenant)
}

// newAnswer is room for the answer of a method.
func newAnswer(t testing.TB, method protoreflect.MethodDescriptor) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	require.NoError(t, err)
	return kind.New().Interface()
}

// call makes any call with a key.
func (g *guarded) call(t testing.TB, method protoreflect.MethodDescriptor, req proto.Message, key string) error {
	t.Helper()
	ctx, cancel := context.WithCancel(with(t.Context(), key))
	defer cancel()
	if !method.IsStreamingServer() {
		return g.conn.Invoke(ctx, pathOf(method), req, newAnswer(t, method))
	}
	stream, err := g.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, pathOf(method))
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(req))
	require.NoError(t, stream.CloseSend())
	return stream.RecvMsg(newAnswer(t, method))
}

func TestEveryCallHasItsPermission(t *testing.T) {
	t.Parallel()
	known := access.Methods()
	for _, method := range methods(t) {
		m, ok := known[pathOf(method)]
		require.True(t, ok, "%s is in no table of access.Methods: no caller may use it", pathOf(method))
		delete(known, pathOf(method))
		hasTenant := method.Input().Fields().ByName("tenant") != nil
		if m.Scope == access.OfTenant {
			require.True(t, hasTenant, "%s names no tenant, and cannot be of one", method.Name())
		}
		if m.Within == access.Named || m.Within == access.Filtered {
			require.NotNil(t, method.Input().Fields().ByName("workspace"), "%s names no workspace", method.Name())
		}
		if m.Within == access.ByRun {
			require.NotNil(t, method.Input().Fields().ByName("run"), "%s names no run", method.Name())
		}
	}
	require.Empty(t, known, "there are no such calls")
}

// TestRoleGrid makes every call with every role.
func TestRoleGrid(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	ladder := []access.Role{access.Viewer, access.Operator, access.Developer, access.TenantAdmin}
	for _, role := range access.Roles() {
		t.Run(string(role)+" may do what the table lists and nothing else", func(t *testing.T) {
			t.Parallel()
			key := g.roleKey(t, role)
			for _, method := range methods(t) {
				m := access.Methods()[pathOf(method)]
				may := false
				switch {
				case role == access.Platform:
					may = true
				case role == access.Worker:
					may = m.Scope == access.OfWorker || m.Workers
				case role == access.Tick:
					may = method.Name() == "Tick" || method.Name() == "WhoAmI"
				case m.Scope == access.OfTenant || m.Scope == access.OfAnyCaller:
					for _, weaker := range ladder {
						may = may || weaker.Has(m.Permission)
						if weaker == role {
							break
						}
					}
				}
				req := request(t, method, "acme")
				if claim, ok := req.(*servov1.ClaimRequest); ok {
					claim.Wait = durationpb.New(0)
				}
				err := g.call(t, method, req, key)
				code := status.Code(err)
				if may {
					require.NotContains(t, []codes.Code{codes.Unauthenticated, codes.PermissionDenied, codes.Internal, codes.Unknown}, code, "%s: %v", method.Name(), err)
					continue
				}
				require.Equal(t, codes.PermissionDenied, code, "%s: %v", method.Name(), err)
				values := problemOf(t, err).GetValues().AsMap()
				require.Equal(t, string(m.Permission), values["permission"], method.Name())
				require.True(t, access.Role(fmt.Sprint(values["role"])).Has(m.Permission), method.Name())
			}
		})
	}
}

// TestTenantGrid makes every call that names a tenant with a key of another one: what comes back
// is what comes back for a tenant that does not exist.
func TestTenantGrid(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	plain := func(text, name string) string {
		return regexp.MustCompile(`[0-9a-f-]{36}`).ReplaceAllString(strings.ReplaceAll(text, name, "NAME"), "ID")
	}
	for _, role := range []access.Role{access.Viewer, access.TenantAdmin, access.Worker} {
		key, _ := g.key(t, "acme", access.Settings{Role: access.TenantAdmin})
		if role == access.Viewer {
			key, _ = g.key(t, "acme", access.Settings{Role: role})
		}
		if role == access.Worker {
			_, err := servov1.NewPoolServiceClient(g.bundle.conn).CreatePool(t.Context(), &servov1.CreatePoolRequest{Name: "own", Kind: servov1.Pool_PULL, Owner: "acme"})
			require.NoError(t, err)
			key, _ = g.key(t, "acme", access.Settings{Role: role, Pools: []string{"own"}})
		}
		for _, method := range methods(t) {
			m := access.Methods()[pathOf(method)]
			if method.Input().Fields().ByName("tenant") == nil || m.Scope == access.OfAnyCaller {
				continue
			}
			t.Run(fmt.Sprintf("%s by a %s of another tenant over gRPC", method.Name(), role), func(t *testing.T) {
				t.Parallel()
				problems := map[string]string{}
				for _, name := range []string{"brick", "missing"} {
					req := request(t, method, name)
					err := g.call(t, method, req, key)
					want := codes.NotFound
					if m.Scope == access.OfPlatform {
						want = codes.PermissionDenied
					}
					require.Equal(t, want, status.Code(err), "%v", err)
					problems[name] = plain(protojson.Format(problemOf(t, err)), name)
				}
				require.Equal(t, problems["brick"], problems["missing"])
			})
			for i, rule := range rulesOf(method) {
				verb, path := ruleOf(rule)
				if !strings.Contains(path, "{tenant}") {
					continue
				}
				t.Run(fmt.Sprintf("%s by a %s of another tenant over REST %d", method.Name(), role, i), func(t *testing.T) {
					t.Parallel()
					problems := map[string]string{}
					for _, name := range []string{"brick", "missing"} {
						code, body, _ := g.rest(t, verb, strings.ReplaceAll(path, "{tenant}", name), rule.GetBody() != "", key)
						want := http.StatusNotFound
						if m.Scope == access.OfPlatform {
							want = http.StatusForbidden
						}
						require.Equal(t, want, code, body)
						problems[name] = plain(body, name)
					}
					require.Equal(t, problems["brick"], problems["missing"])
				})
			}
		}
	}
}

func rulesOf(method protoreflect.MethodDescriptor) []*annotations.HttpRule {
	rule, _ := proto.GetExtension(method.Options(), annotations.E_Http).(*annotations.HttpRule)
	if rule == nil {
		return nil
	}
	return append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...)
}

// ruleOf is how a call is made over REST, with everything but the tenant in its place.
func ruleOf(rule *annotations.HttpRule) (verb, path string) {
	for verb, path := range map[string]string{
		"GET": rule.GetGet(), "POST": rule.GetPost(), "PUT": rule.GetPut(), "PATCH": rule.GetPatch(), "DELETE": rule.GetDelete(),
	} {
		if path == "" {
			continue
		}
		path = strings.NewReplacer("{asset=*/*}", "a/b", "{version}", "1").Replace(path)
		return verb, regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllStringFunc(path, func(variable string) string {
			if variable == "{tenant}" {
				return variable
			}
			return "0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10"
		})
	}
	return "", ""
}

// rest makes a request over HTTP.
func (g *guarded) rest(t testing.TB, verb, path string, body bool, key string) (int, string, http.Header) {
	t.Helper()
	var content io.Reader = http.NoBody
	if body {
		content = strings.NewReader("{}")
	}
	req, err := http.NewRequestWithContext(t.Context(), verb, g.web.URL+path, content)
	require.NoError(t, err)
	if body {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("X-Api-Key", key)
	}
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text), answer.Header
}

func TestRefusedKeys(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	acme, err := g.db.TenantByName(t.Context(), "acme")
	require.NoError(t, err)
	good, _ := g.key(t, "acme", access.Settings{Role: access.Viewer})
	list := func(g *guarded, md ...string) error {
		_, err := servov1.NewRunServiceClient(g.conn).ListRuns(metadata.AppendToOutgoingContext(t.Context(), md...), &servov1.ListRunsRequest{Tenant: "acme"})
		return err
	}
	bearer := func(key string) []string { return []string{"authorization", "Bearer " + key} }
	require.NoError(t, list(g, bearer(good)...))
	require.NoError(t, list(g, "authorization", "bearer  "+good))
	require.NoError(t, list(g, "x-api-key", good))

	unknown, err := access.NewSecret(rand.Reader)
	require.NoError(t, err)
	_, goodID, _ := strings.Cut(good, "_")
	goodID, _, _ = strings.Cut(goodID, "_")
	wrong := "sk_" + goodID + "_" + unknown.Text()[len("sk_0123456789abcdef_"):]
	revoked, made := g.key(t, "acme", access.Settings{Role: access.Viewer})
	_, err = g.engine.RevokeAPIKey(t.Context(), acme, made.Public, "lost", event.Meta{})
	require.NoError(t, err)
	_, old, err := g.engine.CreateAPIKey(t.Context(), acme, access.Settings{Name: "old", Role: access.Viewer}, time.Microsecond, event.Meta{})
	require.NoError(t, err)
	rotated, made := g.key(t, "acme", access.Settings{Role: access.Viewer})
	_, _, successor, err := g.engine.RotateAPIKey(t.Context(), acme, made.Public, 0, event.Meta{})
	require.NoError(t, err)
	require.NoError(t, list(g, bearer(successor.Text())...))

	answers := map[string]bool{}
	for reason, md := range map[string][]string{
		"the call has no API key":                nil,
		"the authorization scheme is not Bearer": {"authorization", "Basic " + good},
		"the call has several API keys":          {"authorization", "Bearer " + good, "x-api-key", good},
		"the credential is not an API key":       bearer("sk_nonsense"),
		"no key has this id":                     bearer(unknown.Text()),
		"the secret is wrong":                    bearer(wrong),
		"the key is REVOKED":                     bearer(revoked),
		"the key is EXPIRED":                     bearer(old.Text()),
	} {
		err := list(g, md...)
		require.Equal(t, codes.Unauthenticated, status.Code(err), reason)
		answers[protojson.Format(problemOf(t, err))] = true
		var reasons []string
		for _, line := range g.log.with("authentication failed") {
			reasons = append(reasons, line["reason"])
		}
		require.Contains(t, reasons, reason)
	}
	require.Equal(t, codes.Unauthenticated, status.Code(list(g, bearer(rotated)...)))
	require.Len(t, answers, 1, "all of them get the same answer")

	t.Run("over REST it is 401, with the way in; public paths need no key", func(t *testing.T) {
		t.Parallel()
		code, body, header := g.rest(t, "GET", "/v1/tenants/acme/runs", false, "")
		require.Equal(t, http.StatusUnauthorized, code)
		require.Equal(t, "Bearer", header.Get("WWW-Authenticate"))
		require.Equal(t, "application/problem+json", header.Get("Content-Type"))
		require.Contains(t, body, "/errors/unauthenticated")
		code, _, _ = g.rest(t, "GET", "/v1/tenants/acme/runs", false, good)
		require.Equal(t, http.StatusOK, code)
		code, _, _ = g.rest(t, "GET", "/openapi.json", false, "")
		require.Equal(t, http.StatusOK, code)
		code, _, _ = g.rest(t, "GET", "/v1/nothing", false, "")
		require.Equal(t, http.StatusNotFound, code)
		code, _, _ = g.rest(t, "GET", "/v1/alerts", false, good)
		require.Equal(t, http.StatusForbidden, code, "the installation is not a tenant's")
	})

	t.Run("a stream is refused too", func(t *testing.T) {
		t.Parallel()
		stream, err := servov1.NewRunServiceClient(g.conn).WatchRun(t.Context(), &servov1.WatchRunRequest{Tenant: "acme", Run: uuid.NewString()})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.Equal(t, codes.Unauthenticated, status.Code(err))
	})
	verifytest.Clean(t, g.db)
}
