// Package daemon is a whole server: it opens the store, starts the engine, the loops and the
// two listeners, and stops them in the right order. It is where everything is wired, and
// decides nothing else.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"go.arco.dev/servo/internal/admission"
	"go.arco.dev/servo/internal/api"
	"go.arco.dev/servo/internal/api/rest"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/reaper"
	"go.arco.dev/servo/internal/store"
)

// Config says how a server runs.
type Config struct {
	DatabaseURL string
	MaxConns    int32         // 0 leaves it to the URL or the driver
	HTTP        string        // address of REST, metrics and health
	GRPC        string        // address of gRPC
	Name        string        // of this server among the others
	Version     string        // of this binary
	Migrate     bool          // bring the database to this version's schema first
	Drain       time.Duration // how long calls may take to end when the server stops
	Engine      engine.Config
	Logger      *slog.Logger
}

// Daemon is a running server.
type Daemon struct {
	config    Config
	store     *store.Store
	engine    *engine.Engine
	admission *admission.Admission
	reaper    *reaper.Reaper

	grpc     *grpc.Server
	http     *http.Server
	grpcAddr net.Addr
	httpAddr net.Addr
}

// Start starts a server and returns when it answers.
func Start(ctx context.Context, config Config) (*Daemon, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Daemon{config: config}
	if err := d.start(ctx); err != nil {
		return nil, errors.Join(err, d.Stop(ctx))
	}
	return d, nil
}

func (d *Daemon) start(ctx context.Context) (err error) {
	if d.store, err = store.Open(ctx, store.Options{URL: d.config.DatabaseURL, MaxConns: d.config.MaxConns, Logger: d.config.Logger}); err != nil {
		return err
	}
	if d.config.Migrate {
		if _, err := d.store.Migrate(ctx); err != nil {
			return err
		}
	}
	if err := d.store.Prepare(ctx); err != nil {
		return err
	}
	d.engine = engine.New(d.store, d.config.Engine, d.config.Logger)
	d.admission = admission.Start(d.store, d.engine, admission.Config{Holder: d.config.Name, Logger: d.config.Logger})
	d.reaper = reaper.Start(d.store, d.engine, reaper.Config{Logger: d.config.Logger})
	return d.listen(ctx)
}

func (d *Daemon) listen(ctx context.Context) error {
	server := api.New(api.Config{
		Store: d.store, Engine: d.engine, Logger: d.config.Logger, Version: d.config.Version, Name: d.config.Name, StartedAt: time.Now(),
	})
	handler, err := rest.New(server, d.config.Logger)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	httpListener, err := lc.Listen(ctx, "tcp", d.config.HTTP)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	grpcListener, err := lc.Listen(ctx, "tcp", d.config.GRPC)
	if err != nil {
		return errors.Join(fmt.Errorf("listen for gRPC: %w", err), httpListener.Close())
	}
	d.httpAddr, d.grpcAddr = httpListener.Addr(), grpcListener.Addr()
	d.grpc = grpc.NewServer(grpc.ChainUnaryInterceptor(server.Unary()), grpc.ChainStreamInterceptor(server.Stream()))
	server.Register(d.grpc)
	d.http = &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = d.grpc.Serve(grpcListener) }()
	go func() { _ = d.http.Serve(httpListener) }()
	return nil
}

// HTTPAddr is where REST is answered.
func (d *Daemon) HTTPAddr() string { return d.httpAddr.String() }

// GRPCAddr is where gRPC is answered.
func (d *Daemon) GRPCAddr() string { return d.grpcAddr.String() }

// Stop ends everything in the reverse order.
func (d *Daemon) Stop(ctx context.Context) error {
	var errs []error
	if d.grpc != nil {
		d.grpc.Stop()
		errs = append(errs, d.http.Close())
	}
	if d.engine != nil {
		d.reaper.Stop()
		errs = append(errs, d.admission.Stop(ctx))
		d.engine.Stop()
	}
	if d.store != nil {
		d.store.Close()
	}
	return errors.Join(errs...)
}
