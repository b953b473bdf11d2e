package daemon

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
)

// serveMetrics serves /metrics at an address of its own, without a key: any client that reaches the address
// may read them. One that only this machine reaches answers to the names of this machine alone, so
// that no page in a browser reads them by a name of its own.
func (d *Daemon) serveMetrics(ctx context.Context, m *edgeMetrics) error {
	if d.config.Metrics == "" {
		return nil
	}
	listener, err := listenOn(ctx, "--metrics", d.config.Metrics)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc(restPattern, func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, r, fault.New(fault.NotFound, "this address serves metrics only", fault.Remedy("read GET /metrics, or use the address of --http")))
	})
	var handler http.Handler = mux
	if IsLoopback(d.config.Metrics) {
		handler = localHosts(handler)
	}
	d.metrics = &http.Server{
		Handler: handler, ReadHeaderTimeout: headerPatience, ReadTimeout: headerPatience, IdleTimeout: idlePatience, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(d.config.Logger.Handler(), slog.LevelDebug),
	}
	d.metricsAddr = listener.Addr()
	d.serveHTTP("metrics", d.metrics, listener)
	return nil
}

// MetricsAddr is where metrics are answered without a key; "" is nowhere.
func (d *Daemon) MetricsAddr() string {
	if d.metricsAddr == nil {
		return ""
	}
	return d.metricsAddr.String()
}
