package daemon

import (
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"go.arco.dev/servo/internal/api/problem"
)

// restPattern is everything that has no handler of its own here.
const restPattern = "/"

// routes is everything that HTTP answers: health, metrics, and the API's REST for the rest.
func (d *Daemon) routes(m *edgeMetrics, rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", d.readyz)
	mux.Handle("GET /metrics", d.forOperators(promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})))
	mux.HandleFunc("GET /{$}", welcome)
	mux.Handle(restPattern, d.certifiedPaths(rest))
	return m.measure(patient(d.callbacks().Before(mux)))
}

// forOperators asks for a platform key, unless nobody else reaches the address: what is served
// names tenants.
func (d *Daemon) forOperators(next http.Handler) http.Handler {
	if d.config.Open || IsLoopback(d.config.HTTP) {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := d.api.Operator(r.Context(), r.URL.Path, r.Header.Values("Authorization"), r.Header.Values("X-Api-Key")); err != nil {
			problem.Write(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// welcome is what a browser sees.
func welcome(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, `Servo runs data pipelines for many tenants on PostgreSQL.

/docs          the API, for people
/openapi.json  the same, for programs
/v1/status     what is queued and running
/metrics       for Prometheus
/healthz       the process lives
/readyz        the server can do its work

The command line talks to the gRPC address: servo --help
`)
}

// patient gives the body of a request its time, and no more. The server's own ReadTimeout
// would also end the answer that a long claim or a stream waits for.
func patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			control := http.NewResponseController(w)
			if control.SetReadDeadline(time.Now().Add(bodyPatience)) == nil {
				r.Body = &timedBody{ReadCloser: r.Body, control: control}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody takes the deadline back once the body was read.
type timedBody struct {
	io.ReadCloser

	control *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{}) // it was possible to set it
	}
	return n, err
}
