package oidc_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest/issuer"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/oidc"
)

const (
	redirect = "https://servo.example.com/ui/login/back"
	secret   = "s3cret:with/odd+characters"
)

// desk is where people log in: an issuer, and a server that it knows.
type desk struct {
	*oidc.Verifier

	t    *testing.T
	from *issuer.Issuer
	log  *bytes.Buffer
}

func newDesk(t *testing.T, change func(one *oidc.Issuer), also ...*issuer.Issuer) *desk {
	t.Helper()
	d := &desk{t: t, from: issuer.New(t), log: &bytes.Buffer{}}
	one := oidc.Issuer{
		URL: d.from.URL, Audiences: []string{issuer.Audience, "servo-api"}, Algorithms: []string{"ES256"}, Subject: "sub",
		Rules: []oidc.Rule{{Claim: "groups", Value: "ops", Grant: access.Grant{Role: access.Platform}}},
		Login: &oidc.Login{ClientID: issuer.Audience, SecretFile: filepath.Join(t.TempDir(), "secret"), Scopes: []string{"openid", "groups"}, Label: "ACME"},
	}
	require.NoError(t, os.WriteFile(one.Login.SecretFile, []byte(secret+"\n"), 0o600))
	if change != nil {
		change(&one)
	}
	settings := trusting(also...)
	if len(also) > 0 {
		one.Name = "acme"
	}
	settings.Issuers = append(settings.Issuers, one)
	var err error
	d.Verifier, err = oidc.NewVerifier(settings, oidc.Options{Logger: slog.New(slog.NewTextHandler(d.log, nil))})
	require.NoError(t, err)
	t.Cleanup(d.Stop)
	d.from.Register(issuer.Client{ID: issuer.Audience, Secret: secret, Redirect: redirect})
	d.from.LogIn(map[string]any{"sub": "jo", "groups": []string{"ops"}})
	return d
}

func (d *desk) begin() (address string, a oidc.Attempt) {
	d.t.Helper()
	address, a, err := d.Begin(d.t.Context(), "issuer", redirect)
	require.NoError(d.t, err)
	return address, a
}

// agree is the callback of a person who logs in at an address.
func (d *desk) agree(address string) url.Values {
	d.t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, address, http.NoBody)
	require.NoError(d.t, err)
	answer, err := client.Do(req)
	require.NoError(d.t, err)
	require.NoError(d.t, answer.Body.Close())
	require.Equal(d.t, http.StatusSeeOther, answer.StatusCode)
	back, err := answer.Location()
	require.NoError(d.t, err)
	require.True(d.t, strings.HasPrefix(back.String(), redirect+"?"), back)
	return back.Query()
}

func (d *desk) refused(a oidc.Attempt, answer url.Values, code fault.Code, message string) {
	d.t.Helper()
	token, err := d.Finish(d.t.Context(), a, answer)
	require.Empty(d.t, token)
	f, ok := fault.As(err)
	require.True(d.t, ok, "%v", err)
	require.Equal(d.t, code, f.Code, f.Message)
	require.Contains(d.t, f.Message, message)
	require.NotEmpty(d.t, f.Violation.Remedy)
	require.NotContains(d.t, d.log.String(), secret)
	require.NotContains(d.t, d.log.String(), a.Verifier)
}

const notBegun = "not the end of a login that was begun"

func TestLogin(t *testing.T) {
	t.Parallel()

	t.Run("a login with the issuer returns a valid ID token", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, nil)
		require.Equal(t, []oidc.Choice{{Name: "issuer", Label: "ACME"}}, d.Choices())
		address, a := d.begin()
		require.Contains(t, address, "scope=openid+groups")
		require.NotContains(t, address, a.Verifier)
		token, err := d.Finish(t.Context(), a, d.agree(address))
		require.NoError(t, err)
		require.Equal(t, "oidc/jo", accepted(t, d.Verifier, token).Actor)
	})

	t.Run("each login has a state, a nonce and a verifier of its own", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, nil)
		seen := map[string]bool{}
		for range 50 {
			_, a := d.begin()
			for _, text := range []string{a.State, a.Nonce, a.Verifier} {
				require.GreaterOrEqual(t, len(text), 26)
				require.False(t, seen[text])
				seen[text] = true
			}
		}
	})

	t.Run("a public client has no secret, and some issuers want it in the form", func(t *testing.T) {
		t.Parallel()
		public := newDesk(t, func(one *oidc.Issuer) { one.Login.SecretFile = "" })
		public.from.Register(issuer.Client{ID: issuer.Audience, Redirect: redirect})
		address, a := public.begin()
		_, err := public.Finish(t.Context(), a, public.agree(address))
		require.NoError(t, err)

		posts := newDesk(t, nil)
		posts.from.Discover(func(document map[string]any) {
			document["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"}
		})
		posts.from.Answer(func(w http.ResponseWriter, r *http.Request) {
			_, _, basic := r.BasicAuth()
			if basic || r.PostFormValue("client_secret") != secret {
				answering(http.StatusUnauthorized, `{"error": "not there"}`)(w, r)
				return
			}
			answering(http.StatusBadRequest, `{"error": "seen"}`)(w, r)
		})
		address, a = posts.begin()
		posts.refused(a, posts.agree(address), fault.Unavailable, "ACME refused the login: seen")
	})

	t.Run("an unreachable issuer is tried again, and one without logins is reported", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, nil)
		d.from.Down(true)
		_, _, err := d.Begin(t.Context(), "issuer", redirect)
		require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
		for name, change := range map[string]func(document map[string]any){
			"none":       func(document map[string]any) { delete(document, "authorization_endpoint") },
			"no token":   func(document map[string]any) { delete(document, "token_endpoint") },
			"plain text": func(document map[string]any) { document["token_endpoint"] = "http://elsewhere.example/token" },
			"a script":   func(document map[string]any) { document["authorization_endpoint"] = "javascript:alert(1)" },
		} {
			d := newDesk(t, nil)
			d.from.Discover(change)
			_, _, err := d.Begin(t.Context(), "issuer", redirect)
			require.True(t, fault.Is(err, fault.Unavailable), "%s: %v", name, err)
			_, err = oidc.Probe(t.Context(), oidc.Issuer{URL: d.from.URL, Login: &oidc.Login{}})
			require.ErrorContains(t, err, "endpoint", name)
		}
	})

	t.Run("a login with an issuer that is not configured for it is refused", func(t *testing.T) {
		t.Parallel()
		for _, v := range []*oidc.Verifier{newDesk(t, nil).Verifier, nil} {
			_, _, err := v.Begin(t.Context(), "other", redirect)
			require.True(t, fault.Is(err, fault.NotFound), "%v", err)
			_, err = v.Finish(t.Context(), oidc.Attempt{Issuer: "https://other.example", State: "s"}, url.Values{"state": {"s"}})
			require.True(t, fault.Is(err, fault.Forbidden), "%v", err)
		}
	})
}

func TestLoginRefused(t *testing.T) {
	t.Parallel()

	// What comes back is not what was begun.
	for name, change := range map[string]func(d *desk, a *oidc.Attempt, answer url.Values){
		"another state":                    func(_ *desk, _ *oidc.Attempt, answer url.Values) { answer.Set("state", "x"+answer.Get("state")[1:]) },
		"no state":                         func(_ *desk, _ *oidc.Attempt, answer url.Values) { answer.Del("state") },
		"no state where none was kept":     func(_ *desk, a *oidc.Attempt, answer url.Values) { a.State = ""; answer.Del("state") },
		"no code":                          func(_ *desk, _ *oidc.Attempt, answer url.Values) { answer.Del("code") },
		"another issuer's answer":          func(_ *desk, _ *oidc.Attempt, answer url.Values) { answer.Set("iss", "https://evil.example") },
		"without an issuer that always is": func(_ *desk, _ *oidc.Attempt, answer url.Values) { answer.Del("iss") },
		"an error of who was not asked":    func(_ *desk, _ *oidc.Attempt, answer url.Values) { answer.Set("error", "x"); answer.Del("state") },
		"a code longer than any":           func(_ *desk, _ *oidc.Attempt, answer url.Values) { answer.Set("code", strings.Repeat("x", 5000)) },
		"an attempt of no known issuer":    func(_ *desk, a *oidc.Attempt, _ url.Values) { a.Issuer = "https://gone.example" },
		"the answer to another's attempt":  func(d *desk, a *oidc.Attempt, _ url.Values) { _, *a = d.begin() },
	} {
		t.Run("an answer that does not belong to the login: "+name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, nil)
			address, a := d.begin()
			answer := d.agree(address)
			change(d, &a, answer)
			d.refused(a, answer, fault.Forbidden, notBegun)
		})
	}

	t.Run("a code is good for one login", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, nil)
		address, a := d.begin()
		answer := d.agree(address)
		_, err := d.Finish(t.Context(), a, answer)
		require.NoError(t, err)
		d.refused(a, answer, fault.Forbidden, "has already ended")
	})

	t.Run("a code of another login is refused: the verifier differs", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, nil)
		address, mine := d.begin()
		answer := d.agree(address)
		other, _ := d.begin()
		answer.Set("code", d.agree(other).Get("code"))
		d.refused(mine, answer, fault.Forbidden, "has already ended")
		require.Contains(t, d.log.String(), "not the verifier of the code")
	})

	for name, c := range map[string]struct {
		claims map[string]any
		reason string
	}{
		"another nonce":                      {map[string]any{"nonce": "another"}, "its nonce differs"},
		"no nonce":                           {map[string]any{"nonce": nil}, "its nonce differs"},
		"another client's audience":          {map[string]any{"aud": "other-client"}, "the token is for"},
		"an audience of ours, no client":     {map[string]any{"aud": "servo-api"}, "is for another client"},
		"given to another client":            {map[string]any{"azp": "other-client"}, "was given to another client"},
		"given to something that is no text": {map[string]any{"azp": 7}, "azp has a wrong type"},
		"another issuer":                     {map[string]any{"iss": "https://evil.example"}, "no trusted issuer"},
		"over":                               {map[string]any{"exp": 1}, "expired"},
		"without a subject":                  {map[string]any{"sub": nil}, "which names people"},
	} {
		t.Run("a token that is not of this login: "+name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, nil)
			d.from.LogIn(c.claims)
			address, a := d.begin()
			d.refused(a, d.agree(address), fault.Forbidden, "does not accept")
			require.Contains(t, d.log.String(), c.reason)
		})
	}

	t.Run("a token of another trusted issuer, with the right nonce, is not this one's", func(t *testing.T) {
		t.Parallel()
		other := issuer.New(t)
		d := newDesk(t, nil, other)
		address, a, err := d.Begin(t.Context(), "acme", redirect)
		require.NoError(t, err)
		token := other.Token(t, map[string]any{"nonce": a.Nonce, "groups": "ops"})
		accepted(t, d.Verifier, token)
		answer := d.agree(address)
		d.from.Answer(answering(http.StatusOK, `{"access_token": "x", "id_token": "`+token+`"}`))
		d.refused(a, answer, fault.Forbidden, "does not accept")
		require.Contains(t, d.log.String(), "of another issuer")
	})

	t.Run("messages of the issuer are shown as text, with what to do", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, nil)
		for code, remedy := range map[string]string{"access_denied": "the administrator of your account", "temporarily_unavailable": "in a moment", "invalid_scope": "the scopes", "odd": "log in again"} {
			d.from.Decline(code, "because\r\nof\x1b[31m "+strings.Repeat("x", 1000))
			address, a := d.begin()
			_, err := d.Finish(t.Context(), a, d.agree(address))
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Contains(t, f.Message, "ACME refused the login: "+code+": because")
			require.NotRegexp(t, `[[:cntrl:]]`, f.Message)
			require.Less(t, len(f.Message), 300)
			require.Contains(t, f.Violation.Remedy, remedy)
		}
	})
}

func TestLoginWithAnIssuerThatMisbehaves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		message string
		logged  string
	}{
		"an error":          {answering(http.StatusBadRequest, `{"error": "invalid_client", "error_description": "<b>no</b>"}`), "ACME refused the login: invalid_client", "invalid_client <b>no</b>"},
		"an error with 200": {answering(http.StatusOK, `{"error": "invalid_client"}`), "ACME refused the login: invalid_client", "invalid_client"},
		"a failure":         {answering(http.StatusInternalServerError, "<html>"+secret), "returned an unexpected answer", "500"},
		"garbage":           {answering(http.StatusOK, "\x00\x01"), "returned an unexpected answer", "parse"},
		"nothing":           {answering(http.StatusOK, ""), "returned an unexpected answer", "parse"},
		"no ID token":       {answering(http.StatusOK, `{"access_token": "x", "token_type": "Bearer"}`), "returned an unexpected answer", "no ID token"},
		"a number for it":   {answering(http.StatusOK, `{"access_token": "x", "id_token": 7}`), "returned an unexpected answer", "no ID token"},
		"no end":            {answering(http.StatusOK, `{"access_token": "`+strings.Repeat("x", 1<<20)+`"}`), "returned an unexpected answer", "too large"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "returned an unexpected answer", "307"},
		"silence": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice that the client has gone
			<-r.Context().Done()
		}, "returned an unexpected answer", "(Client.Timeout|deadline) exceeded"},
		"no token at all": {answering(http.StatusOK, `{"access_token": "x", "id_token": "a.b.c"}`), "does not accept", "no trusted issuer"},
	} {
		t.Run("it answers with "+name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, nil)
			if name == "silence" {
				d.Hurry(50 * time.Millisecond)
			}
			address, a := d.begin()
			answer := d.agree(address)
			d.from.Answer(c.answer)
			code := fault.Unavailable
			if strings.Contains(c.message, "accept") {
				code = fault.Forbidden
			}
			d.refused(a, answer, code, c.message)
			require.Regexp(t, c.logged, d.log.String())
		})
	}

	t.Run("invented codes do not flood the issuer", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, nil)
		d.Crowd()
		address, a := d.begin()
		d.refused(a, d.agree(address), fault.Unavailable, "too many concurrent logins")
	})
}

func answering(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}
