package servo

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"go.arco.dev/servo/client"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/worker"
)

// WorkerOptions says how a worker runs. The zero value works for a server on this machine,
// one task at a time.
type WorkerOptions struct {
	// Server is the address of a server's gRPC listener, host:port, or https://host:port if it
	// speaks TLS. The environment variable SERVO_SERVER if not said, which may list several
	// servers, separated by commas; else 127.0.0.1:8081.
	Server string
	// Servers are the addresses of several servers of one installation, in place of Server.
	Servers []string
	// APIKey is a worker key of all its pools, as sk_…. The environment variable SERVO_API_KEY
	// if not said, else the content of the file that APIKeyFile or SERVO_API_KEY_FILE names;
	// servers that ask for no keys need none.
	APIKey string
	// APIKeyFile is a file with the key, which only the worker's user should be able to read.
	APIKeyFile string
	// TLS turns encryption on. The files in SERVO_TLS_CA, SERVO_TLS_CERT and SERVO_TLS_KEY if
	// not said; https:// without any of it believes whom this machine believes.
	TLS *tls.Config
	// Conn is a connection that the caller has made, in place of the above.
	Conn grpc.ClientConnInterface

	// ID names the worker to people; host and process id if not said.
	ID string
	// Pools are the pools to serve, the preferred first; "default" if not said.
	Pools []string
	// Concurrency is how many tasks run at once; 1 if not said.
	Concurrency int
	// Ahead is how many tasks are leased ahead of need, so that a free slot does not wait
	// for the network; half of Concurrency if not said, none if -1.
	Ahead int
	// Lease is how long the server waits for a worker that has fallen silent; the server's worker
	// timeout (30 seconds by default) if not said.
	Lease time.Duration
	// Grace is how long tasks may go on when the worker stops; 30 seconds if not said.
	Grace time.Duration

	// Exec lets the worker run the commands of exec assets as well.
	Exec *ExecOptions
	// HTTP lets the worker call the endpoints of http assets as well, at public addresses.
	HTTP bool
	// AllowPrivateNetworks are the private networks that http assets may call too, such as
	// 10.0.0.0/8. Loopback and link-local addresses are always refused.
	AllowPrivateNetworks []string

	// local lets http assets call this machine. It is for tests.
	local bool

	// LogLevel is the least level that is kept of what tasks log; INFO if not said.
	LogLevel slog.Leveler
	// Logger hears of the worker's own life; nil is silent.
	Logger *slog.Logger
	// Tracer makes a span of each task, under the trace of its run. Without one, Main makes
	// spans if the OTEL_* variables say where to send them; the context of a task carries its
	// run's trace in any case.
	Tracer trace.Tracer
}

// ExecOptions says how the commands of exec assets run.
type ExecOptions struct {
	// Dir is where they run; a new directory each, removed afterwards, if not said.
	Dir string
	// PassEnv names variables of the worker's environment that commands may see, beside
	// PATH, HOME, TMPDIR, LANG and TZ.
	PassEnv []string
	// User is the user that commands run as, by name or as UID:GID, if the worker runs as root.
	// Then commands cannot look into the worker's process, which has its key.
	User string
}

// The variables with keys. A worker that runs commands hides them from these.
const (
	keyVariable      = "SERVO_API_KEY"
	keyFileVariable  = "SERVO_API_KEY_FILE"
	pushKeysVariable = "SERVO_PUSH_KEYS"
)

// key is the key that the worker shows.
func (o *WorkerOptions) key() (string, error) {
	if key := cmp.Or(o.APIKey, os.Getenv(keyVariable)); key != "" {
		return key, nil
	}
	return worker.ReadKey("api-key-file", cmp.Or(o.APIKeyFile, os.Getenv(keyFileVariable)))
}

// executor runs commands, from which it hides the keys of this process.
func (o *ExecOptions) executor(log *slog.Logger) (*worker.Exec, error) {
	e := &worker.Exec{Dir: o.Dir, PassEnv: o.PassEnv}
	for _, name := range o.PassEnv {
		if name == keyVariable || name == pushKeysVariable {
			return nil, fault.Invalid("pass-env", name+" holds a key of the worker", "give commands a key of their own under another name")
		}
	}
	if o.User != "" {
		var err error
		if e.User, err = worker.LookupUser("exec-user", o.User); err != nil {
			return nil, err
		}
	}
	if err := worker.Hide(keyVariable, pushKeysVariable); err != nil && log != nil {
		log.Warn("commands may be able to read the worker's key: give it in a file, and run commands as another user", "error", err)
	}
	return e, nil
}

// defaultServer is where `servo dev` listens.
const defaultServer = "127.0.0.1:8081"

// Worker executes assets. Register them with Asset, then call Run, or Main.
type Worker struct {
	options  WorkerOptions
	handlers *worker.Handlers
	reads    map[string][]string // what functions say that they read
	instance string              // of a push handler

	mu      sync.Mutex
	running *worker.Worker
	started bool
	aborted bool
}

// NewWorker makes a worker without assets. What is wrong with the options is said by Run.
func NewWorker(options WorkerOptions) *Worker {
	return &Worker{options: options, handlers: worker.NewHandlers()}
}

// Assets are the keys of the registered assets, in order.
func (w *Worker) Assets() []string { return w.handlers.Names() }

// Run works until the context is done. It then takes no new tasks, lets those that run go
// on for the grace, interrupts the rest (they are tried again elsewhere), and returns when
// the server has heard of everything. It leaves signals alone; Main does not.
func (w *Worker) Run(ctx context.Context) error {
	inner, hangUp, err := w.start()
	if err != nil {
		return err
	}
	return errors.Join(inner.Run(ctx), hangUp())
}

// Abort makes Run return at once.
func (w *Worker) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.aborted = true
	if w.running != nil {
		w.running.Abort()
	}
}

// encryption takes the files of the environment, if nothing else is said.
func (o *WorkerOptions) encryption() (err error) {
	if o.TLS == nil {
		o.TLS, err = client.TLSFromFiles(client.TLSFiles{CA: os.Getenv("SERVO_TLS_CA"), Cert: os.Getenv("SERVO_TLS_CERT"), Key: os.Getenv("SERVO_TLS_KEY")})
	}
	return err
}

// start connects and makes the worker that runs. The function that it returns disconnects.
func (w *Worker) start() (*worker.Worker, func() error, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.options
	config := worker.Config{
		Conn: o.Conn, ID: o.ID, Instance: w.instance, Pools: o.Pools, Concurrency: o.Concurrency, Ahead: o.Ahead, Lease: o.Lease, Grace: o.Grace,
		LogLevel: o.LogLevel, Logger: o.Logger, Tracer: o.Tracer, Executors: []worker.Executor{w.handlers},
	}
	hangUp := func() error { return nil }
	if o.Conn == nil {
		if err := o.encryption(); err != nil {
			return nil, nil, err
		}
		key, err := o.key()
		if err != nil {
			return nil, nil, err
		}
		c, err := client.New(client.Options{Servers: o.servers(), APIKey: key, TLS: o.TLS, UserAgent: "servo-worker", Logger: o.Logger, Patience: reach})
		if err != nil {
			return nil, nil, err
		}
		config.Conn, hangUp = c.Conn(), c.Close
	}
	if o.Exec != nil {
		commands, err := o.Exec.executor(o.Logger)
		if err != nil {
			return nil, nil, errors.Join(err, hangUp())
		}
		config.Executors = append(config.Executors, commands)
	}
	if o.HTTP {
		networks, err := netguard.ParseNetworks("allow-private-networks", o.AllowPrivateNetworks)
		if err != nil {
			return nil, nil, errors.Join(err, hangUp())
		}
		calls := worker.NewHTTP(o.Concurrency, netguard.NewGuard(netguard.Policy{Networks: networks, Local: o.local, Logger: o.Logger}))
		config.Executors = append(config.Executors, calls)
		disconnect := hangUp
		hangUp = func() error { calls.Close(); return disconnect() }
	}
	inner, err := worker.New(config)
	if err != nil {
		return nil, nil, errors.Join(err, hangUp())
	}
	w.running, w.started = inner, true
	if w.aborted {
		inner.Abort()
	}
	return inner, hangUp, nil
}

// exitRefused is how Main ends a process whose key the server refuses.
const exitRefused = 6

// IsRefused reports whether Run returned because the server refuses the worker's key, or does not
// let it serve its pools. Another start with the same key would be refused as well.
func IsRefused(err error) bool {
	return fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Forbidden)
}

// reach is how long one call waits for a server that cannot be reached. The worker then
// says so, and goes on trying.
const reach = 2 * time.Second

func (o WorkerOptions) servers() []string {
	switch {
	case len(o.Servers) > 0:
		return o.Servers
	case o.Server != "":
		return []string{o.Server}
	}
	var servers []string
	for server := range strings.SplitSeq(os.Getenv("SERVO_SERVER"), ",") {
		if server = strings.TrimSpace(server); server != "" {
			servers = append(servers, server)
		}
	}
	if len(servers) == 0 {
		return []string{defaultServer}
	}
	return servers
}

// describe says what the worker can run.
func (w *Worker) describe() worker.Description {
	d := worker.Description{Handlers: append([]string{}, w.handlers.Names()...), Pools: w.options.Pools, Exec: w.options.Exec != nil, HTTP: w.options.HTTP, Reads: w.reads}
	if len(d.Pools) == 0 {
		d.Pools = []string{worker.DefaultPool}
	}
	return d
}

// traceGrace is how long a worker that has stopped tries to send its last traces.
const traceGrace = 5 * time.Second

// Main runs a worker as a program: it logs to standard error, stops at SIGINT and SIGTERM,
// at once at the second one, and ends the process with 0, with 6 if the server refuses its key,
// or with 1 after another error. It sends traces
// where the OTEL_* variables say.
//
// With SERVO_WORKER_DESCRIBE=1 it prints what the worker can run as JSON and ends: that is how
// `servo worker check` compares a program with a manifest.
func Main(w *Worker) {
	if os.Getenv(worker.DescribeVariable) != "" {
		if err := json.NewEncoder(os.Stdout).Encode(w.describe()); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if w.options.Logger == nil {
		w.options.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	traces, err := telemetry.FromEnv(context.Background(), os.Getenv, telemetry.Service{Name: "servo-worker"}, w.options.Logger)
	if err != nil {
		w.options.Logger.Error("the worker failed", "error", err)
		os.Exit(1)
	}
	if w.options.Tracer == nil && traces != nil {
		w.options.Tracer = traces.Tracer()
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		<-signals
		stop()
		<-signals
		w.Abort()
	}()
	err = w.Run(ctx)
	flush, cancel := context.WithTimeout(context.Background(), traceGrace)
	if late := traces.Stop(flush); late != nil {
		w.options.Logger.Warn("the last traces were not sent", "error", late)
	}
	cancel()
	if err != nil {
		w.options.Logger.Error("the worker failed", "error", err)
		if IsRefused(err) {
			os.Exit(exitRefused)
		}
		os.Exit(1)
	}
	os.Exit(0)
}
