package web

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/a-h/templ"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/problem"
	"go.arco.dev/servo/internal/edge/web/view"
)

// errLoggedOut sends a visitor to the login.
var errLoggedOut = errors.New("nobody is logged in")

func noSuchPage(path string) error {
	return fault.New(fault.NotFound, "there is no page at "+view.Clip(path, 100), fault.Remedy("go to the overview, or search for what you are looking for"))
}

func crossOrigin() error {
	return fault.New(fault.Forbidden, "this request comes from another site", fault.Remedy("open the page here and try again"))
}

// document answers with a whole page.
func (s *Web) document(w http.ResponseWriter, r *http.Request, p page) {
	v, err := s.visit(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	shown, err := p(v)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	frame := s.frame(v)
	frame.Notice = takeNotice(w, r, s.config.Secure)
	if shown.Live {
		frame.LiveAt = liveAddress(r)
	}
	s.write(w, r, http.StatusOK, view.Document(frame, shown))
}

// frame is what surrounds every page.
func (s *Web) frame(v *visit) view.Frame {
	f := view.Frame{Files: s.files.byName, Version: s.config.Version, Path: v.URL.Path, Open: s.config.Open, Scope: v.scope, Actor: v.who.GetActor(), Role: v.who.GetRole(), Platform: v.everywhere()}
	f.May = func(permission string) bool { return v.may(access.Permission(permission)) }
	f.Has = func(path string) bool { return s.paths[path] }
	if f.Tenants = v.tenants(); f.Tenants != nil {
		return f
	}
	// The frame stands without them: what is missing can be typed into the search.
	if list, err := s.api.tenants.ListTenants(v.ctx, &servov1.ListTenantsRequest{PageSize: tenantPages}); err == nil {
		for _, t := range list.GetTenants() {
			f.Tenants = append(f.Tenants, t.GetName())
		}
	}
	return f
}

// write renders first and answers then, so that a page that fails on its way is an error and
// not half a page.
func (s *Web) write(w http.ResponseWriter, r *http.Request, status int, c templ.Component) {
	var body bytes.Buffer
	if err := c.Render(r.Context(), &body); err != nil {
		if r.Context().Err() == nil {
			s.log.ErrorContext(r.Context(), "a page could not be written", "path", r.URL.Path, "error", err)
		}
		http.Error(w, "something went wrong on our side", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	var to io.WriteCloser = asItIs{w}
	if body.Len() >= minCompressed && compress(w, r) {
		to = newGzipped(w, s.gzip)
	}
	w.WriteHeader(status)
	if _, err := to.Write(body.Bytes()); err == nil {
		_ = to.Close() // who has gone reads nothing
	}
}

// docOf is what went wrong, in the words of the API.
func docOf(err error) (int, problem.Doc) { return problem.Document(problem.Status(err)) }

// hasCode reports whether a call failed of a reason.
func hasCode(err error, code fault.Code) bool {
	if err == nil {
		return false
	}
	_, doc := docOf(err)
	return doc.Code == string(code)
}

// fail answers with a page that says what went wrong and what to do.
func (s *Web) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errLoggedOut) || hasCode(err, fault.Unauthenticated) {
		s.toLogin(w, r)
		return
	}
	status, doc := docOf(err)
	if status >= http.StatusInternalServerError {
		s.log.WarnContext(r.Context(), "a page could not be shown", "path", r.URL.Path, "error", err)
	}
	frame := view.Frame{Files: s.files.byName, Version: s.config.Version, Path: r.URL.Path, Open: s.config.Open, May: func(string) bool { return false }}
	if v, err := s.visit(r); err == nil {
		frame = s.frame(v)
	}
	s.write(w, r, status, view.Document(frame, view.Page{Title: doc.Title, Body: view.Problem(status, doc)}))
}

// toLogin sends somebody to the login, and from there back. A stream makes the whole page go
// there, and come back to the page.
func (s *Web) toLogin(w http.ResponseWriter, r *http.Request) {
	s.sessions.end(w)
	target := loginPath
	if r.Method == http.MethodGet {
		page := r.URL.RequestURI()
		if rest, live := strings.CutPrefix(page, livePrefix+"/"); live {
			page = "/ui/" + rest
		}
		target += "?" + url.Values{"back": {page}}.Encode()
	}
	if r.Header.Get("HX-Request") != "" {
		w.Header().Set("HX-Redirect", target)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	http.Redirect(w, r, target, http.StatusSeeOther)
}

// recovered answers for a page that panicked.
func (s *Web) recovered(w http.ResponseWriter, r *http.Request) {
	caught := recover()
	if caught == nil {
		return
	}
	if caught == http.ErrAbortHandler { //nolint:errorlint // it is this very value, never wrapped
		panic(caught)
	}
	s.log.ErrorContext(r.Context(), "a page panicked", "path", r.URL.Path, "panic", caught, "stack", string(debug.Stack()))
	http.Error(w, "something went wrong on our side", http.StatusInternalServerError)
}
