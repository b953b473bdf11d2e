package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/demo"
	"go.arco.dev/servo/internal/devkit/devpg"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/worker"
)

// The times and sizes of servo dev: its examples' tasks take seconds.
const (
	devGrace = 5 * time.Second // for tasks, when it stops
	devDrain = 5 * time.Second // for calls
	devLook  = time.Second     // interval of checks of PostgreSQL
	devSlots = 4               // capacity of the worker for deployed assets
)

// devOptions are the flags of servo dev.
type devOptions struct {
	dir, http, grpc string
	noDemo, reset   bool
	log             logging
}

// newDev runs everything on one machine.
func newDev() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run PostgreSQL, a server and examples on this machine",
		Long: `Run everything on this machine, for development: a private PostgreSQL, a server, and the
examples with their workers: four tenants whose pipelines run on schedules and are triggered,
often in the first minutes and less often afterwards. It listens on this machine only and needs
no keys: every local user may do everything.

Another worker runs exec and http assets of the pool default: your deployments run at once.
It does not have your Go functions; give assets written in Go a pool of their own.

The database is kept between starts; --reset deletes it. Ctrl-C stops everything in order, and no
process is left, however this command ends.`,
		Example: `  servo dev
  servo dev --no-demo --http 127.0.0.1:9080 --grpc 127.0.0.1:9081`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.dir, "data-dir", defaultDevDir(), "directory of the database")
	flags.StringVar(&o.http, "http", defaultHTTP, "address of REST, metrics and health")
	flags.StringVar(&o.grpc, "grpc", defaultGRPC, "address of gRPC")
	flags.BoolVar(&o.noDemo, "no-demo", false, "start without examples and workers")
	flags.BoolVar(&o.reset, "reset", false, "delete the database of earlier starts first")
	addLogging(cmd, &o.log, "warn")
	return cmd
}

func (o *devOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	log, err := o.log.logger(stderr)
	if err != nil {
		return err
	}
	// Before anything is started: an address that cannot be had, or should not.
	for _, f := range []struct{ flag, address string }{{"--http", o.http}, {"--grpc", o.grpc}} {
		if !isLoopback(f.address) {
			return openFault(f.flag, f.address, "servo dev listens on 127.0.0.1 only; for others there is servo server")
		}
		if err := daemon.CheckAddress(ctx, f.flag, f.address); err != nil {
			return err
		}
	}
	impatient, done := secondSignal(ctx)
	defer done()
	d := &dev{options: o, log: log}
	fmt.Fprintln(stdout, "starting PostgreSQL and a server that asks for no keys, on this machine only; the first time takes some seconds")
	err = d.start(ctx)
	if err == nil {
		err = d.welcome(stdout)
	}
	if err == nil {
		err = d.watch(ctx)
	}
	if ctx.Err() != nil {
		fmt.Fprintln(stdout, "stopping; once more to stop at once")
		if err != nil { // an interrupted start fails with other errors
			err = withExit(exitFailed, errors.New("interrupted"))
		}
	}
	return errors.Join(err, d.stop(ctx, impatient))
}

// dev is everything that servo dev has started, in this order.
type dev struct {
	options *devOptions
	log     *slog.Logger

	home     *devHome
	postgres *devpg.Server
	server   *daemon.Daemon
	client   *client.Client
	workers  []devWorker
	worked   chan error         // how each of them ended
	seeding  sync.WaitGroup     // triggers runs
	rest     context.CancelFunc // stops them

	closeCalls func() // closes the connections of http assets; nil if there is no worker
}

// devWorker is a worker of servo dev. That of the pool default is none of package servo: it may
// call this machine, which is for servo dev alone.
type devWorker interface {
	Run(ctx context.Context) error
	Abort()
}

// start goes from the bottom to the top; stop goes back.
func (d *dev) start(ctx context.Context) (err error) {
	o := d.options
	if d.home, err = openDevHome(o.dir); err != nil {
		return err
	}
	if o.reset {
		if err := d.home.reset(ctx, d.log); err != nil {
			return err
		}
	}
	if d.postgres, err = devpg.Start(ctx, devpg.Options{Dir: d.home.postgres(), Logger: d.log}); err != nil {
		return devFault(err)
	}
	d.server, err = daemon.Start(ctx, daemon.Config{
		DatabaseURL: d.postgres.URL(""), Migrate: true, HTTP: o.http, GRPC: o.grpc, Name: "dev", Version: thisBuild().Version,
		Drain: devDrain, Logger: d.log.With("from", "server"), Open: true, Development: true,
		Targets: netguard.Policy{Local: true}, BlobURL: d.home.blobs(),
	})
	if err != nil {
		return devFault(err)
	}
	d.client, err = client.New(client.Options{Servers: []string{d.server.GRPCAddr()}, UserAgent: "servo-dev", Logger: d.log.With("from", "client")})
	if err != nil {
		return err
	}
	if o.noDemo {
		return nil
	}
	working, rest := context.WithCancel(context.WithoutCancel(ctx)) // they stop in their turn
	d.rest = rest
	if err := d.startWorkers(working); err != nil {
		return err
	}
	examples := demo.New(demo.Options{Client: d.client, By: "servo dev", Logger: d.log.With("from", "seed")})
	if err := examples.Fill(ctx); err != nil {
		return err
	}
	d.seeding.Go(func() { examples.Run(working) })
	return nil
}

// startWorkers runs the examples' assets in this process, and a worker for deployed
// assets of the pool default. They are separate workers, because the examples' functions have names that
// users choose too: the example's code must not run a user's bronze/orders.
func (d *dev) startWorkers(ctx context.Context) error {
	log := d.log.With("from", "worker")
	for _, w := range demo.Workers(demo.WorkerOptions{Conn: d.client.Conn(), Name: "dev", Dir: d.home.lake(), BlobURL: d.home.blobs(), Grace: devGrace, Logger: log}) {
		d.workers = append(d.workers, w)
	}
	calls := worker.NewHTTP(devSlots, netguard.NewGuard(netguard.Policy{Local: true}))
	d.closeCalls = calls.Close
	w, err := worker.New(worker.Options{
		Conn: d.client.Conn(), ID: "dev-" + asset.DefaultPool, Pools: []string{asset.DefaultPool}, Concurrency: devSlots,
		Grace: devGrace, Blobs: d.server.Blobs(), Executors: []worker.Executor{worker.NewHandlers(), &worker.Exec{}, calls}, Logger: log.With("worker", "dev-"+asset.DefaultPool),
	})
	if err != nil {
		return err
	}
	d.workers = append(d.workers, w)
	d.worked = make(chan error, len(d.workers))
	for _, w := range d.workers {
		go func() { d.worked <- w.Run(ctx) }()
	}
	return nil
}

// watch waits until the context ends or a part of servo dev fails.
func (d *dev) watch(ctx context.Context) error {
	look := time.NewTicker(devLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-d.server.Failed():
			return err
		case err := <-d.worked:
			d.worked <- err // stop reads it again
			return err
		case <-look.C:
			if d.postgres.PID() == 0 {
				return fault.New(fault.Unavailable, "PostgreSQL ended by itself",
					fault.Remedy("see its log in "+d.home.postgres()+", then start again"))
			}
		}
	}
}

// stop stops everything that was started. After a second signal it does not wait.
func (d *dev) stop(ctx context.Context, impatient <-chan struct{}) error {
	ctx, hurry := context.WithCancel(context.WithoutCancel(ctx))
	defer hurry()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-impatient:
			hurry()
			for _, w := range d.workers {
				w.Abort()
			}
		case <-ended:
		}
	}()
	var errs []error
	if d.rest != nil {
		d.rest()
	}
	d.seeding.Wait()
	for range d.workers {
		errs = append(errs, <-d.worked)
	}
	if d.closeCalls != nil {
		d.closeCalls()
	}
	if d.client != nil {
		errs = append(errs, d.client.Close())
	}
	if d.server != nil {
		errs = append(errs, d.server.Stop(ctx))
	}
	if d.postgres != nil {
		errs = append(errs, d.postgres.Stop(ctx))
	}
	if d.home != nil {
		d.home.close()
	}
	return errors.Join(errs...)
}

// devFault names the flag where devpg names its option.
func devFault(err error) error {
	f, ok := fault.As(err)
	if !ok || f.Violation.Field != "dir" {
		return err
	}
	return fault.New(f.Code, f.Message, fault.Field("--data-dir"), fault.Remedy(f.Violation.Remedy), fault.Cause(err))
}
