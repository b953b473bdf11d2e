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

// Where people log in.
const (
	loginPath     = "/ui/login"
	loginWithPath = loginPath + "/with/"
	loginBackPath = loginPath + "/back"
)

// A login with a provider is a cookie, too, until the browser comes back: what the provider's
// answer is held against, sealed as sessions are. It is sent to where logins end and nowhere
// else, and is good for one answer: whatever comes of it, it is taken back.
const (
	attemptCookie = "servo_login"
	attemptLife   = 10 * time.Minute
	maxBack       = 1000 // bytes of the address to go to then: the cookie must stay small
)

// attempt is a login under way.
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

// loginPage asks for a key, or whom to log in with.
func (s *Web) loginPage(w http.ResponseWriter, r *http.Request) {
	if s.config.Open {
		http.Redirect(w, r, "/ui/", http.StatusSeeOther)
		return
	}
	s.writeLogin(w, r, http.StatusOK, view.Entrance{Back: back(r.URL.Query().Get("back"))})
}

func (s *Web) writeLogin(w http.ResponseWriter, r *http.Request, status int, e view.Entrance) {
	for _, c := range s.config.Logins.Choices() {
		e.With = append(e.With, view.LoginWith{Label: c.Label, At: loginWithPath + url.PathEscape(c.Name) + "?" + url.Values{"back": {e.Back}}.Encode()})
	}
	s.write(w, r, status, view.Login(view.Frame{Files: s.files.byName, Version: s.config.Version}, e))
}

// login begins a session for whoever shows a key, or a token of an identity provider.
func (s *Web) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	credential, to := strings.TrimSpace(r.PostFormValue("key")), back(r.PostFormValue("back"))
	if credential == "" || len(credential) > maxCredential || strings.ContainsFunc(credential, func(c rune) bool { return c <= ' ' || c > '~' }) {
		s.writeLogin(w, r, http.StatusBadRequest, view.Entrance{Back: to, WrongKey: "This is neither a key nor a token: keys begin with sk_, tokens with eyJ, and both have no blanks."})
		return
	}
	s.enter(w, r, credential, view.Entrance{Back: to, WrongKey: "This is not known here, or it has expired or was revoked."})
}

// enter begins a session for whoever has a key or a token that is known and alive, and shows the
// login again to others.
func (s *Web) enter(w http.ResponseWriter, r *http.Request, credential string, unknown view.Entrance) {
	_, err := s.api.keys.WhoAmI(withCredential(r, credential), &servov1.WhoAmIRequest{}) //nolint:contextcheck // it is the request's, with the key
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

// EndSession closes the pages of a session that was logged out at another server, and refuses it.
func (s *Web) EndSession(session string, until time.Time) { s.seats.end(session, until, s.now()) }

// logout ends the session and the pages that it has open, on this server and by a notice on the others.
// The key lives on: it may be in use elsewhere.
func (s *Web) logout(w http.ResponseWriter, r *http.Request) {
	now := s.now()
	if held, err := s.sessions.of(r, now); err == nil && held.Credential != "" {
		s.seats.end(held.ID, held.Until, now)
		if s.config.LoggedOut != nil {
			s.config.LoggedOut(held.ID, held.Until)
		}
	}
	s.sessions.end(w)
	http.Redirect(w, r, loginPath, http.StatusSeeOther)
}

// loginWith sends a browser to a provider.
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
	address, begun, err := s.config.Logins.Begin(r.Context(), r.PathValue("issuer"), redirect)
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
	http.Redirect(w, r, address, http.StatusSeeOther) //nolint:gosec // the issuer's own page, by the discovery document
}

// loginBack takes a browser that a provider has sent back. Without the cookie it is not the
// browser that was sent there: somebody wants it to be logged in as somebody else.
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
	token, err := s.config.Logins.Finish(r.Context(), begun.Attempt, r.URL.Query())
	if err == nil && len(token) > maxCredential {
		err = fault.New(fault.Forbidden, fmt.Sprintf("the token that says who you are has %d bytes, and a session holds %d", len(token), maxCredential),
			fault.Remedy("ask whoever looks after the provider to put less into ID tokens, such as only the groups that are granted something here"))
	}
	if err != nil {
		s.failLogin(w, r, to, err)
		return
	}
	s.enter(w, r, token, view.Entrance{Back: to, Wrong: "you are not known here", Remedy: "log in again"})
}

// notBegun also says where logins work: a cookie is for one host.
func (s *Web) notBegun() error {
	err := oidc.NotBegun()
	if f, ok := fault.As(err); ok && s.config.Public != "" {
		return fault.New(f.Code, f.Message, fault.Remedy(f.Violation.Remedy+", at "+s.config.Public+loginPath))
	}
	return err
}

// failLogin shows the login again, with what went wrong.
func (s *Web) failLogin(w http.ResponseWriter, r *http.Request, to string, err error) {
	status, doc := docOf(err)
	if status >= http.StatusInternalServerError {
		s.log.WarnContext(r.Context(), "a login has failed", "path", r.URL.Path, "error", err)
	}
	s.writeLogin(w, r, status, view.Entrance{Back: to, Wrong: doc.Message, Remedy: doc.Remedy})
}

// attemptCookie is for where logins end. It is Secure if that is encrypted, whatever stands
// before this server.
func (s *Web) attemptCookie(value string, age int) *http.Cookie {
	c := cookie(attemptCookie, value, age, s.config.Secure || strings.HasPrefix(s.config.Public, "https://")) //nolint:gosec // see cookie
	c.Path = loginBackPath
	return c
}

// redirect is where a provider sends browsers back to. It is made of the address that the
// operator has named, and never of what a request says of itself: whoever can write the Host of
// somebody's request would have the provider's answer sent to himself. Names of this machine are
// the exception: nobody else answers to them.
func (s *Web) redirect(r *http.Request) (string, error) {
	if s.config.Public != "" {
		return s.config.Public + loginBackPath, nil
	}
	if !ofThisMachine(r.Host) {
		return "", fault.New(fault.Unavailable, "this server does not know the address under which people reach it", fault.Remedy("log in with an API key, and ask whoever runs this installation to start servers with --public-url"))
	}
	scheme := "http://"
	if s.config.Secure {
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

// back is where to go after a login: a page of ours, and never another site.
func back(to string) string {
	parsed, err := url.Parse(to)
	if err != nil || parsed.IsAbs() || parsed.Host != "" || !strings.HasPrefix(path.Clean(parsed.Path)+"/", "/ui/") || strings.HasPrefix(to, "//") || strings.Contains(to, "\\") {
		return "/ui/"
	}
	return parsed.RequestURI()
}
