package web_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/devkit/servotest/issuer"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
	"go.arco.dev/servo/internal/domain/access"
)

// get asks for a path as no browser would follow it.
func get(t *testing.T, server *servertest.Server, path string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	require.NoError(t, err)
	if change != nil {
		change(req)
	}
	return send(t, req)
}

func send(t *testing.T, req *http.Request) (*http.Response, string) {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer, string(body)
}

func post(t *testing.T, server *servertest.Server, path string, form url.Values, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if change != nil {
		change(req)
	}
	return send(t, req)
}

func TestFrame(t *testing.T) {
	t.Parallel()

	t.Run("the first paint costs less than 100 KB, and its files are cached without expiry", func(t *testing.T) {
		t.Parallel()
		server := servertest.Start(t)
		_, page := get(t, server, "/ui/", nil)
		total := len(page)
		for _, part := range strings.Split(page, `"`) {
			if !strings.HasPrefix(part, "/ui/static/") {
				continue
			}
			answer, body := get(t, server, part, nil)
			require.Equal(t, http.StatusOK, answer.StatusCode, part)
			require.Contains(t, answer.Header.Get("Cache-Control"), "immutable")
			total += len(body)
		}
		require.Greater(t, total, 10_000)
		require.Less(t, total, 100_000)
	})

	t.Run("the root leads to the pages, and the content policy allows nothing from elsewhere", func(t *testing.T) {
		t.Parallel()
		server := servertest.Start(t)
		answer, _ := get(t, server, "/", nil)
		require.Equal(t, "/ui/", answer.Header.Get("Location"))
		answer, page := get(t, server, "/ui/", nil)
		require.Contains(t, answer.Header.Get("Content-Security-Policy"), "script-src 'self'; style-src 'self'")
		require.NotContains(t, page, "style=\"")
		require.NotContains(t, page, "onclick")
		require.NotContains(t, page, "https://")
	})

	t.Run("a server without keys answers to names of its machine alone", func(t *testing.T) {
		t.Parallel()
		server := servertest.Start(t)
		for _, path := range []string{"/ui/", "/v1/status"} {
			answer, body := get(t, server, path, func(r *http.Request) { r.Host = "rebound.example" })
			require.Equal(t, http.StatusForbidden, answer.StatusCode, body)
			answer, _ = get(t, server, path, func(r *http.Request) { r.Host = "localhost:8080" })
			require.Equal(t, http.StatusOK, answer.StatusCode)
		}
	})

	t.Run("a form on another site changes nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		at := "/ui/tenants/" + tenant + "/runs/" + run.GetId() + "/cancel"
		for name, change := range map[string]func(*http.Request){
			"reported by the browser":          func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
			"seen by where it comes from":      func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
			"another port of the same machine": func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") },
		} {
			answer, _ := post(t, w.Server, at, url.Values{}, change)
			require.Equal(t, http.StatusForbidden, answer.StatusCode, name)
		}
		answer, _ := post(t, w.Server, at, url.Values{}, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") })
		require.Equal(t, http.StatusSeeOther, answer.StatusCode)
	})

	t.Run("by keyboard: to the content, to the search, through the navigation", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go("/ui/")
		w.Press("\t")
		require.Equal(t, "Skip to content", browser.Eval[string](w.Window, "document.activeElement.textContent"))
		w.Press("/")
		require.Equal(t, "q", browser.Eval[string](w.Window, "document.activeElement.name"))
	})

	t.Run("light and dark are remembered", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Go("/ui/")
		w.Click("[data-theme-switch]")
		chosen := browser.Eval[string](w.Window, "document.documentElement.dataset.theme")
		require.NotEmpty(t, chosen)
		w.Go("/ui/?again=1")
		require.Equal(t, chosen, browser.Eval[string](w.Window, "document.documentElement.dataset.theme"))
	})

	t.Run("choosing a tenant holds the lists to it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addTenant("globex")
		run := w.trigger("globex")
		w.Go("/ui/runs?tenant=" + tenant)
		browser.Eval[bool](w.Window, `(() => { const s = document.querySelector("[data-go]"); s.value = "globex"; s.dispatchEvent(new Event("change", {bubbles: true})); return true })()`)
		w.Until(`document.querySelector("#run-` + run.GetId() + `")`)
		require.Equal(t, "/ui/runs?tenant=globex", w.Address())
	})
}

// message is the first message of a stream, and its id.
func message(t *testing.T, server *servertest.Server, path, shown string) (id, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Last-Event-ID", shown)
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "id: "):
			id = strings.TrimPrefix(line, "id: ")
		case id != "" && line == "":
			return id, body
		case id != "":
			body += strings.TrimPrefix(line, "data: ")
		}
	}
	require.NoError(t, lines.Err())
	return id, body
}

func TestStreams(t *testing.T) {
	t.Parallel()

	t.Run("a page on which nothing happens looks the same each time, and differs when something did", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		at := "/ui/live/runs?tenant=" + tenant
		shown, body := message(t, w.Server, at, "")
		require.Contains(t, body, "No runs")
		again, _ := message(t, w.Server, at, "of another page")
		require.Equal(t, shown, again)
		run := w.trigger(tenant)
		next, body := message(t, w.Server, at, shown)
		require.NotEqual(t, shown, next)
		require.Contains(t, body, run.GetId())
	})
}

func TestCompressed(t *testing.T) {
	t.Parallel()
	like := func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip, deflate, br") }
	read := func(t *testing.T, body io.Reader) string {
		t.Helper()
		plain, err := gzip.NewReader(body)
		require.NoError(t, err)
		text, err := io.ReadAll(plain)
		require.NoError(t, err)
		return string(text)
	}

	t.Run("pages and files are sent compressed to who likes it, and as they are to others", func(t *testing.T) {
		t.Parallel()
		server := servertest.Start(t)
		never := func(r *http.Request) { r.Header.Set("Accept-Encoding", "identity") }
		_, page := get(t, server, "/ui/", never)
		paths := []string{"/ui/"}
		for _, part := range strings.Split(page, `"`) {
			if strings.HasSuffix(part, ".css") || strings.HasSuffix(part, ".js") {
				paths = append(paths, part)
			}
		}
		require.Len(t, paths, 4)
		for _, path := range paths {
			plain, text := get(t, server, path, never)
			require.Empty(t, plain.Header.Get("Content-Encoding"))
			require.Equal(t, "Accept-Encoding", plain.Header.Get("Vary"))
			answer, short := get(t, server, path, like)
			require.Equal(t, "gzip", answer.Header.Get("Content-Encoding"), path)
			require.Equal(t, "Accept-Encoding", answer.Header.Get("Vary"))
			require.Equal(t, plain.Header.Get("Cache-Control"), answer.Header.Get("Cache-Control"))
			require.Less(t, len(short)*2, len(text), path)
			require.Equal(t, text, read(t, strings.NewReader(short)))
		}
	})

	t.Run("what happens arrives at once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Server.URL+"/ui/live/runs?tenant="+tenant, http.NoBody)
		require.NoError(t, err)
		like(req)
		answer, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer answer.Body.Close()
		require.Equal(t, "gzip", answer.Header.Get("Content-Encoding"))
		plain, err := gzip.NewReader(answer.Body)
		require.NoError(t, err)
		lines := bufio.NewScanner(plain)
		lines.Buffer(nil, 1<<20)
		until := func(text string) {
			for lines.Scan() {
				if strings.Contains(lines.Text(), text) {
					return
				}
			}
			require.Fail(t, "it did not come", "%s: %v", text, lines.Err())
		}
		until("No runs")
		until(w.trigger(tenant).GetId()) // while the stream is open
	})
}

func TestLogin(t *testing.T) {
	t.Parallel()
	server, key := servertest.StartLocked(t)

	t.Run("without a session every page leads to the login, and from there back", func(t *testing.T) {
		t.Parallel()
		w := chromium.Open(t, server.URL)
		w.Allow("401")
		w.Go("/ui/?since=24h")
		require.Contains(t, w.Address(), "/ui/login")
		w.Type("#key", "sk_0123456789abcdef_wrong")
		w.Click("button[type=submit]")
		w.See("Unknown, expired or revoked")
		w.Type("#key", key)
		w.Click("button[type=submit]")
		w.Until(`location.pathname === "/ui/"`)
		require.Equal(t, "/ui/?since=24h", w.Address())
		require.NotContains(t, browser.Eval[string](w, "document.cookie"), "servo_session", "no script reads it")
		w.Click(`form[action="/ui/logout"] button`)
		w.Until(`location.pathname === "/ui/login"`)
		w.Go("/ui/")
		require.Contains(t, w.Address(), "/ui/login")
	})

	t.Run("a forged session is refused, and the key is not in it", func(t *testing.T) {
		t.Parallel()
		answer, _ := post(t, server, "/ui/login", url.Values{"key": {key}}, nil)
		cookies := answer.Cookies()
		require.Len(t, cookies, 1)
		require.True(t, cookies[0].HttpOnly)
		require.NotContains(t, cookies[0].Value, key)
		answer, _ = get(t, server, "/ui/", func(r *http.Request) { r.AddCookie(cookies[0]) })
		require.Equal(t, http.StatusOK, answer.StatusCode)
		for _, value := range []string{"", "x", cookies[0].Value[1:], "A" + cookies[0].Value[1:], cookies[0].Value + "AAAA"} {
			answer, _ = get(t, server, "/ui/", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookies[0].Name, Value: value}) })
			require.Equal(t, http.StatusSeeOther, answer.StatusCode)
		}
	})

	t.Run("a login never leads to another site", func(t *testing.T) {
		t.Parallel()
		for _, to := range []string{"https://evil.example/ui/", "//evil.example/ui/", "/\\evil.example", "/ui/../v1/status", "javascript:alert(1)", "/elsewhere"} {
			answer, _ := post(t, server, "/ui/login", url.Values{"key": {key}, "back": {to}}, nil)
			require.Equal(t, http.StatusSeeOther, answer.StatusCode)
			target, err := url.Parse(answer.Header.Get("Location"))
			require.NoError(t, err)
			require.Empty(t, target.Host, to)
			require.True(t, strings.HasPrefix(target.Path, "/ui/"), to)
		}
	})

	t.Run("an open page is not streamed without a session", func(t *testing.T) {
		t.Parallel()
		answer, _ := get(t, server, "/ui/live/runs", nil)
		require.Equal(t, http.StatusSeeOther, answer.StatusCode)
	})
}

func TestLoginByToken(t *testing.T) {
	t.Parallel()
	from := issuer.New(t)
	server := servertest.StartTrusting(t, from, map[string]access.Grant{
		"ops": {Role: access.Platform}, "acme": {Role: access.Operator, Tenant: "acme"}, "globex": {Role: access.Viewer, Tenant: "globex"},
	})
	login := func(t *testing.T, token string) *browser.Window {
		t.Helper()
		w := chromium.Open(t, server.URL)
		w.Go("/ui/login")
		w.Type("#key", token)
		w.Click("button[type=submit]")
		w.Until(`location.pathname === "/ui/"`)
		return w
	}
	ops := login(t, from.Token(t, map[string]any{"sub": "jo", "groups": []string{"ops"}}))
	ops.See("oidc/jo")
	for _, name := range []string{"acme", "globex", "initech"} {
		ops.Go("/ui/tenants")
		ops.Click("[data-dialog]")
		ops.Type("dialog[open] [name=name]", name)
		ops.Click("dialog[open] button[type=submit]")
		ops.Until(`document.querySelector(".toast")`)
	}

	// A person with grants in two tenants chooses between them, and has in each its own role.
	al := login(t, from.Token(t, map[string]any{"sub": "al", "groups": []string{"acme", "globex"}}))
	require.Equal(t, "acme globex", browser.Eval[string](al, `[...document.querySelectorAll("[data-go] option")].map((o) => o.value).join(" ")`))
	al.Go("/ui/runs?tenant=globex")
	al.See("No runs")
	al.Allow("404")
	al.Go("/ui/runs?tenant=initech")
	al.See("Not found")
}
