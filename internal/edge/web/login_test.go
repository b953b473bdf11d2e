package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/devkit/servotest/issuer"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/oidc"
	"go.arco.dev/servo/internal/edge/web"
)

func TestLoginWithProvider(t *testing.T) {
	t.Parallel()
	from := issuer.New(t)
	server := servertest.StartLogin(t, from, "ACME", map[string]access.Grant{"ops": {Role: access.Platform}})
	// Another name than the issuer's: to the browser they are different sites, as they will be.
	base := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	from.Register(issuer.Client{ID: issuer.Audience, Redirect: base + "/ui/login/back"})
	w := chromium.Open(t, base)
	w.Allow(from.URL)
	w.Allow("401")

	// The button leads to the provider, and from there to the page that was asked for first.
	from.LogIn(map[string]any{"sub": "jo", "groups": []string{"ops"}})
	w.Go("/ui/runs?state=failed")
	require.Contains(t, w.Address(), "/ui/login")
	require.Equal(t, "Log in with ACME", w.Text("a.button"))
	w.Click("a.button")
	w.Until(`document.querySelector("#agree")`)
	w.Click("#agree")
	w.See("oidc/jo")
	require.Equal(t, "/ui/runs?state=failed", w.Address())
	require.Empty(t, browser.Eval[string](w, "document.cookie"), "no script reads them")

	// A token that ends takes the open page to the login, and the next login back to it.
	w.Click(`form[action="/ui/logout"] button`)
	w.Until(`location.pathname === "/ui/login"`)
	w.Go("/ui/runs?state=running")
	w.Click("a.button")
	w.Until(`document.querySelector("#agree")`)
	from.LogIn(map[string]any{"sub": "al", "groups": []string{"ops"}, "exp": time.Now().Add(8 * time.Second).Unix()})
	w.Click("#agree")
	w.Until(`location.pathname === "/ui/login" && !document.querySelector("#agree")`)
	require.Equal(t, "/ui/login?back=%2Fui%2Fruns%3Fstate%3Drunning", w.Address())
	w.Click("a.button")
	w.Until(`document.querySelector("#agree")`)
	from.LogIn(map[string]any{"sub": "al", "groups": []string{"ops"}})
	w.Click("#agree")
	w.See("oidc/al")

	// The provider's message is shown as text.
	w.Allow("403")
	w.Click(`form[action="/ui/logout"] button`)
	w.Until(`location.pathname === "/ui/login"`)
	from.Decline("access_denied", `<img src=x onerror="document.title='owned'">`)
	w.Click("a.button")
	w.Until(`document.querySelector("#agree")`)
	w.Click("#agree")
	w.See(`ACME refused the login: access_denied: <img src=x`)
	require.NotEqual(t, "owned", browser.Eval[string](w, "document.title"))
}

// known answers WhoAmI for every caller with a credential.
type known struct {
	grpc.ClientConnInterface

	shown atomic.Value // what was shown last
}

func (k *known) Invoke(ctx context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	md, _ := metadata.FromOutgoingContext(ctx)
	k.shown.Store(strings.Join(md.Get("authorization"), " "))
	if m, ok := reply.(*servov1.Caller); ok {
		proto.Merge(m, &servov1.Caller{Actor: "oidc/jo"})
	}
	return nil
}

// door is pages without a server behind them, and a provider.
type door struct {
	*httptest.Server

	t     *testing.T
	from  *issuer.Issuer
	api   *known
	ahead atomic.Int64 // of the clock, in nanoseconds
}

func newDoor(t *testing.T, public string) *door {
	t.Helper()
	d := &door{t: t, from: issuer.New(t), api: &known{}}
	tokens, err := oidc.NewVerifier(oidc.Settings{Issuers: []oidc.Issuer{{
		URL: d.from.URL, Audiences: []string{issuer.Audience}, Algorithms: []string{"ES256"}, Subject: "sub",
		Login: &oidc.Login{ClientID: issuer.Audience, Scopes: []string{"openid"}, Label: "ACME"},
	}}}, oidc.Options{})
	require.NoError(t, err)
	t.Cleanup(tokens.Stop)
	pages, err := web.New(web.Options{
		Channel: d.api, Secret: func(context.Context) ([]byte, error) { return []byte("the secret of this installation"), nil }, Logins: tokens, Public: public,
	})
	require.NoError(t, err)
	t.Cleanup(pages.Close)
	pages.At(func() time.Time { return time.Now().Add(time.Duration(d.ahead.Load())) })
	d.Server = httptest.NewServer(pages)
	t.Cleanup(d.Server.Close)
	if public == "" {
		public = d.URL
	}
	d.from.Register(issuer.Client{ID: issuer.Audience, Redirect: public + "/ui/login/back"})
	return d
}

func (d *door) ask(path string, change func(*http.Request)) (*http.Response, string) {
	d.t.Helper()
	return get(d.t, &servertest.Server{URL: d.URL}, path, change)
}

// begin goes to the provider: the address there, and the cookie that is kept meanwhile.
func (d *door) begin(back string) (address string, kept *http.Cookie) {
	d.t.Helper()
	answer, body := d.ask("/ui/login/with/issuer?back="+url.QueryEscape(back), nil)
	require.Equal(d.t, http.StatusSeeOther, answer.StatusCode, body)
	require.Len(d.t, answer.Cookies(), 1)
	return answer.Header.Get("Location"), answer.Cookies()[0]
}

// agree logs in at the provider: the path that the browser is sent back to.
func (d *door) agree(address string) string {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, address, http.NoBody)
	require.NoError(d.t, err)
	answer, body := send(d.t, req)
	require.Equal(d.t, http.StatusSeeOther, answer.StatusCode, body)
	location, err := answer.Location()
	require.NoError(d.t, err)
	return location.RequestURI()
}

func (d *door) back(path string, kept ...*http.Cookie) (*http.Response, string) {
	d.t.Helper()
	return d.ask(path, func(r *http.Request) {
		for _, c := range kept {
			r.AddCookie(c)
		}
	})
}

func sessionOf(answer *http.Response) string {
	for _, c := range answer.Cookies() {
		if c.Name == "servo_session" && c.MaxAge > 0 {
			return c.Value
		}
	}
	return ""
}

func TestLoginDoor(t *testing.T) {
	t.Parallel()

	t.Run("a person who returns from the provider has a session, and the cookie of the login is deleted", func(t *testing.T) {
		t.Parallel()
		d := newDoor(t, "")
		address, kept := d.begin("/ui/runs?state=failed")
		require.True(t, kept.HttpOnly)
		require.Equal(t, http.SameSiteLaxMode, kept.SameSite)
		require.Equal(t, "/ui/login/back", kept.Path)
		require.Equal(t, 600, kept.MaxAge)
		query, err := url.Parse(address)
		require.NoError(t, err)
		require.NotContains(t, kept.Value, query.Query().Get("state"))
		answer, body := d.back(d.agree(address), kept)
		require.Equal(t, http.StatusSeeOther, answer.StatusCode, body)
		require.Equal(t, "/ui/runs?state=failed", answer.Header.Get("Location"))
		require.NotEmpty(t, sessionOf(answer))
		require.Contains(t, d.api.shown.Load(), "Bearer eyJ")
		gone := false
		for _, c := range answer.Cookies() {
			gone = gone || c.Name == kept.Name && c.Path == kept.Path && c.MaxAge < 0
		}
		require.True(t, gone)
		// The cookie of a login is no session.
		answer, _ = d.back("/ui/", &http.Cookie{Name: "servo_session", Value: kept.Value})
		require.Equal(t, http.StatusSeeOther, answer.StatusCode)
	})

	for name, c := range map[string]struct {
		kept    func(d *door, kept *http.Cookie) []*http.Cookie
		path    func(d *door, path string) string
		message string
	}{
		"in a browser that has begun no login: login CSRF": {kept: func(*door, *http.Cookie) []*http.Cookie { return nil }},
		"in a browser that has begun another one": {kept: func(d *door, _ *http.Cookie) []*http.Cookie {
			_, other := d.begin("/ui/")
			return []*http.Cookie{other}
		}},
		"with a forged cookie": {kept: func(_ *door, kept *http.Cookie) []*http.Cookie {
			return []*http.Cookie{{Name: kept.Name, Value: "A" + kept.Value[1:]}}
		}},
		"with a cookie of another kind": {kept: func(d *door, kept *http.Cookie) []*http.Cookie {
			address, own := d.begin("/ui/")
			answer, _ := d.back(d.agree(address), own)
			return []*http.Cookie{{Name: kept.Name, Value: sessionOf(answer)}}
		}},
		"after ten minutes": {kept: func(d *door, kept *http.Cookie) []*http.Cookie {
			d.ahead.Store(int64(10*time.Minute + time.Second))
			return []*http.Cookie{kept}
		}},
		"with another state": {path: func(_ *door, path string) string { return strings.Replace(path, "state=", "state=x", 1) }},
		"for the second time, with a cookie that was kept": {path: func(d *door, path string) string {
			return path
		}, message: "already ended"},
	} {
		t.Run("no session for who comes back "+name, func(t *testing.T) {
			t.Parallel()
			d := newDoor(t, "")
			address, kept := d.begin("/ui/runs")
			path, cookies := d.agree(address), []*http.Cookie{kept}
			message := "not the end of a login"
			if c.message != "" {
				message = c.message
				answer, _ := d.back(path, kept)
				require.NotEmpty(t, sessionOf(answer))
			}
			if c.kept != nil {
				cookies = c.kept(d, kept)
			}
			if c.path != nil {
				path = c.path(d, path)
			}
			answer, body := d.back(path, cookies...)
			require.Equal(t, http.StatusForbidden, answer.StatusCode)
			require.Empty(t, sessionOf(answer))
			require.Contains(t, body, message)
			require.Contains(t, body, "Log in with ACME")
		})
	}

	t.Run("a login never leads to another site", func(t *testing.T) {
		t.Parallel()
		d := newDoor(t, "")
		for to, want := range map[string]string{
			"/ui/runs?state=failed": "/ui/runs?state=failed", "": "/ui/", "https://evil.example/ui/": "/ui/", "//evil.example/ui/": "/ui/", "/\\evil.example": "/ui/", "/ui/\\..\\..\\evil": "/ui/",
			"/ui/../v1/status": "/ui/", "/ui/..//evil.example": "/ui/", "javascript:alert(1)": "/ui/", "/elsewhere": "/ui/", "/uix": "/ui/", "/ui/" + strings.Repeat("x", 2000): "/ui/",
		} {
			address, kept := d.begin(to)
			answer, body := d.back(d.agree(address), kept)
			require.Equal(t, http.StatusSeeOther, answer.StatusCode, body)
			require.Equal(t, want, answer.Header.Get("Location"), to)
		}
	})

	t.Run("the operator sets the redirect address, and requests do not", func(t *testing.T) {
		t.Parallel()
		named, unnamed := newDoor(t, "https://servo.example.com"), newDoor(t, "")
		for _, host := range []string{"evil.example", "servo.example.com", "localhost.evil.example", "127.0.0.1@evil.example", "localhost:80/evil", "127.0.0.1.evil.example"} {
			at := func(r *http.Request) { r.Host = host; r.Header.Set("X-Forwarded-Host", "evil.example") }
			answer, _ := named.ask("/ui/login/with/issuer", at)
			if answer.StatusCode == http.StatusSeeOther { // else there is no such host
				require.Contains(t, answer.Header.Get("Location"), url.QueryEscape("https://servo.example.com/ui/login/back"), host)
				require.True(t, answer.Cookies()[0].Secure)
			}
			answer, body := unnamed.ask("/ui/login/with/issuer", at)
			require.NotEqual(t, http.StatusSeeOther, answer.StatusCode, host)
			if answer.StatusCode != http.StatusBadRequest {
				require.Contains(t, body, "--public-url")
			}
		}
		answer, _ := unnamed.ask("/ui/login/with/issuer", func(r *http.Request) { r.Host = "[::1]:8080" })
		require.Contains(t, answer.Header.Get("Location"), url.QueryEscape("http://[::1]:8080/ui/login/back"))
		_, body := named.back("/ui/login/back?code=x&state=y")
		require.Contains(t, body, "at https://servo.example.com/ui/login", "a cookie is for one host")
	})

	t.Run("names of this machine are names and nothing else", func(t *testing.T) {
		t.Parallel()
		for host, is := range map[string]bool{
			"localhost": true, "localhost:8080": true, "127.0.0.1:80": true, "[::1]:8080": true,
			"": false, "evil.example": false, "localhost.evil.example": false, "localhost@evil.example": false, "evil.example@localhost": false,
			"localhost/evil.example": false, "localhost?evil": false, "localhost#evil": false, "localhost:port": false, "10.0.0.1": false,
		} {
			require.Equal(t, is, web.OfThisMachine(host), host)
		}
	})

	t.Run("a token that no session holds is refused with what to do", func(t *testing.T) {
		t.Parallel()
		d := newDoor(t, "")
		d.from.LogIn(map[string]any{"groups": strings.Repeat("many ", 2000)})
		address, kept := d.begin("/ui/")
		answer, body := d.back(d.agree(address), kept)
		require.Equal(t, http.StatusForbidden, answer.StatusCode)
		require.Contains(t, body, "put less into ID tokens")
	})

	t.Run("the largest token that is let in makes a cookie that browsers keep", func(t *testing.T) {
		t.Parallel()
		d := newDoor(t, "")
		answer, body := post(t, &servertest.Server{URL: d.URL}, "/ui/login", url.Values{"key": {strings.Repeat("x", 2900)}}, nil)
		require.NotEmpty(t, sessionOf(answer), body)
		require.LessOrEqual(t, len("servo_session")+len(sessionOf(answer)), 4096)
		answer, _ = post(t, &servertest.Server{URL: d.URL}, "/ui/login", url.Values{"key": {strings.Repeat("x", 2901)}}, nil)
		require.Empty(t, sessionOf(answer))
	})

	t.Run("an unreachable provider, or an unknown one, is reported on the login page", func(t *testing.T) {
		t.Parallel()
		d := newDoor(t, "")
		d.from.Down(true)
		answer, body := d.ask("/ui/login/with/issuer", nil)
		require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
		require.Contains(t, body, "ACME is unreachable")
		require.Contains(t, body, `name="key"`)
		answer, _ = d.ask("/ui/login/with/other", nil)
		require.Equal(t, http.StatusNotFound, answer.StatusCode)
	})
}
