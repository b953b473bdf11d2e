package daemon

import (
	"context"
	"net"
	"os"

	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/edge/callbacks"
	"go.arco.dev/servo/internal/loops/dispatcher"
)

// startDispatch sends tasks of push pools, once callbacks can be answered.
func (d *Daemon) startDispatch(ctx context.Context) {
	d.dispatch.Store(dispatcher.Start(ctx, d.store, d.engine, dispatcher.Config{
		Server: d.config.Name, PublicURL: d.publicURL(), Breaker: d.config.Breaker, Guard: d.guard, Logger: d.config.Logger,
	}))
}

// callbacks answers push workers.
func (d *Daemon) callbacks() *callbacks.Callbacks {
	return callbacks.New(callbacks.Options{Server: d.api, Engine: d.engine, PublicURL: d.publicURL(), Logger: d.config.Logger})
}

// publicURL is where workers reach this server: as it was configured, or as it listens.
func (d *Daemon) publicURL() string {
	if d.config.PublicURL != "" {
		return d.config.PublicURL
	}
	address, ok := d.httpAddr.(*net.TCPAddr)
	if !ok || !address.IP.IsUnspecified() {
		return d.Scheme() + d.httpAddr.String()
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	_, port, _ := net.SplitHostPort(address.String()) // it came from a listener
	return d.Scheme() + net.JoinHostPort(host, port)
}

// breakers returns the state of push pools on this server to the API.
type breakers struct{ daemon *Daemon }

// Breaker implements api.Breakers.
func (b breakers) Breaker(pool string) (api.Breaker, bool) {
	running := b.daemon.dispatch.Load()
	if running == nil {
		return api.Breaker{}, false
	}
	status, known := running.Pool(pool)
	return api.Breaker{State: status.State, RetryAt: status.RetryAt, LastError: status.LastError}, known
}

// Dispatch returns the state of every push pool on this server.
func (d *Daemon) Dispatch() []dispatcher.Status {
	if running := d.dispatch.Load(); running != nil {
		return running.Stats()
	}
	return nil
}
