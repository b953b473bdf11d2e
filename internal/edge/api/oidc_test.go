package api_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/issuer"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/edge/oidc"
)

// trusting is a server that trusts an issuer, which puts any values into the claim groups:
// each value is a grant, such as admin@acme or viewer@acme/dev.
type trusting struct {
	*guarded

	issuer *issuer.Issuer
}

func setupTrusting(t testing.TB) *trusting {
	t.Helper()
	i := issuer.New(t)
	return &trusting{guarded: (&guarded{bundle: setup(t)}).another(t, trustIssuer(t, i)), issuer: i}
}

func trustIssuer(t testing.TB, i *issuer.Issuer) func(*api.Options) {
	t.Helper()
	one := oidc.Issuer{URL: i.URL, Audiences: []string{issuer.Audience}, Algorithms: []string{"RS256", "ES256"}, Subject: "sub"}
	for _, role := range access.Roles() {
		for _, tenant := range []string{"acme", "brick", "later"} {
			for _, workspace := range []string{"", "default", "dev"} {
				value := strings.TrimSuffix(fmt.Sprintf("%s@%s/%s", role, tenant, workspace), "/")
				one.Rules = append(one.Rules, oidc.Rule{Claim: "groups", Value: value, Grant: access.Grant{Role: role, Tenant: tenant, Workspace: workspace}})
			}
		}
	}
	one.Rules = append(one.Rules, oidc.Rule{Claim: "groups", Value: "platform", Grant: access.Grant{Role: access.Platform}})
	v, err := oidc.NewVerifier(oidc.Settings{Issuers: []oidc.Issuer{one}}, oidc.Options{})
	require.NoError(t, err)
	t.Cleanup(v.Stop)
	return func(c *api.Options) { c.Tokens = v }
}

// token is one of a person with these grants.
func (g *trusting) token(t testing.TB, name string, grants ...string) string {
	t.Helper()
	return g.issuer.Token(t, map[string]any{"sub": name, "groups": grants})
}

// bearer makes a request over HTTP.
func (g *guarded) bearer(t testing.TB, path, token string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.web.URL+path, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text), answer.Header
}

func TestTokens(t *testing.T) {
	t.Parallel()
	g := setupTrusting(t)
	runs := servov1.NewRunServiceClient(g.conn)
	list := func(token, tenant string) error {
		_, err := runs.ListRuns(with(t.Context(), token), &servov1.ListRunsRequest{Tenant: tenant})
		return err
	}

	t.Run("a token authenticates, over gRPC and over REST", func(t *testing.T) {
		t.Parallel()
		token := g.token(t, "jo", "viewer@acme")
		require.NoError(t, list(token, "acme"))
		code, body, _ := g.bearer(t, "/v1/tenants/acme/runs", token)
		require.Equal(t, http.StatusOK, code, body)
	})

	t.Run("keys work as before", func(t *testing.T) {
		t.Parallel()
		key, _ := g.key(t, "acme", access.Settings{Role: access.Viewer})
		require.NoError(t, list(key, "acme"))
	})

	t.Run("who has grants in two tenants sees both, a page at a time, and no other", func(t *testing.T) {
		t.Parallel()
		ctx := with(t.Context(), g.token(t, "jo", "viewer@brick", "admin@later", "viewer@acme/dev"))
		tenants := servov1.NewTenantServiceClient(g.conn)
		all, err := tenants.ListTenants(ctx, &servov1.ListTenantsRequest{})
		require.NoError(t, err)
		require.Len(t, all.GetTenants(), 2, "later does not exist yet")
		require.Empty(t, all.GetNextPageToken())
		first, err := tenants.ListTenants(ctx, &servov1.ListTenantsRequest{PageSize: 1})
		require.NoError(t, err)
		require.Equal(t, "acme", first.GetTenants()[0].GetName())
		second, err := tenants.ListTenants(ctx, &servov1.ListTenantsRequest{PageSize: 1, PageToken: first.GetNextPageToken()})
		require.NoError(t, err)
		require.Equal(t, "brick", second.GetTenants()[0].GetName())
		require.Empty(t, second.GetNextPageToken())
	})

	t.Run("a caller gets its identity, its grants, and their expiry", func(t *testing.T) {
		t.Parallel()
		me, err := servov1.NewKeyServiceClient(g.conn).WhoAmI(with(t.Context(), g.token(t, "jo", "viewer@brick", "operator@acme/dev")), &servov1.WhoAmIRequest{})
		require.NoError(t, err)
		require.Equal(t, "oidc/jo", me.GetActor())
		require.NotNil(t, me.GetExpiresAt())
		require.Len(t, me.GetGrants(), 2)
		require.Contains(t, []string{"acme", "brick"}, me.GetTenant())
		code, body, _ := g.bearer(t, "/v1/whoami", g.token(t, "op", "platform"))
		require.Equal(t, http.StatusOK, code, body)
		require.Contains(t, body, `"role":"platform"`)
	})

	t.Run("a known person without a grant gets 403, and is in the audit", func(t *testing.T) {
		t.Parallel()
		token := g.token(t, "missing")
		err := list(token, "acme")
		require.Equal(t, codes.PermissionDenied, status.Code(err))
		require.Contains(t, problemOf(t, err).GetRemedy(), "ask the operator for a grant")
		code, body, _ := g.bearer(t, "/v1/tenants/none/runs", token)
		require.Equal(t, http.StatusForbidden, code, body)
		_, err = runs.TriggerRun(with(t.Context(), token), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "single"})
		require.Equal(t, codes.PermissionDenied, status.Code(err))
		rows := g.auditOf(t, "oidc/missing", "")
		require.Len(t, rows, 1)
		require.False(t, rows[0].GetAllowed())
	})

	t.Run("a grant of one workspace does not leave it, and several add up", func(t *testing.T) {
		t.Parallel()
		in := func(token, workspace string) error {
			_, err := runs.ListRuns(with(t.Context(), token), &servov1.ListRunsRequest{Tenant: "acme", Workspace: workspace})
			return err
		}
		one := g.token(t, "one", "operator@acme/dev")
		require.NoError(t, in(one, "dev"))
		require.Equal(t, codes.PermissionDenied, status.Code(in(one, "default")))
		require.Equal(t, codes.PermissionDenied, status.Code(in(one, "")))
		run := g.trigger(t, "single")
		get := func(token string) error {
			_, err := runs.GetRun(with(t.Context(), token), &servov1.GetRunRequest{Tenant: "acme", Run: run.GetId()})
			return err
		}
		require.Equal(t, codes.NotFound, status.Code(get(one)))
		both := g.token(t, "both", "operator@acme/dev", "viewer@acme/default")
		require.NoError(t, in(both, "default"))
		require.NoError(t, get(both))
		_, err := runs.CancelRun(with(t.Context(), both), &servov1.CancelRunRequest{Tenant: "acme", Run: run.GetId()})
		require.Equal(t, codes.NotFound, status.Code(err), "a viewer there")
	})

	t.Run("changes of a person are in the audit of the tenant, by name, and in the events", func(t *testing.T) {
		t.Parallel()
		token := g.token(t, "boss@example.com", "admin@acme", "operator@brick")
		_, err := servov1.NewTenantServiceClient(g.conn).CreateWorkspace(with(t.Context(), token), &servov1.CreateWorkspaceRequest{Tenant: "acme", Name: "made"})
		require.NoError(t, err)
		_, err = servov1.NewTenantServiceClient(g.conn).CreateWorkspace(with(t.Context(), token), &servov1.CreateWorkspaceRequest{Tenant: "brick", Name: "made"})
		require.Equal(t, codes.PermissionDenied, status.Code(err))
		done := g.auditOf(t, "oidc/boss@example.com", "acme")
		require.Len(t, done, 1)
		require.True(t, done[0].GetAllowed())
		denied := g.auditOf(t, "oidc/boss@example.com", "brick")
		require.Len(t, denied, 1)
		require.Equal(t, "FORBIDDEN", denied[0].GetCode())
		answer, err := runs.TriggerRun(with(t.Context(), token), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "single"})
		require.NoError(t, err)
		events, err := g.runs.WatchRun(t.Context(), &servov1.WatchRunRequest{Tenant: "acme", Run: answer.GetRun().GetId()})
		require.NoError(t, err)
		first, err := events.Recv()
		require.NoError(t, err)
		require.Equal(t, "oidc/boss@example.com", first.GetEvent().GetActor())
	})

	t.Run("a grant of the platform is for everything, figures included", func(t *testing.T) {
		t.Parallel()
		token := g.token(t, "op", "platform")
		require.NoError(t, list(token, "brick"))
		_, err := servov1.NewStatusServiceClient(g.conn).GetStatus(with(t.Context(), token), &servov1.GetStatusRequest{})
		require.NoError(t, err)
		require.NoError(t, g.api.Operator(t.Context(), "/metrics", []string{"Bearer " + token}, nil))
		require.Error(t, g.api.Operator(t.Context(), "/metrics", []string{"Bearer " + g.token(t, "jo", "admin@acme")}, nil))
	})

	t.Run("a stream ends when its token does", func(t *testing.T) {
		t.Parallel()
		run := g.trigger(t, "diamond")
		token := g.issuer.Token(t, map[string]any{"groups": []string{"viewer@acme"}, "exp": time.Now().Add(3 * time.Second).Unix()})
		stream, err := runs.WatchRun(with(t.Context(), token), &servov1.WatchRunRequest{Tenant: "acme", Run: run.GetId()})
		require.NoError(t, err)
		seen := 0
		for err == nil {
			if _, err = stream.Recv(); err == nil {
				seen++
			}
		}
		require.Positive(t, seen)
		require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
		require.Equal(t, codes.Unauthenticated, status.Code(list(token, "acme")))
	})
}

// auditOf is what the audit of a tenant, or of the installation, has of an actor.
func (g *guarded) auditOf(t testing.TB, actor, tenant string) []*servov1.AuditEntry {
	t.Helper()
	answer, err := servov1.NewAuditServiceClient(g.bundle.conn).ListAudit(t.Context(), &servov1.ListAuditRequest{Tenant: tenant, Actor: actor})
	require.NoError(t, err)
	return answer.GetEntries()
}

func TestRefusedTokens(t *testing.T) {
	t.Parallel()
	g := setupTrusting(t)
	key := g.issuer.RotateRSA(t)
	other := issuer.New(t)
	granted := func(changes map[string]any) map[string]any {
		changes["groups"] = []string{"platform"}
		return changes
	}
	public, err := x509.MarshalPKIXPublicKey(key.Private.Public())
	require.NoError(t, err)
	named := map[jose.HeaderKey]any{"kid": key.ID, "typ": "JWT"}
	claims := g.issuer.Claims(granted(map[string]any{}))
	good := g.issuer.Token(t, granted(map[string]any{}))
	list := func(md ...string) error {
		_, err := servov1.NewRunServiceClient(g.conn).ListRuns(metadata.AppendToOutgoingContext(t.Context(), md...), &servov1.ListRunsRequest{Tenant: "acme"})
		return err
	}
	require.NoError(t, list("authorization", "Bearer "+good))

	byGRPC, byREST := map[string]bool{}, map[string]bool{}
	plain := func(body string) string {
		return regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).ReplaceAllString(body, "ID")
	}
	for name, token := range map[string]string{
		"wrong audience":   g.issuer.Token(t, granted(map[string]any{"aud": "elsewhere"})),
		"expired":          g.issuer.Token(t, granted(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})),
		"not yet valid":    g.issuer.Token(t, granted(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()})),
		"alg none":         issuer.Unsigned(t, map[string]any{"alg": "none", "kid": key.ID}, claims),
		"confused by PEM":  issuer.Sign(t, jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), named, claims),
		"confused by DER":  issuer.Sign(t, jose.HS256, public, named, claims),
		"unknown kid":      issuer.Sign(t, jose.RS256, key.Private, map[jose.HeaderKey]any{"kid": "who"}, claims),
		"another's key":    issuer.Sign(t, jose.ES256, other.Key().Private, named, claims),
		"another's token":  other.Token(t, granted(map[string]any{})),
		"huge":             g.issuer.Token(t, map[string]any{"groups": strings.Repeat("x", 17<<10)}),
		"no token at all":  "a.b.c",
		"nothing":          "",
		"an unknown key":   "sk_0123456789abcdef_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"without its name": g.issuer.Token(t, granted(map[string]any{"sub": nil})),
	} {
		err := list("authorization", "Bearer "+token)
		require.Equal(t, codes.Unauthenticated, status.Code(err), "%s: %v", name, err)
		byGRPC[protojson.Format(problemOf(t, err))] = true
		code, body, header := g.bearer(t, "/v1/tenants/acme/runs", token)
		require.Equal(t, http.StatusUnauthorized, code, "%s: %s", name, body)
		require.Equal(t, "Bearer", header.Get("WWW-Authenticate"))
		byREST[plain(body)] = true
	}
	err = list("x-api-key", good)
	require.Equal(t, codes.Unauthenticated, status.Code(err), "a token is no key")
	byGRPC[protojson.Format(problemOf(t, err))] = true
	require.Len(t, byGRPC, 1, "all of them get the same answer")
	require.Len(t, byREST, 1, "all of them get the same answer")
	require.NoError(t, list("authorization", "Bearer "+good))

	t.Run("the log has the reason, and no token", func(t *testing.T) {
		t.Parallel()
		var reasons []string
		for _, line := range g.log.with("authentication failed") {
			reasons = append(reasons, line["reason"])
			require.NotContains(t, fmt.Sprint(line), "eyJ")
		}
		all := strings.Join(reasons, "\n")
		for _, why := range []string{"is for", "expired", "nbf", "no key", "no trusted issuer", "too long"} {
			require.Contains(t, all, why)
		}
	})

	t.Run("an issuer that cannot be reached is no reason to refuse: it is 503, with a time", func(t *testing.T) {
		t.Parallel()
		away := issuer.New(t)
		away.Down(true)
		server := g.another(t, trustIssuer(t, away))
		code, body, header := server.bearer(t, "/v1/tenants/acme/runs", away.Token(t, nil))
		require.Equal(t, http.StatusServiceUnavailable, code, body)
		require.NotEmpty(t, header.Get("Retry-After"))
		key, _ := g.key(t, "acme", access.Settings{Role: access.Viewer})
		code, body, _ = server.bearer(t, "/v1/tenants/acme/runs", key)
		require.Equal(t, http.StatusOK, code, body)
	})

	t.Run("a server without issuers accepts no token", func(t *testing.T) {
		t.Parallel()
		code, body, _ := g.another(t).bearer(t, "/v1/tenants/acme/runs", good)
		require.Equal(t, http.StatusUnauthorized, code)
		require.True(t, byREST[plain(body)])
	})
}

// TestPersonGrid makes every call as a person with grants in two tenants: each is as open as
// that grant alone, and a third is answered like one that does not exist.
func TestPersonGrid(t *testing.T) {
	t.Parallel()
	g := setupTrusting(t)
	_, err := g.tenants.CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "cargo"})
	require.NoError(t, err)
	roles := map[string]access.Role{"acme": access.Operator, "brick": access.TenantAdmin}
	token := g.token(t, "jo", "operator@acme", "admin@brick")
	plain := func(text, name string) string {
		return regexp.MustCompile(`[0-9a-f-]{36}`).ReplaceAllString(strings.ReplaceAll(text, name, "NAME"), "ID")
	}
	for _, method := range methods(t) {
		m := access.Methods()[pathOf(method)]
		call := func(t testing.TB, tenant string) error {
			t.Helper()
			req := request(t, method, tenant)
			if claim, ok := req.(*servov1.ClaimRequest); ok {
				claim.Wait = durationpb.New(0)
			}
			return g.call(t, method, req, token)
		}
		t.Run(string(method.Name()), func(t *testing.T) {
			t.Parallel()
			for tenant, role := range roles {
				err := call(t, tenant)
				may := (m.Scope == access.OfTenant || m.Scope == access.OfAnyCaller) && role.Has(m.Permission)
				if m.Scope == access.OfAnyCaller || method.Input().Fields().ByName("tenant") != nil {
					require.Equal(t, may, status.Code(err) != codes.PermissionDenied, "%s in %s: %v", role, tenant, err)
				}
				require.NotContains(t, []codes.Code{codes.Unauthenticated, codes.Internal, codes.Unknown}, status.Code(err), "%v", err)
			}
			if m.Scope != access.OfTenant {
				return
			}
			problems := map[string]string{}
			for _, name := range []string{"cargo", "missing"} {
				err := call(t, name)
				require.Equal(t, codes.NotFound, status.Code(err), "%v", err)
				problems[name] = plain(protojson.Format(problemOf(t, err)), name)
			}
			require.Equal(t, problems["cargo"], problems["missing"])
		})
	}
}
