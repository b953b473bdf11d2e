package web

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/oidc"
	"go.arco.dev/servo/internal/edge/web/view"
)

// Paths of the login.
const (
	loginPath     = "/ui/login"
	loginWithPath = loginPath + "/with/"
	loginBackPath = loginPath + "/back"
)

// A login with a provider is an encrypted cookie until the browser returns: the provider's response
// is checked against it. The browser sends it to the end of the login only, and it is valid for
// one response.
const (
	attemptCookie = "servo_login"
	attemptLife   = 10 * time.Minute
	maxBack       = 1000 // bytes of the address after the login, which is in the cookie
)

// attempt is a login in progress.
type attempt struct {
	oidc.Attempt

	Back  string    `json:"b"`
	Until time.Time `json:"u"`
}

func (s *Web) loginRoutes() {
	s.mux.HandleFunc("GET "+loginPath, s.loginPage)
	s.mux.HandleFunc("POST "+loginPath, s.login)
	s.mux.HandleFunc("POST /ui/logout", s.logout)
	s.mux.HandleFunc("GET "+loginWithPath+"{issuer}", s.loginWith)
	s.mux.HandleFunc("GET "+loginBackPath, s.loginBack)
}

// loginPage asks for a key, or for an identity provider.
func (s *Web) loginPage(w http.ResponseWriter, r *http.Request) {
	if s.options.Open {
		http.Redirect(w, r, "/ui/", http.StatusSeeOther)
		return
	}
	s.writeLogin(w, r, http.StatusOK, view.LoginModel{Back: back(r.URL.Query().Get("back"))})
}

func (s *Web) writeLogin(w http.ResponseWriter, r *http.Request, status int, m view.LoginModel) {
	for _, c := range s.options.Logins.Choices() {
		m.Providers = append(m.Providers, view.LoginProvider{Label: c.Label, At: loginWithPath + url.PathEscape(c.Name) + "?" + url.Values{"back": {m.Back}}.Encode()})
	}
	s.write(w, r, status, view.Login(view.Layout{Files: s.files.byName, Version: s.options.Version}, m))
}

// login begins a session with a key, or with a token of an identity provider.
func (s *Web) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	credential, to := strings.TrimSpace(r.PostFormValue("key")), back(r.PostFormValue("back"))
	if credential == "" || len(credential) > maxCredential || strings.ContainsFunc(credential, func(c rune) bool { return c <= ' ' || c > '~' }) {
		s.writeLogin(w, r, http.StatusBadRequest, view.LoginModel{Back: to, InvalidKey: "Invalid key or token: a key begins with sk_, a token with eyJ, and both have no blanks."})
		return
	}
	s.enter(w, r, credential, view.LoginModel{Back: to, InvalidKey: "Unknown, expired or revoked key or token."})
}

// enter begins a session with a valid credential, and shows the login again for others.
func (s *Web) enter(w http.ResponseWriter, r *http.Request, credential string, unknown view.LoginModel) {
	_, err := s.api.keys.WhoAmI(withCredential(r, credential), &servov1.WhoAmIRequest{})
	if hasCode(err, fault.Unauthenticated) {
		s.writeLogin(w, r, http.StatusUnauthorized, unknown)
		return
	}
	if err == nil {
		err = s.sessions.begin(r.Context(), w, credential, s.now())
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	http.Redirect(w, r, unknown.Back, http.StatusSeeOther)
}

// EndSession closes the pages of a session that another server has ended, and refuses it.
func (s *Web) EndSession(session string, until time.Time) { s.livePages.end(session, until, s.now()) }

// logout ends the session and its live pages, on this server and by a notification on the others.
// The key stays valid: other programs may use it.
func (s *Web) logout(w http.ResponseWriter, r *http.Request) {
	now := s.now()
	if held, err := s.sessions.of(r, now); err == nil && held.Credential != "" {
		s.livePages.end(held.ID, held.Until, now)
		if s.options.LoggedOut != nil {
			s.options.LoggedOut(held.ID, held.Until)
		}
	}
	s.sessions.end(w)
	http.Redirect(w, r, loginPath, http.StatusSeeOther)
}

// loginWith redirects a browser to a provider.
func (s *Web) loginWith(w http.ResponseWriter, r *http.Request) {
	to := back(r.URL.Query().Get("back"))
	if len(to) > maxBack {
		to = "/ui/"
	}
	redirect, err := s.redirect(r)
	if err != nil {
		s.failLogin(w, r, to, err)
		return
	}
	address, begun, err := s.options.Logins.Begin(r.Context(), r.PathValue("issuer"), redirect)
	if err != nil {
		s.failLogin(w, r, to, err)
		return
	}
	sealed, err := s.sessions.seal(r.Context(), attemptCookie, attempt{Attempt: begun, Back: to, Until: s.now().Add(attemptLife)})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	http.SetCookie(w, s.attemptCookie(sealed, int(attemptLife/time.Second)))
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, address, http.StatusSeeOther) //nolint:gosec // the issuer's page, from its discovery document
}

// loginBack completes a login when a provider redirects the browser back. Without the cookie it is
// not the browser that began the login: an attacker may want to log it in as another user.
func (s *Web) loginBack(w http.ResponseWriter, r *http.Request) {
	var begun attempt
	is, err := s.sessions.open(r, attemptCookie, &begun)
	http.SetCookie(w, s.attemptCookie("", -1))
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case err != nil:
		s.fail(w, r, err)
		return
	case !is || !s.now().Before(begun.Until):
		s.failLogin(w, r, back(begun.Back), s.notBegun())
		return
	}
	to := back(begun.Back)
	token, err := s.options.Logins.Finish(r.Context(), begun.Attempt, r.URL.Query())
	if err == nil && len(token) > maxCredential {
		err = fault.New(fault.Forbidden, fmt.Sprintf("the ID token has %d bytes; the limit is %d", len(token), maxCredential),
			fault.Remedy("ask the administrator of the provider to put less into ID tokens, such as only the groups that have grants here"))
	}
	if err != nil {
		s.failLogin(w, r, to, err)
		return
	}
	s.enter(w, r, token, view.LoginModel{Back: to, Error: "authentication failed", Remedy: "log in again"})
}

// notBegun adds the address of the login to the remedy: a cookie is valid for one host.
func (s *Web) notBegun() error {
	err := oidc.NotBegun()
	if f, ok := fault.As(err); ok && s.options.Public != "" {
		return fault.New(f.Code, f.Message, fault.Remedy(f.Violation.Remedy+", at "+s.options.Public+loginPath))
	}
	return err
}

// failLogin shows the login again with an error.
func (s *Web) failLogin(w http.ResponseWriter, r *http.Request, to string, err error) {
	status, doc := docOf(err)
	if status >= http.StatusInternalServerError {
		s.log.WarnContext(r.Context(), "a login failed", "path", r.URL.Path, "error", err)
	}
	s.writeLogin(w, r, status, view.LoginModel{Back: to, Error: doc.Message, Remedy: doc.Remedy})
}

// attemptCookie is the cookie of a login in progress. It is Secure if the public address is
// encrypted, also behind a proxy.
func (s *Web) attemptCookie(value string, age int) *http.Cookie {
	c := cookie(attemptCookie, value, age, s.options.Secure || strings.HasPrefix(s.options.Public, "https://")) //nolint:gosec // see cookie
	c.Path = loginBackPath
	return c
}

// redirect is the address to which a provider redirects browsers. It is the address that the
// operator has configured, never the Host of a request: an attacker who sets the Host of a request
// would receive the provider's response. Names of this machine are the exception, since other
// machines cannot serve them.
func (s *Web) redirect(r *http.Request) (string, error) {
	if s.options.Public != "" {
		return s.options.Public + loginBackPath, nil
	}
	if !ofThisMachine(r.Host) {
		return "", fault.New(fault.Unavailable, "the server has no public URL for logins with a provider", fault.Remedy("log in with an API key, or ask the operator to start servers with --public-url"))
	}
	scheme := "http://"
	if s.options.Secure {
		scheme = "https://"
	}
	return scheme + r.Host + loginBackPath, nil
}

func ofThisMachine(host string) bool {
	parsed, err := url.Parse("http://" + host)
	if err != nil || parsed.Host != host {
		return false
	}
	ip, err := netip.ParseAddr(parsed.Hostname())
	return parsed.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// back is the page after a login: a page of this server, never another site.
func back(to string) string {
	parsed, err := url.Parse(to)
	if err != nil || parsed.IsAbs() || parsed.Host != "" || !strings.HasPrefix(path.Clean(parsed.Path)+"/", "/ui/") || strings.HasPrefix(to, "//") || strings.Contains(to, "\\") {
		return "/ui/"
	}
	return parsed.RequestURI()
}
