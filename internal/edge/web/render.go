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

// errLoggedOut redirects a visitor to the login.
var errLoggedOut = errors.New("not logged in")

func noSuchPage(path string) error {
	return fault.New(fault.NotFound, "page "+view.Clip(path, 100)+" does not exist", fault.Remedy("open the overview or use the search"))
}

func crossOrigin() error {
	return fault.New(fault.Forbidden, "the request comes from another site", fault.Remedy("open the page on this server and try again"))
}

// document responds with a complete page.
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
	layout := s.layout(v)
	layout.Notice = takeNotice(w, r, s.options.Secure)
	if shown.Live {
		layout.LiveAt = liveAddress(r)
	}
	s.write(w, r, http.StatusOK, view.Document(layout, shown))
}

// layout is the layout of the pages of a visit.
func (s *Web) layout(v *visit) view.Layout {
	l := view.Layout{Files: s.files.byName, Version: s.options.Version, Path: v.URL.Path, Open: s.options.Open, Scope: v.scope, Actor: v.who.GetActor(), Role: v.who.GetRole(), Platform: v.everywhere()}
	l.May = func(permission string) bool { return v.may(access.Permission(permission)) }
	l.Has = func(path string) bool { return s.paths[path] }
	if l.Tenants = v.tenants(); l.Tenants != nil {
		return l
	}
	// The page works without them: the search finds tenants too.
	if list, err := s.api.tenants.ListTenants(v.ctx, &servov1.ListTenantsRequest{PageSize: tenantsOffered}); err == nil {
		for _, t := range list.GetTenants() {
			l.Tenants = append(l.Tenants, t.GetName())
		}
	}
	return l
}

// write renders a component completely before it responds, so that a failure is an error page and
// not half a page.
func (s *Web) write(w http.ResponseWriter, r *http.Request, status int, c templ.Component) {
	var body bytes.Buffer
	if err := c.Render(r.Context(), &body); err != nil {
		if r.Context().Err() == nil {
			s.log.ErrorContext(r.Context(), "render a page", "path", r.URL.Path, "error", err)
		}
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	var to io.WriteCloser = uncompressed{w}
	if body.Len() >= minCompressed && compress(w, r) {
		to = newGzipped(w, s.gzip)
	}
	w.WriteHeader(status)
	if _, err := to.Write(body.Bytes()); err == nil {
		_ = to.Close() // a browser that has left reads nothing
	}
}

// docOf is the problem document of an error of the API.
func docOf(err error) (int, problem.Doc) { return problem.Document(problem.Status(err)) }

// hasCode reports whether a call failed with a code.
func hasCode(err error, code fault.Code) bool {
	if err == nil {
		return false
	}
	_, doc := docOf(err)
	return doc.Code == string(code)
}

// fail responds with a page that shows the error and its remedy.
func (s *Web) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errLoggedOut) || hasCode(err, fault.Unauthenticated) {
		s.toLogin(w, r)
		return
	}
	status, doc := docOf(err)
	if status >= http.StatusInternalServerError {
		s.log.WarnContext(r.Context(), "a page failed", "path", r.URL.Path, "error", err)
	}
	layout := view.Layout{Files: s.files.byName, Version: s.options.Version, Path: r.URL.Path, Open: s.options.Open, May: func(string) bool { return false }}
	if v, err := s.visit(r); err == nil {
		layout = s.layout(v)
	}
	s.write(w, r, status, view.Document(layout, view.Page{Title: doc.Title, Body: view.Problem(status, doc)}))
}

// toLogin redirects to the login, which leads back to the page. A stream redirects its whole page.
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

// recovered responds for a page that panicked.
func (s *Web) recovered(w http.ResponseWriter, r *http.Request) {
	caught := recover()
	if caught == nil {
		return
	}
	if caught == http.ErrAbortHandler { //nolint:errorlint // net/http compares by identity
		panic(caught)
	}
	s.log.ErrorContext(r.Context(), "a page panicked", "path", r.URL.Path, "panic", caught, "stack", string(debug.Stack()))
	http.Error(w, "internal error", http.StatusInternalServerError)
}
