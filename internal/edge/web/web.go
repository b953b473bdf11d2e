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

// Config is what the pages stand on.
type Config struct {
	Channel grpc.ClientConnInterface // to the services, through their interceptors
	Secret  func(ctx context.Context) ([]byte, error)
	Open    bool           // no keys are asked for, and nobody logs in
	Secure  bool           // the address is encrypted: cookies are for such connections alone
	Logins  *oidc.Verifier // the providers that people log in with; nil is none
	Public  string         // https://HOST under which people reach the pages; "" is only known of this machine
	Version string
	Logger  *slog.Logger
	// LoggedOut is called for each session that ends here, to tell other servers; see EndSession.
	LoggedOut func(session string, until time.Time)

	Refresh time.Duration // how often a page that is open is looked at again; 0 is refreshEach
}

// Web answers everything under /ui.
type Web struct {
	config   Config
	api      services
	sessions *sessions
	files    files
	gzip     *compressors
	log      *slog.Logger
	mux      *http.ServeMux
	seats    *seats          // of pages that are open
	paths    map[string]bool // of pages
	now      func() time.Time

	closing context.Context //nolint:containedctx // the life of the server, not of a request
	close   context.CancelFunc
}

// New makes the pages.
func New(config Config) (*Web, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Refresh == 0 {
		config.Refresh = refreshEach
	}
	files, err := readFiles()
	if err != nil {
		return nil, err
	}
	s := &Web{
		config: config, api: newServices(config.Channel), sessions: &sessions{secret: config.Secret, secure: config.Secure},
		files: files, gzip: newCompressors(), log: config.Logger, mux: http.NewServeMux(), seats: newSeats(), paths: map[string]bool{}, now: time.Now,
	}
	s.closing, s.close = context.WithCancel(context.Background())
	s.routes()
	if choices := config.Logins.Choices(); len(choices) > 0 {
		s.log.Info("people log in with providers, which must know where to send them back to", "providers", len(choices), "redirect_url", config.Public+loginBackPath)
	}
	return s, nil
}

// Close ends the pages that are open, so that a server can stop.
func (s *Web) Close() { s.close() }

// policy lets a page load what this binary serves and nothing else. There is no script and no
// style in the documents themselves.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP answers a request.
func (s *Web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	defer s.recovered(w, r)
	// Whatever changes something must come from one of our own pages.
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		s.fail(w, r, crossOrigin())
		return
	}
	s.mux.ServeHTTP(w, r)
}

// page is a page that people look at: what it shows follows from the visit alone.
type page func(v *visit) (view.Page, error)

// action changes something, and says where to go and what was done.
type action func(v *visit) (done, error)

// routes is every page and action.
func (s *Web) routes() {
	s.mux.HandleFunc("GET /ui/static/{file...}", s.files.serve)
	s.loginRoutes()
	s.mux.HandleFunc("GET /ui/{rest...}", func(w http.ResponseWriter, r *http.Request) { s.fail(w, r, noSuchPage(r.URL.Path)) })

	s.show("/{$}", s.overview)
	s.assetRoutes()
	s.capacityRoutes()
	s.runRoutes()
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
	s.mux.HandleFunc("GET /ui/live"+path, func(w http.ResponseWriter, r *http.Request) { s.live(w, r, p) }) //nolint:contextcheck,nolintlint // it goes on until the page is left, or the server stops; seen or not, by what is cached
}

// act registers an action.
func (s *Web) act(path string, a action) {
	s.mux.HandleFunc("POST /ui"+path, func(w http.ResponseWriter, r *http.Request) { s.perform(w, r, a) })
}
