package web_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// visitor is a browser without pages: a session and the streams that it opens.
type visitor struct {
	t      *testing.T
	base   string
	cookie *http.Cookie
}

func (v visitor) request(ctx context.Context, method, path string, form url.Values) *http.Response {
	v.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, v.base+path, strings.NewReader(form.Encode()))
	require.NoError(v.t, err)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if v.cookie != nil {
		req.AddCookie(v.cookie)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(v.t, err)
	v.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func logIn(t *testing.T, base, key string) visitor {
	t.Helper()
	v := visitor{t: t, base: base}
	res := v.request(t.Context(), http.MethodPost, "/ui/login", url.Values{"key": {key}})
	require.Equal(t, http.StatusSeeOther, res.StatusCode)
	for _, c := range res.Cookies() {
		if c.Name == "servo_session" {
			v.cookie = c
		}
	}
	require.NotNil(t, v.cookie)
	return v
}

func TestLivePages(t *testing.T) {
	t.Parallel()
	server, platform := servertest.StartLocked(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+platform)
	conn := server.Dial(t)
	keys := map[string]string{}
	for _, name := range []string{"acme", "brick"} {
		_, err := servov1.NewTenantServiceClient(conn).CreateTenant(ctx, &servov1.CreateTenantRequest{Name: name})
		require.NoError(t, err)
		made, err := servov1.NewKeyServiceClient(conn).CreateKey(ctx, &servov1.CreateKeyRequest{Tenant: name, Name: "v", Role: "viewer"})
		require.NoError(t, err)
		keys[name] = made.GetSecret()
	}
	const page = "/ui/live/runs"
	first := logIn(t, server.URL, keys["acme"])
	life, leave := context.WithCancel(t.Context())
	defer leave()

	// A page of a tenant that is not the visitor's is refused by its status, and takes no place.
	for range 30 {
		res := first.request(t.Context(), http.MethodGet, "/ui/live/tenants/brick", nil)
		require.Equal(t, http.StatusNotFound, res.StatusCode)
	}

	var streams []*http.Response
	for range 20 {
		res := first.request(life, http.MethodGet, page, nil)
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
		streams = append(streams, res)
	}
	refused := first.request(t.Context(), http.MethodGet, page, nil)
	require.Equal(t, http.StatusTooManyRequests, refused.StatusCode)
	require.NotEqual(t, "text/event-stream", refused.Header.Get("Content-Type"))

	// Another session has its own places, of the same tenant and of another.
	for _, key := range []string{keys["acme"], keys["brick"], platform} {
		other := logIn(t, server.URL, key)
		require.Equal(t, http.StatusOK, other.request(life, http.MethodGet, page, nil).StatusCode)
	}

	// Logging out ends the streams, and the cookie opens none any more.
	require.Equal(t, http.StatusSeeOther, first.request(t.Context(), http.MethodPost, "/ui/logout", url.Values{}).StatusCode)
	for _, res := range streams {
		_, err := io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
	}
	require.NotEqual(t, http.StatusOK, first.request(t.Context(), http.MethodGet, page, nil).StatusCode)
	require.NotEqual(t, http.StatusOK, first.request(t.Context(), http.MethodGet, "/ui/runs", nil).StatusCode)
}

// TestLogoutElsewhere: a session that is logged out at one server ends at the others as well.
func TestLogoutElsewhere(t *testing.T) {
	t.Parallel()
	servers, key := servertest.StartLockedFleet(t, 2)
	const page = "/ui/live/runs"
	// Servers know each other a moment after the second has started: a logout before that reaches
	// no other server, so sessions are ended until one ends at both.
	require.Eventually(t, func() bool {
		v := logIn(t, servers[0].URL, key)
		there := visitor{t: t, base: servers[1].URL, cookie: v.cookie}
		stream := there.request(t.Context(), http.MethodGet, page, nil)
		require.Equal(t, http.StatusOK, stream.StatusCode)
		require.Equal(t, http.StatusSeeOther, v.request(t.Context(), http.MethodPost, "/ui/logout", url.Values{}).StatusCode)
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = io.Copy(io.Discard, stream.Body) }()
		select {
		case <-ended:
		case <-time.After(2 * time.Second):
			return false
		}
		return there.request(t.Context(), http.MethodGet, "/ui/runs", nil).StatusCode != http.StatusOK
	}, time.Minute, 10*time.Millisecond)
}
