package daemon

import (
	"context"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"go.arco.dev/servo/internal/edge/metrics"
)

// edgeMetrics are the metrics of calls, with the registry of all metrics. Each server has a registry of its own: two of them in one
// process count apart.
type edgeMetrics struct {
	registry *prometheus.Registry

	httpRequests *prometheus.CounterVec
	httpSeconds  *prometheus.HistogramVec
	httpInFlight prometheus.Gauge
	grpcHandled  *prometheus.CounterVec
	grpcSeconds  *prometheus.HistogramVec
	grpcInFlight prometheus.Gauge
}

// seconds are the buckets of how long answers take: from a read in memory to a claim that
// waits for a minute.
func seconds() []float64 {
	return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
}

func newMetrics(d *Daemon) *edgeMetrics {
	m := &edgeMetrics{
		registry: prometheus.NewRegistry(),
		httpRequests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "http_requests_total", Help: "Requests answered over HTTP.",
		}, []string{"method", "route", "code"}),
		httpSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "http_request_duration_seconds", Help: "How long requests over HTTP took, streams and waiting claims included.", Buckets: seconds(),
		}, []string{"method", "route"}),
		httpInFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "http_requests_in_flight", Help: "Requests over HTTP that are not answered yet.",
		}),
		grpcHandled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grpc_server_handled_total", Help: "Calls answered over gRPC.",
		}, []string{"method", "code"}),
		grpcSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "grpc_server_handling_seconds", Help: "How long calls over gRPC took, streams and waiting claims included.", Buckets: seconds(),
		}, []string{"method"}),
		grpcInFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "grpc_server_in_flight", Help: "Calls over gRPC that are not answered yet.",
		}),
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(d.config.Version), newInside(d.store, d.engine, d.Dispatch), metrics.NewCollector(d.recorder, d.store),
		metrics.NewLiveCollector(d.store, d.config.Name, d.config.TenantLabels, d.config.Logger),
		m.httpRequests, m.httpSeconds, m.httpInFlight, m.grpcHandled, m.grpcSeconds, m.grpcInFlight,
	)
	return m
}

// buildInfo is always 1; its labels are the version of Servo.
func buildInfo(version string) prometheus.Collector {
	revision := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				revision = setting.Value
			}
		}
	}
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "servo_build_info", Help: "Which Servo this is.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "go_version": runtime.Version()},
	})
	gauge.Set(1)
	return gauge
}

// unary counts and times calls over gRPC.
func (m *edgeMetrics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	begun := time.Now()
	m.grpcInFlight.Inc()
	defer m.grpcInFlight.Dec()
	answer, err := handler(ctx, req)
	m.handled(info.FullMethod, err, begun)
	return answer, err
}

// stream counts and times streams over gRPC.
func (m *edgeMetrics) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	begun := time.Now()
	m.grpcInFlight.Inc()
	defer m.grpcInFlight.Dec()
	err := handler(srv, stream)
	m.handled(info.FullMethod, err, begun)
	return err
}

func (m *edgeMetrics) handled(method string, err error, begun time.Time) {
	m.grpcHandled.WithLabelValues(method, status.Code(err).String()).Inc()
	m.grpcSeconds.WithLabelValues(method).Observe(time.Since(begun).Seconds())
}

// measure counts and times requests over HTTP, by the pattern of their path: the paths
// themselves have no end.
func (m *edgeMetrics) measure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		seen := &observer{ResponseWriter: w, code: http.StatusOK}
		method := methodLabel(r.Method)
		m.httpInFlight.Inc()
		defer func() { // a handler that panics was answered too, with a cut connection
			m.httpInFlight.Dec()
			route := routeLabel(r.Pattern)
			m.httpRequests.WithLabelValues(method, route, strconv.Itoa(seen.code)).Inc()
			m.httpSeconds.WithLabelValues(method, route).Observe(time.Since(begun).Seconds())
		}()
		next.ServeHTTP(seen, r)
	})
}

// routeLabel is the path of the pattern that a request has met: of http.ServeMux, or of the
// contract, which the REST edge writes into the request as well.
func routeLabel(pattern string) string {
	_, path, found := strings.Cut(pattern, "/")
	switch {
	case !found || pattern == restPattern: // nothing of ours
		return "other"
	case path == "{$}":
		return "/"
	}
	return "/" + path
}

// methodLabel keeps invented methods from becoming series.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// observer sees the status of an answer.
type observer struct {
	http.ResponseWriter

	code  int
	wrote bool
}

func (o *observer) WriteHeader(code int) {
	if !o.wrote && code >= http.StatusOK { // what comes before is only information
		o.code, o.wrote = code, true
	}
	o.ResponseWriter.WriteHeader(code)
}

func (o *observer) Write(p []byte) (int, error) {
	o.wrote = true
	return o.ResponseWriter.Write(p)
}

// Flush and Unwrap let streams through.
func (o *observer) Flush() { _ = http.NewResponseController(o.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (o *observer) Unwrap() http.ResponseWriter { return o.ResponseWriter }
