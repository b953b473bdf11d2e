// Package daemon is a complete server: it opens the store, starts the engine, the loops and the
// two listeners, and stops them in the right order. It wires the parts together and has no
// rules of its own.
package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/data/blob"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/edge/metrics"
	"go.arco.dev/servo/internal/edge/oidc"
	"go.arco.dev/servo/internal/edge/ratelimit"
	"go.arco.dev/servo/internal/edge/web"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/loops/admission"
	"go.arco.dev/servo/internal/loops/alerter"
	"go.arco.dev/servo/internal/loops/backfiller"
	"go.arco.dev/servo/internal/loops/dispatcher"
	"go.arco.dev/servo/internal/loops/feed"
	"go.arco.dev/servo/internal/loops/presence"
	"go.arco.dev/servo/internal/loops/reaper"
	"go.arco.dev/servo/internal/loops/rollouts"
	"go.arco.dev/servo/internal/loops/scheduler"
	"go.arco.dev/servo/internal/store"
)

const (
	// DefaultDrain is how long calls may take to end when the server stops.
	DefaultDrain = 20 * time.Second
	// defaultMaxConns lets every lane of the engine have its transactions in flight and
	// leaves as many connections for reads; the driver's own default is the number of cores.
	defaultMaxConns = 20
	// releasePatience bounds giving back the duty to a database that may be away.
	releasePatience = 5 * time.Second
)

// Config has the options of a server.
type Config struct {
	DatabaseURL     string
	ListenURL       string             // without a pooler in between; "" is the DatabaseURL without a pooler; see NoListening
	Pooler          bool               // the DatabaseURL leads to a pooler that hands connections from transaction to transaction
	MaxConns        int32              // 0 leaves it to the URL, or takes a default
	WaitForDatabase time.Duration      // how long to wait at the start for a database that does not answer
	HTTP            string             // address of REST, pages and health
	Metrics         string             // address of the metrics alone; "" serves them at HTTP, for platform keys
	GRPC            string             // address of gRPC
	Name            string             // of this server among the others
	Version         string             // of this binary
	Migrate         bool               // migrate the database to this version's schema first
	Drain           time.Duration      // how long calls may take to end when the server stops; 0 is DefaultDrain
	TenantLabels    int                // how many tenants have labels of their own in metrics; 0 is metrics.DefaultTenants
	AssetLabels     int                // likewise assets, of all tenants together; 0 is metrics.DefaultAssets
	Open            bool               // require no keys: every caller may do everything; on loopback only
	Development     bool               // this is servo dev: the command line then needs no tenant
	OIDC            oidc.Settings      // issuers whose tokens are accepted beside keys; the zero value has none
	TLS             TLS                // what both addresses are encrypted with; none is plain text
	Rates           ratelimit.Limits   // what each tenant may do, on all servers together; the zero value has no limits
	PublicURL       string             // where push workers and people reach the servers; "" is the HTTP address
	Breaker         push.BreakerConfig // when the URL of a push pool is not called
	Targets         netguard.Policy    // which addresses URLs of tenants and pools may lead to; the zero value allows public ones only
	BlobURL         string             // blob store of outputs; "" fails tasks that have one
	Traces          *telemetry.Traces  // where traces go; nil is nowhere. It is for the caller to stop, after the server
	Engine          engine.Config
	Logger          *slog.Logger
}

// Daemon is a running server.
type Daemon struct {
	config     Config
	store      *store.Store
	engine     *engine.Engine
	recorder   *metrics.Recorder
	admission  *admission.Admission
	backfiller *backfiller.Backfiller
	reaper     *reaper.Reaper
	scheduler  *scheduler.Scheduler
	alerter    *alerter.Alerter
	rollouts   *rollouts.Rollouts
	feed       *feed.Feed
	presence   *presence.Presence
	dispatch   atomic.Pointer[dispatcher.Dispatch]
	api        *api.Server
	pages      *web.Web
	tls        *certificates  // nil is plain text
	tokens     *oidc.Verifier // nil accepts none
	guard      *netguard.Guard
	blobs      *blob.Store // nil if there is none

	grpc     *grpc.Server
	http     *http.Server
	grpcAddr net.Addr
	httpAddr net.Addr

	metrics     *http.Server // nil if metrics have no address of their own
	metricsAddr net.Addr

	readiness readiness
	draining  atomic.Bool
	failed    chan error
	serving   sync.WaitGroup
	stop      sync.Once
	stopErr   error
}

// Start starts a server and returns when it answers.
func Start(ctx context.Context, config Config) (*Daemon, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Drain == 0 {
		config.Drain = DefaultDrain
	}
	config.Targets.Logger = config.Logger
	d := &Daemon{config: config, guard: netguard.NewGuard(config.Targets), failed: make(chan error, 3)}
	if err := d.start(ctx); err != nil {
		return nil, errors.Join(err, d.Stop(context.WithoutCancel(ctx)))
	}
	return d, nil
}

// start goes from the bottom to the top; Stop goes back.
func (d *Daemon) start(ctx context.Context) (err error) {
	if err := d.config.checkOpen(); err != nil {
		return err
	}
	if err := d.config.checkLogins(); err != nil {
		return err
	}
	if err := d.config.Rates.Check(); err != nil {
		return err
	}
	if d.tls, err = startTLS(d.config.TLS, d.config.Logger); err != nil { //nolint:contextcheck,nolintlint // found by some runs only; it lives until Stop
		return err
	}
	if err := d.startTokens(); err != nil { //nolint:contextcheck,nolintlint // likewise; it lives until Stop
		return err
	}
	if d.store, err = openStore(ctx, d.config); err != nil {
		return err
	}
	if err := prepareSchema(ctx, d.store, d.config); err != nil {
		return err
	}
	if _, err := d.store.CheckFeedEpoch(ctx); err != nil { // before anything is written
		return err
	}
	d.config.Logger = nameTenants(d.config.Logger, d.store)
	if err := d.openBlobs(ctx); err != nil {
		return err
	}
	d.observe()
	d.config.Engine.Server, d.config.Engine.Handoff = d.config.Name, true
	d.engine = engine.New(d.store, d.config.Engine, d.config.Logger)
	d.startPresence(ctx)
	d.startLoops() //nolint:contextcheck // they live until Stop, not only as long as the start
	if err := d.listen(ctx); err != nil {
		return err
	}
	d.startDispatch(ctx)
	return nil
}

// startTokens begins to fetch the keys of the issuers. One that cannot be reached is no reason
// not to start: its tokens have to wait.
func (d *Daemon) startTokens() (err error) {
	if len(d.config.OIDC.Issuers) == 0 {
		return nil
	}
	if d.tokens, err = oidc.NewVerifier(d.config.OIDC, oidc.Options{Logger: d.config.Logger}); err != nil {
		return err
	}
	d.tokens.Start(d.config.Logger)
	return nil
}

func (d *Daemon) startPresence(ctx context.Context) {
	d.presence = presence.Start(ctx, d.store, d.engine, presence.Config{
		Name: d.config.Name, Version: d.config.Version, ListenURL: d.config.listenURL(), Logger: d.config.Logger,
	})
}

func (d *Daemon) startLoops() {
	d.admission = admission.Start(d.store, d.engine, admission.Config{Holder: d.config.Name, Logger: d.config.Logger})
	d.backfiller = backfiller.Start(d.store, d.engine, backfiller.Config{Holder: d.config.Name, Logger: d.config.Logger})
	d.reaper = reaper.Start(d.store, d.engine, reaper.Config{Logger: d.config.Logger})
	d.scheduler = scheduler.Start(d.store, d.engine, scheduler.Config{Logger: d.config.Logger})
	d.feed = feed.Start(d.store, d.engine, feed.Config{Version: d.config.Version, Guard: d.guard, Logger: d.config.Logger})
	d.rollouts = rollouts.Start(d.store, d.engine, rollouts.Config{Holder: d.config.Name, Logger: d.config.Logger})
	d.alerter = alerter.Start(d.store, d.engine, alerter.Config{Version: d.config.Version, Guard: d.guard, Logger: d.config.Logger})
}

// HTTPAddr is where REST is answered.
func (d *Daemon) HTTPAddr() string { return d.httpAddr.String() }

// GRPCAddr is where gRPC is answered.
func (d *Daemon) GRPCAddr() string { return d.grpcAddr.String() }

// Failed receives an error if a listener ends before the server is stopped. The caller then stops
// the rest.
func (d *Daemon) Failed() <-chan error { return d.failed }

// Stop ends everything, from the edge inwards: nothing new is accepted, calls in flight are
// answered, then the loops end, then the engine finishes what it has accepted. Stopping
// twice is the same as once. The context bounds the drain, not what must be done after it.
func (d *Daemon) Stop(ctx context.Context) error {
	d.stop.Do(func() { d.stopErr = d.shutDown(ctx) })
	return d.stopErr
}

func (d *Daemon) shutDown(ctx context.Context) error {
	var errs []error
	d.draining.Store(true) // readyz returns 503 from now on
	if running := d.dispatch.Load(); running != nil {
		running.Stop() // while the workers that it calls can still reach us
	}
	if d.http != nil {
		errs = append(errs, d.drain(ctx))
	}
	if d.engine != nil {
		d.alerter.Stop()
		d.rollouts.Stop()
		d.feed.Stop()
		d.scheduler.Stop()
		d.reaper.Stop()
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasePatience)
		if err := d.backfiller.Stop(release); err != nil {
			d.config.Logger.Warn("could not release the duty of backfills", slog.Any("error", err)) // it expires within seconds
		}
		if err := d.admission.Stop(release); err != nil {
			// It expires by itself within seconds: the next server only waits a little.
			d.config.Logger.Warn("could not give the duty back", slog.Any("error", err))
		}
		if err := d.presence.Stop(release); err != nil {
			d.config.Logger.Warn("could not sign off", slog.Any("error", err)) // it is forgotten by itself
		}
		cancel()
		d.engine.Stop()
	}
	d.tls.stop()
	d.tokens.Stop()
	if d.blobs != nil {
		errs = append(errs, d.blobs.Close())
	}
	if d.store != nil {
		d.store.Close()
	}
	return errors.Join(errs...)
}
