package web

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/edge/web/view"
)

// visit is one request for a page or an action, with its caller and scope.
type visit struct {
	*http.Request

	ctx     context.Context //nolint:containedctx // of the calls to the API
	now     time.Time
	who     *servov1.Caller
	scope   view.Scope
	session session // zero on a server without login
}

// streamLife is the maximum duration of a stream: at most that of its session.
func (v *visit) streamLife() time.Duration {
	if v.session.Until.IsZero() {
		return streamLife
	}
	return min(streamLife, v.session.Until.Sub(v.now))
}

// limitTenant is the tenant whose limit of live pages the visit counts against; "" for platform
// visitors, who have none.
func (v *visit) limitTenant() string {
	if v.who.GetOpen() || v.everywhere() {
		return ""
	}
	return v.who.GetTenant()
}

// tenantsOffered is the number of tenants in the tenant menu; others are found by search.
const tenantsOffered = 100

// visit identifies the caller of a request and its tenant: the one in the path, else the one in
// the query, else the caller's own.
func (s *Web) visit(r *http.Request) (*visit, error) {
	now := s.now()
	var held session
	var err error
	if !s.options.Open {
		if held, err = s.sessions.of(r, now); err != nil {
			return nil, err
		}
		if held.Credential == "" || s.livePages.hasEnded(held.ID) {
			return nil, errLoggedOut
		}
	}
	v := &visit{Request: r, ctx: withCredential(r, held.Credential), now: now, session: held}
	if v.who, err = s.api.keys.WhoAmI(v.ctx, &servov1.WhoAmIRequest{}); err != nil {
		return nil, err
	}
	v.scope = view.Scope{Tenant: r.PathValue("tenant"), Fixed: len(v.tenants()) == 1, Workspace: v.who.GetWorkspace(), WorkspaceFixed: v.who.GetWorkspace() != ""}
	if v.scope.Tenant == "" {
		v.scope.Tenant = cleaned(r.URL.Query().Get("tenant"))
	}
	if v.scope.Tenant == "" {
		v.scope.Tenant = v.who.GetTenant()
	}
	if !v.scope.WorkspaceFixed {
		v.scope.Workspace = cleaned(r.URL.Query().Get("workspace"))
	}
	return v, nil
}

// withCredential is the context of calls with a credential, as the REST edge creates it.
func withCredential(r *http.Request, credential string) context.Context {
	md := metadata.MD{"x-request-id": {uuid.NewString()}}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		md.Set(intercept.RemoteAddress, host)
	}
	if credential != "" {
		md.Set("authorization", "Bearer "+credential)
	}
	return metadata.NewOutgoingContext(r.Context(), md)
}

// tenants are the tenants of a visitor who may not see all: one for a key, those of the grants
// for a token.
func (v *visit) tenants() (names []string) {
	if v.who.GetTenant() == "" {
		return nil
	}
	names = append(names, v.who.GetTenant())
	for _, g := range v.who.GetGrants() {
		if !slices.Contains(names, g.GetTenant()) {
			names = append(names, g.GetTenant())
		}
	}
	return names
}

// may reports whether the visitor has a permission in the tenant of the page. It only hides
// actions that the API would refuse.
func (v *visit) may(p access.Permission) bool {
	if v.who.GetOpen() || len(v.who.GetGrants()) == 0 || v.scope.Tenant == v.who.GetTenant() {
		return v.who.GetOpen() || slices.Contains(v.who.GetPermissions(), string(p))
	}
	return slices.ContainsFunc(v.who.GetGrants(), func(g *servov1.Grant) bool {
		return (g.GetTenant() == "" || g.GetTenant() == v.scope.Tenant) && slices.Contains(access.Role(g.GetRole()).Permissions(), p)
	})
}

// everywhere reports whether the visitor may see all tenants.
func (v *visit) everywhere() bool { return v.may(access.PlatformRead) }

// query is a parameter of the address.
func (v *visit) query(name string) string { return cleaned(v.URL.Query().Get(name)) }

// isLive reports whether the visit is a refresh of a live page.
func (v *visit) isLive() bool { return strings.HasPrefix(v.URL.Path, livePrefix+"/") }

// token is the page token of a list.
func (v *visit) token() string { return v.query("page") }

// cleaned removes blanks and invalid bytes from a parameter, which the API would refuse.
func cleaned(text string) string { return strings.TrimSpace(strings.ToValidUTF8(text, "")) }

// with is the address of this page with a changed parameter; "" removes it.
func (v *visit) with(name, value string) string {
	query := v.URL.Query()
	query.Del("page")
	if value == "" {
		query.Del(name)
	} else {
		query.Set(name, value)
	}
	return address(strings.TrimPrefix(v.URL.Path, livePrefix), query)
}

// paging is the place of this page in a list, given the token of the next page.
func (v *visit) paging(next string) view.Paging { return v.pagingBy("page", next) }

// pagingBy is paging with the page token in a parameter of its own.
func (v *visit) pagingBy(parameter, next string) view.Paging {
	p := view.Paging{First: v.query(parameter) == "", FirstAt: v.with(parameter, "")}
	if next != "" {
		query := v.URL.Query()
		query.Set(parameter, next)
		p.NextAt = address(strings.TrimPrefix(v.URL.Path, livePrefix), query)
	}
	return p
}

// since is the begin of the time range that a list is filtered by; nil without one. It is rounded
// to minutes: a page token is valid only with the filter that it was created with.
func (v *visit) since() *timestamppb.Timestamp {
	back, ok := map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour}[v.query("since")]
	if !ok {
		return nil
	}
	return timestamppb.New(v.now.Add(-back).Truncate(time.Minute))
}

func address(path string, query url.Values) string {
	if !strings.HasPrefix(path, "/ui") {
		path = "/ui" + path
	}
	if encoded := query.Encode(); encoded != "" {
		return path + "?" + encoded
	}
	return path
}

// livePrefix is the prefix of the address of the stream of a page.
const livePrefix = "/ui/live"

// liveAddress is the address of the stream of the page of a request.
func liveAddress(r *http.Request) string {
	return address(livePrefix+strings.TrimPrefix(r.URL.Path, "/ui"), r.URL.Query())
}
