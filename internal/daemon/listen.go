package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // callers may compress; a message is as long as what it becomes
	"google.golang.org/grpc/keepalive"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/edge/rest"
	"go.arco.dev/servo/internal/edge/web"
)

// The limits of the two edges. There is no limit on how long an answer takes: claims wait
// for work, and streams last as long as a run.
const (
	headerPatience = 10 * time.Second // for the head of a request
	bodyPatience   = time.Minute      // for its body
	bodyStart      = 10 * time.Second // for a body that does not come
	bodyRate       = 64 << 10         // bytes a second of one that does
	idlePatience   = 2 * time.Minute  // between two requests of a connection
	maxHeaderBytes = 64 << 10

	maxMessageBytes  = 4 << 20          // of a request over gRPC, after decompression
	maxStreams       = 1000             // calls at once on one connection
	connectPatience  = 10 * time.Second // for the handshake
	pingAfter        = time.Minute      // of silence, to find callers that are gone
	pingPatience     = 20 * time.Second
	pingsAllowedEach = 5 * time.Second // workers may ask as often whether we live
)

// listen opens both addresses before it serves any, so that a server that cannot have both
// answers on none.
func (d *Daemon) listen(ctx context.Context) error {
	d.api = api.New(api.Options{
		Store: d.store, Engine: d.engine, Logger: d.config.Logger, Version: d.config.Version, Name: d.config.Name, StartedAt: time.Now(), Tracer: d.config.Traces.Tracer(),
		Breakers: breakers{d}, Guard: d.guard, Open: d.config.Open, Development: d.config.Development, Rates: d.config.Rates, Tokens: d.tokens,
	})
	if err := d.api.Prepare(ctx); err != nil {
		return err
	}
	channel := rest.Inside(d.api)                       //nolint:contextcheck,nolintlint // it lives as long as the server; seen or not, by what is cached
	handler, err := rest.Over(channel, d.config.Logger) //nolint:contextcheck,nolintlint // likewise
	if err != nil {
		return err
	}
	if d.pages, err = web.New(web.Options{
		Channel: channel, Secret: d.installationSecret, Open: d.config.Open, Secure: d.tls != nil, Version: d.config.Version, Logger: d.config.Logger,
		Logins: d.tokens, Public: strings.TrimRight(d.config.PublicURL, "/"), LoggedOut: d.engine.EndSession,
	}); err != nil {
		return err
	}
	d.engine.OnSessionEnd(d.pages.EndSession)
	httpListener, err := listenOn(ctx, "--http", d.config.HTTP)
	if err != nil {
		return err
	}
	grpcListener, err := listenOn(ctx, "--grpc", d.config.GRPC)
	if err != nil {
		return errors.Join(err, httpListener.Close())
	}
	d.httpAddr, d.grpcAddr = httpListener.Addr(), grpcListener.Addr()

	m := newMetrics(d)
	if err := d.serveMetrics(ctx, m); err != nil {
		return errors.Join(err, httpListener.Close(), grpcListener.Close())
	}
	d.grpc = grpc.NewServer(append(d.encrypted(),
		grpc.ChainUnaryInterceptor(m.unary, d.api.Unary()),
		grpc.ChainStreamInterceptor(m.stream, receiving, d.api.Stream()), //nolint:contextcheck,nolintlint // each stream has its own context; the linter's cache decides whether it reports this
		grpc.MaxRecvMsgSize(2*maxMessageBytes),                           // gRPC refuses larger ones itself, without details
		grpc.ForceServerCodecV2(newReceivingCodec()),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(connectPatience),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingsAllowedEach, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingPatience}),
		grpc.WaitForHandlers(true), // aborted handlers end before the engine stops
	)...)
	d.api.Register(receivingRegistrar{d.grpc})
	d.http = &http.Server{
		Handler:           d.routes(m, handler),
		ReadHeaderTimeout: headerPatience,
		IdleTimeout:       idlePatience,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(d.config.Logger.Handler(), slog.LevelDebug),
	}
	d.serve("gRPC", func() error { return d.grpc.Serve(grpcListener) })
	d.serveHTTP("HTTP", d.http, httpListener)
	return nil
}

// serveHTTP serves with the server's certificate, if it has one.
func (d *Daemon) serveHTTP(what string, server *http.Server, listener net.Listener) {
	listener = explained(server, listener)
	d.serve(what, func() error {
		if d.tls == nil {
			return server.Serve(listener)
		}
		server.TLSConfig = d.tls.config()
		return server.ServeTLS(listener, "", "") // with HTTP/2
	})
}

// checkOpen refuses a server without keys where other machines can reach it.
func (c Config) checkOpen() error {
	for _, f := range []struct{ flag, address string }{{"--http", c.HTTP}, {"--grpc", c.GRPC}, {"--metrics", c.Metrics}} {
		if c.Open && !IsLoopback(f.address) {
			return fault.New(fault.InvalidArgument, fmt.Sprintf("other machines can reach %q, and no keys are asked for", f.address),
				fault.Field(f.flag), fault.Remedy("listen on 127.0.0.1, or leave --open out and give out keys: servo keys bootstrap"))
		}
	}
	return nil
}

// IsLoopback reports whether only this machine reaches an address.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // not an address: listening reports it better
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// listenOn opens one address. Its error names the flag of the address.
func listenOn(ctx context.Context, flag, address string) (net.Listener, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		return listener, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fault.New(fault.Conflict, address+" is in use", fault.Field(flag),
			fault.Remedy("end what listens there, or give another address with "+flag), fault.Cause(err))
	default:
		return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("cannot listen on %q: %s", address, oneLine(err)), fault.Field(flag),
			fault.Remedy("give host:port of this machine with "+flag), fault.Cause(err))
	}
}

// CheckAddress returns the fault that Start would return if an address cannot be listened on now.
func CheckAddress(ctx context.Context, flag, address string) error {
	listener, err := listenOn(ctx, flag, address)
	if err != nil {
		return err
	}
	return listener.Close()
}

// serve runs one listener until it is stopped, and reports an unexpected end.
func (d *Daemon) serve(what string, run func() error) {
	d.serving.Go(func() {
		err := run()
		if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) || d.draining.Load() {
			return
		}
		d.config.Logger.Error("a listener died", slog.String("listener", what), slog.Any("error", err))
		d.failed <- fmt.Errorf("the %s listener died: %w", what, err)
	})
}

// drain closes the listeners and waits for calls in flight. Waiting calls, claims and streams, are
// ended first. Calls that remain after the drain time are aborted.
func (d *Daemon) drain(ctx context.Context) error {
	d.api.Close() //nolint:contextcheck,nolintlint // pending writes have their own deadline; the linter's cache decides whether it reports this
	d.pages.Close()
	ctx, cancel := context.WithTimeout(ctx, d.config.Drain)
	defer cancel()

	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		d.grpc.GracefulStop()
	}()
	err := d.http.Shutdown(ctx)
	if d.metrics != nil {
		_ = d.metrics.Close() // a scrape that is cut off is made again
	}
	select {
	case <-graceful:
	case <-ctx.Done():
		d.config.Logger.Warn("calls are still running after the drain: cutting them off", slog.Duration("drain", d.config.Drain))
		d.grpc.Stop()
		<-graceful
	}
	if err != nil { // the time is over: these are cut off too
		err = d.http.Close()
	}
	d.serving.Wait()
	return err
}
