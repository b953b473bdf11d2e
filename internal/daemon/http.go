package daemon

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
	"go.arco.dev/servo/internal/store"
)

// restPattern is everything that has no handler of its own here.
const restPattern = "/"

// routes is everything that HTTP answers: health, metrics, pages, and the API's REST for the rest.
func (d *Daemon) routes(m *edgeMetrics, rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", d.readyz)
	if d.config.Metrics == "" {
		mux.Handle("GET /metrics", d.forOperators(promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})))
	}
	mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusSeeOther))
	mux.Handle("/ui/", d.pages)
	mux.Handle("GET /ui", http.RedirectHandler("/ui/", http.StatusMovedPermanently))
	mux.Handle(restPattern, d.certifiedPaths(rest))
	return m.measure(patient(d.atHome(sameOrigin(d.callbacks().Before(cleanPaths(mux))))))
}

// forOperators asks for a platform key: what is served names tenants. An address that only this
// machine reaches is no reason to ask for none, since a proxy on this machine makes it public.
func (d *Daemon) forOperators(next http.Handler) http.Handler {
	if d.config.Open {
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

// installationSecret is what sessions are sealed with: all servers open each other's.
func (d *Daemon) installationSecret(ctx context.Context) ([]byte, error) {
	return d.store.InstallationSecret(ctx, store.PageTokenSecret)
}

// atHome refuses requests that name another host than this machine, while no keys are asked
// for: a page somewhere else could have its own name lead here, and then speak as if it were
// ours.
func (d *Daemon) atHome(next http.Handler) http.Handler {
	if !d.config.Open {
		return next
	}
	return localHosts(next)
}

// localHosts refuses requests that name another host than this machine.
func localHosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !IsLoopback(withPort(r.Host)) {
			problem.Write(w, r, fault.New(fault.Forbidden, "this server asks for no keys and answers to the names of this machine alone",
				fault.Field("Host"), fault.Remedy("use http://localhost or http://127.0.0.1")))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sameOrigin refuses unsafe methods from pages of other origins: a browser sends its cookies and
// reaches loopback addresses for any page. Pages refuse such requests themselves, with a page.
// Clients that are no browsers send neither Sec-Fetch-Site nor Origin and are not affected.
func sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/ui/") {
			next.ServeHTTP(w, r)
			return
		}
		if err := protection.Check(r); err != nil {
			problem.Write(w, r, fault.New(fault.Forbidden, "cross-origin request: a page of another origin cannot change anything here", fault.Field("Origin"),
				fault.Remedy("send the request from a page of this server, or from a program that sends neither Origin nor Sec-Fetch-Site"), fault.Cause(err)))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "80")
}

// patient gives the body of a request its time, and no more. The server's own ReadTimeout
// would also end the answer that a long claim or a stream waits for.
func patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			control, began := http.NewResponseController(w), time.Now()
			if control.SetReadDeadline(bodyDeadline(began, 0)) == nil {
				r.Body = &timedBody{ReadCloser: r.Body, control: control, began: began}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// bodyDeadline is the time by which more of a body must arrive, by the number of bytes received: a body that
// trickles holds a connection for some seconds, one that comes at a useful rate is read to its end.
func bodyDeadline(began time.Time, read int64) time.Time {
	return began.Add(min(bodyPatience, bodyStart+time.Duration(read)*time.Second/bodyRate))
}

// timedBody moves the deadline with what was read, and takes it back at the end of the body.
type timedBody struct {
	io.ReadCloser

	control *http.ResponseController
	began   time.Time
	read    int64
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{}) // it was possible to set it
	} else {
		_ = b.control.SetReadDeadline(bodyDeadline(b.began, b.read))
	}
	return n, err
}
