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

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/edge/web/view"
)

// visit is one look at a page, or one action: who looks, and at what.
type visit struct {
	*http.Request

	ctx     context.Context //nolint:containedctx // of the calls that the visit makes
	now     time.Time
	who     *servov1.Caller
	scope   view.Scope
	session session // the zero one on a server without keys
}

// streamLife is how long a stream of the visit may last: never longer than its session.
func (v *visit) streamLife() time.Duration {
	if v.session.Until.IsZero() {
		return streamLife
	}
	return min(streamLife, v.session.Until.Sub(v.now))
}

// seatTenant is whose limit an open page counts against: the visitor's, or none for the platform.
func (v *visit) seatTenant() string {
	if v.who.GetOpen() || v.everywhere() {
		return ""
	}
	return v.who.GetTenant()
}

// tenantPages is how many tenants are offered to choose from; others are found by search.
const tenantPages = 100

// visit knows who sends a request, and which tenant it is about: the one in the path, or the
// one that the lists are held to, or the only one there is for the caller.
func (s *Web) visit(r *http.Request) (*visit, error) {
	now := s.now()
	var held session
	var err error
	if !s.config.Open {
		if held, err = s.sessions.of(r, now); err != nil {
			return nil, err
		}
		if held.Credential == "" || s.seats.hasEnded(held.ID) {
			return nil, errLoggedOut
		}
	}
	v := &visit{Request: r, ctx: withCredential(r, held.Credential), now: now, session: held}
	if v.who, err = s.api.keys.WhoAmI(v.ctx, &servov1.WhoAmIRequest{}); err != nil {
		return nil, err
	}
	v.scope = view.Scope{Tenant: r.PathValue("tenant"), Fixed: len(v.tenants()) == 1, Workspace: v.who.GetWorkspace(), HeldTo: v.who.GetWorkspace() != ""}
	if v.scope.Tenant == "" {
		v.scope.Tenant = cleaned(r.URL.Query().Get("tenant"))
	}
	if v.scope.Tenant == "" {
		v.scope.Tenant = v.who.GetTenant()
	}
	if !v.scope.HeldTo {
		v.scope.Workspace = cleaned(r.URL.Query().Get("workspace"))
	}
	return v, nil
}

// withCredential is the context of calls by somebody: as the REST edge would make it of a
// request with his key.
func withCredential(r *http.Request, credential string) context.Context {
	md := metadata.MD{"x-request-id": {uuid.NewString()}}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		md.Set(api.RemoteAddress, host)
	}
	if credential != "" {
		md.Set("authorization", "Bearer "+credential)
	}
	return metadata.NewOutgoingContext(r.Context(), md)
}

// tenants are those of the visitor, if he may not look at all: one for a key, those of his
// grants for somebody with a token.
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

// may reports whether the visitor has a permission in the tenant that he looks at. It only hides
// what would be refused.
func (v *visit) may(p access.Permission) bool {
	if v.who.GetOpen() || len(v.who.GetGrants()) == 0 || v.scope.Tenant == v.who.GetTenant() {
		return v.who.GetOpen() || slices.Contains(v.who.GetPermissions(), string(p))
	}
	return slices.ContainsFunc(v.who.GetGrants(), func(g *servov1.Grant) bool {
		return (g.GetTenant() == "" || g.GetTenant() == v.scope.Tenant) && slices.Contains(access.Role(g.GetRole()).Permissions(), p)
	})
}

// everywhere reports whether the visitor may look across tenants.
func (v *visit) everywhere() bool { return v.may(access.PlatformRead) }

// query is a parameter of the page's address.
func (v *visit) query(name string) string { return cleaned(v.URL.Query().Get(name)) }

// token is where in a list the page is.
func (v *visit) token() string { return v.query("page") }

// cleaned takes from a parameter what no name or filter has: the API would refuse it, and a
// list is better than an error for a stray blank.
func cleaned(text string) string { return strings.TrimSpace(strings.ToValidUTF8(text, "")) }

// with is the address of this page with a parameter changed; "" takes it out.
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

// next is the address of the following page of a list.
func (v *visit) next(token string) string {
	if token == "" {
		return ""
	}
	query := v.URL.Query()
	query.Set("page", token)
	return address(strings.TrimPrefix(v.URL.Path, livePrefix), query)
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

// livePrefix stands before the address of a page in that of its stream.
const livePrefix = "/ui/live"

// liveAddress is where the page of a request is streamed.
func liveAddress(r *http.Request) string {
	return address(livePrefix+strings.TrimPrefix(r.URL.Path, "/ui"), r.URL.Query())
}
