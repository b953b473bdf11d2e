package web

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"

	"go.arco.dev/servo/internal/edge/oidc"
	"go.arco.dev/servo/internal/edge/web/view"
)

// Options are the dependencies and settings of the pages.
type Options struct {
	Channel grpc.ClientConnInterface // to the services of the API, through their interceptors
	Secret  func(ctx context.Context) ([]byte, error)
	Open    bool           // no login
	Secure  bool           // cookies are for encrypted connections only
	Logins  *oidc.Verifier // identity providers; nil without any
	Public  string         // https://HOST of the pages; "" allows logins on this machine only
	Version string
	Logger  *slog.Logger
	// LoggedOut is called for each session that ends here, to notify other servers; see EndSession.
	LoggedOut func(session string, until time.Time)

	Refresh time.Duration // interval of live pages; 0 is refreshInterval
}

// Web serves everything under /ui.
type Web struct {
	options   Options
	api       services
	sessions  *sessions
	files     files
	gzip      *compressors
	log       *slog.Logger
	mux       *http.ServeMux
	livePages *livePages
	paths     map[string]bool // of pages
	now       func() time.Time

	closing context.Context //nolint:containedctx // of the server, not of a request
	close   context.CancelFunc
}

// New creates the pages.
func New(options Options) (*Web, error) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Refresh == 0 {
		options.Refresh = refreshInterval
	}
	files, err := readFiles()
	if err != nil {
		return nil, err
	}
	s := &Web{
		options: options, api: newServices(options.Channel), sessions: &sessions{secret: options.Secret, secure: options.Secure},
		files: files, gzip: newCompressors(), log: options.Logger, mux: http.NewServeMux(), livePages: newLivePages(), paths: map[string]bool{}, now: time.Now,
	}
	s.closing, s.close = context.WithCancel(context.Background())
	s.routes()
	if choices := options.Logins.Choices(); len(choices) > 0 {
		s.log.Info("login with identity providers is enabled; register the redirect URL with each", "providers", len(choices), "redirect_url", options.Public+loginBackPath)
	}
	return s, nil
}

// Close ends the live pages, so that a server can stop.
func (s *Web) Close() { s.close() }

// policy allows pages to load files of this binary and nothing else. Documents contain no scripts
// and no styles.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves a request.
func (s *Web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	defer s.recovered(w, r)
	// Requests that change an object must come from a page of this server.
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		s.fail(w, r, crossOrigin())
		return
	}
	s.mux.ServeHTTP(w, r)
}

// page renders a page from a visit.
type page func(v *visit) (view.Page, error)

// action changes an object and returns the next page.
type action func(v *visit) (done, error)

// routes registers all pages and actions.
func (s *Web) routes() {
	s.mux.HandleFunc("GET /ui/static/{file...}", s.files.serve)
	s.loginRoutes()
	s.mux.HandleFunc("GET /ui/{rest...}", func(w http.ResponseWriter, r *http.Request) { s.fail(w, r, noSuchPage(r.URL.Path)) })

	s.show("/{$}", s.overview)
	s.assetRoutes()
	s.backfillRoutes()
	s.capacityRoutes()
	s.releaseRoutes()
	s.runRoutes()
	s.logRoutes()
	s.pipelineRoutes()
	s.configRoutes()
	s.simulatorRoutes()
	s.tenantRoutes()
	s.alertRoutes()
	s.adminRoutes()
	s.eventRoutes()
	s.searchRoutes()
}

// show registers a page: the document, and the stream of its body.
func (s *Web) show(path string, p page) {
	s.paths["/ui"+strings.TrimSuffix(path, "{$}")] = true
	s.mux.HandleFunc("GET /ui"+path, func(w http.ResponseWriter, r *http.Request) { s.document(w, r, p) })
	s.mux.HandleFunc("GET /ui/live"+path, func(w http.ResponseWriter, r *http.Request) { s.live(w, r, p) }) //nolint:contextcheck,nolintlint // it lasts until the page is closed or the server stops; the linter reports it or not, depending on its cache
}

// act registers an action.
func (s *Web) act(path string, a action) {
	s.mux.HandleFunc("POST /ui"+path, func(w http.ResponseWriter, r *http.Request) { s.perform(w, r, a) })
}
