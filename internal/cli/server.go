package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/edge/metrics"
	"go.arco.dev/servo/internal/store"
)

// Default addresses of a server.
const (
	defaultHTTP = "127.0.0.1:8080"
	defaultGRPC = "127.0.0.1:8081"
)

// serverOptions are the flags of servo server.
type serverOptions struct {
	config   daemon.Config
	oidc     string   // a file
	networks []string // private ones that may be called
	log      logging
}

// newServer runs a server.
func newServer() *cobra.Command {
	var o serverOptions
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a server",
		Long: `Run a server: the API over gRPC and REST, and the loops that move runs along. Any
number of servers may share one database.

REST, pages and health are at --http; gRPC, for workers and this command line, is at --grpc;
metrics are at --metrics. Callers authenticate with API keys; servo keys bootstrap creates the first
one. With --oidc they may use tokens of OpenID Connect issuers instead. Keys and tokens are sent
unencrypted without TLS. With --open no keys are needed, and every caller may do everything: that
is refused for an address that other machines reach. /healthz, /readyz and /openapi.json need no
key. Without --metrics, /metrics is at --http for platform keys.

SIGTERM or Ctrl-C stops the server in order: /readyz fails at once, calls in flight are answered
within --drain, then the server ends. A second signal kills it; nothing is lost, but calls in
flight are not answered.`,
		Example: `  servo server --database postgres://servo@localhost/servo --migrate
  servo server --open --database postgres://servo@localhost/servo
  SERVO_DATABASE_URL=postgres://servo@db/servo servo server --wait-for-database 1m --log-format json`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	addDatabase(cmd, &o.config.DatabaseURL)
	flags.StringVar(&o.config.HTTP, "http", defaultHTTP, "address of REST, pages and health")
	flags.StringVar(&o.config.Metrics, "metrics", "", "address of /metrics without a key (default: at --http, for platform keys)")
	flags.StringVar(&o.config.GRPC, "grpc", defaultGRPC, "address of gRPC")
	flags.StringVar(&o.config.Name, "name", "", "name of this server (default host-pid)")
	flags.BoolVar(&o.config.Migrate, "migrate", false, "migrate the database first")
	flags.BoolVar(&o.config.Pooler, "pooler", false, "whether --database is a pooler in transaction mode, such as PgBouncer")
	flags.StringVar(&o.config.ListenURL, "listen-database", "",
		"URL of the same database without a pooler, for notifications of other servers; none polls instead (SERVO_LISTEN_DATABASE_URL; default: --database, or none with --pooler)")
	flags.DurationVar(&o.config.WaitForDatabase, "wait-for-database", 0, "maximum time to wait for the database at the start")
	flags.Int32Var(&o.config.MaxConns, "max-conns", 0, "maximum number of database connections (default: pool_max_conns of the URL, or 20)")
	flags.IntVar(&o.config.TenantLabels, "tenant-labels", metrics.DefaultTenants, "number of tenants with their own metric labels")
	flags.IntVar(&o.config.AssetLabels, "asset-labels", metrics.DefaultAssets, "number of assets of these tenants with their own metric labels")
	flags.DurationVar(&o.config.Drain, "drain", daemon.DefaultDrain, "maximum time for calls in flight when the server stops")
	flags.DurationVar(&o.config.Engine.Lease, "lease", 5*time.Minute, "lease duration when the worker requests none")
	flags.DurationVar(&o.config.Engine.WorkerTimeout, "worker-timeout", 30*time.Second, "time without a heartbeat after which leases expire")
	flags.DurationVar(&o.config.Engine.HeartbeatTimeout, "heartbeat-timeout", 5*time.Minute+10*time.Second, "lease renewal by a heartbeat when the worker requests none")
	flags.StringVar(&o.config.PublicURL, "public-url", "", "URL of the servers for push workers and logins, such as https://servo.example.com (default: the address of --http)")
	flags.StringVar(&o.config.BlobURL, "blob-url", "", "blob store of outputs, the same as the workers': file:///dir, s3://bucket, gs://bucket (SERVO_BLOB_URL)")
	flags.BoolVar(&o.config.Open, "open", false, "serve without API keys, on this machine only: every caller may do everything")
	addPrivateNetworks(cmd, &o.networks)
	addRates(cmd, &o.config.Rates)
	addServerTLS(cmd, &o.config.TLS)
	addOIDC(cmd, &o.oidc)
	addLogging(cmd, &o.log, "info")
	return cmd
}

func (o *serverOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	log, err := o.log.logger(stderr)
	if err != nil {
		return err
	}
	if o.config.DatabaseURL, err = databaseURL(ctx, o.config.DatabaseURL); err != nil {
		return err
	}
	if o.config.BlobURL == "" {
		o.config.BlobURL = environmentOf(ctx).Getenv("SERVO_BLOB_URL")
	}
	if o.config.ListenURL == "" {
		o.config.ListenURL = environmentOf(ctx).Getenv("SERVO_LISTEN_DATABASE_URL")
	}
	if o.config.ListenURL != "" && o.config.ListenURL != daemon.NoListening {
		if err := store.CheckURL("--listen-database", o.config.ListenURL); err != nil {
			return err
		}
	}
	if o.config.OIDC, err = readOIDC(ctx, o.oidc); err != nil {
		return err
	}
	if o.config.Targets.Networks, err = netguard.ParseNetworks(flagPrivateNetworks, o.networks); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	o.config.Logger, o.config.Version = log, thisBuild().Version
	if o.config.Name == "" {
		o.config.Name = hostPID("server")
	}
	for _, address := range []string{o.config.HTTP, o.config.GRPC} {
		if !isLoopback(address) && !o.config.TLS.On() {
			log.Warn("keys come in plain text where other machines can listen: put TLS in front", slog.String("address", address))
		}
	}
	if o.config.Traces, err = telemetry.FromEnv(ctx, os.Getenv, telemetry.Service{Name: "servo-server", Version: o.config.Version}, log); err != nil {
		return err
	}
	defer stopTraces(ctx, o.config.Traces, log)
	d, err := daemon.Start(ctx, o.config)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "servo server %s is ready: %s%s, gRPC at %s\n", o.config.Name, d.Scheme(), d.HTTPAddr(), d.GRPCAddr()); err != nil {
		log.Warn("cannot print that the server is ready", slog.Any("error", err))
	}
	if o.config.TLS.On() {
		reloadOnHangup(ctx, d, log)
	}
	var died error
	select {
	case <-ctx.Done():
		log.Info("stopping", slog.Duration("drain", o.config.Drain))
	case died = <-d.Failed():
	}
	if err := d.Stop(context.WithoutCancel(ctx)); err != nil || died != nil {
		return fault.New(fault.Unavailable, fmt.Sprintf("the server did not end well: %v", firstOf(died, err)),
			fault.Remedy("start it again; nothing is lost"), fault.Cause(firstOf(died, err)))
	}
	log.Info("stopped")
	return nil
}

// traceGrace is how long a process that ends tries to send its last traces.
const traceGrace = 5 * time.Second

// stopTraces sends the last traces.
func stopTraces(ctx context.Context, traces *telemetry.Traces, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceGrace)
	defer cancel()
	if err := traces.Stop(ctx); err != nil {
		log.Warn("the last traces were not sent", slog.Any("error", err))
	}
}

// flagPrivateNetworks is the flag of the networks that may be called beside public addresses.
const flagPrivateNetworks = "--allow-private-networks"

// addPrivateNetworks gives a command that flag.
func addPrivateNetworks(cmd *cobra.Command, to *[]string) {
	cmd.Flags().StringSliceVar(to, strings.TrimPrefix(flagPrivateNetworks, "--"), nil,
		"private networks that may be called, such as 10.0.0.0/8 (default: public addresses only)")
}

// check refuses flags that can never work, or that open more than was meant.
func (o *serverOptions) check() error {
	for _, f := range []struct {
		flag  string
		value time.Duration
		least time.Duration
	}{
		{"--drain", o.config.Drain, time.Millisecond},
		{"--lease", o.config.Engine.Lease, time.Second},
		{"--worker-timeout", o.config.Engine.WorkerTimeout, time.Second},
		{"--heartbeat-timeout", o.config.Engine.HeartbeatTimeout, time.Second},
		{"--wait-for-database", o.config.WaitForDatabase, 0},
	} {
		if f.value < f.least {
			return fault.New(fault.InvalidArgument, fmt.Sprintf("is %s", f.value), fault.Field(f.flag),
				fault.Remedy(fmt.Sprintf("give at least %s", f.least)))
		}
	}
	if o.config.MaxConns < 0 {
		return fault.New(fault.InvalidArgument, "is negative", fault.Field("--max-conns"), fault.Remedy("give a number of connections, or 0"))
	}
	for _, f := range []struct{ flag, address string }{{"--http", o.config.HTTP}, {"--grpc", o.config.GRPC}, {"--metrics", o.config.Metrics}} {
		if o.config.Open && !isLoopback(f.address) {
			return openFault(f.flag, f.address, "listen on 127.0.0.1, or leave --open out and give out keys: servo keys bootstrap")
		}
	}
	return openOIDC(o.config.Open, o.config.OIDC)
}

// openFault refuses an address that other machines can reach.
func openFault(flag, address, remedy string) error {
	return fault.New(fault.InvalidArgument, fmt.Sprintf("other machines can reach %q, and no keys are asked for", address),
		fault.Field(flag), fault.Remedy(remedy))
}

// isLoopback reports whether only this machine reaches an address.
func isLoopback(address string) bool { return daemon.IsLoopback(address) }

// hostPID names a process among all machines.
func hostPID(otherwise string) string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = otherwise
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// firstOf returns the first error.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
