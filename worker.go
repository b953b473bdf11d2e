package servo

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
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
	"go.arco.dev/servo/internal/data/blob"
	"go.arco.dev/servo/internal/data/secrets"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/worker"
	"go.arco.dev/servo/internal/worker/host"
)

// WorkerOptions configures a worker. The zero value connects to a server on this machine and runs one
// task at a time.
type WorkerOptions struct {
	// Server is the address of a server's gRPC listener, host:port, or https://host:port with TLS.
	// The default is the environment variable SERVO_SERVER, which may list several servers,
	// separated by commas, or 127.0.0.1:8081.
	Server string
	// Servers are the addresses of several servers of one installation, in place of Server.
	Servers []string
	// APIKey is a worker key for all pools of the worker, as sk_…. The default is the environment
	// variable SERVO_API_KEY, or the content of the file that APIKeyFile or SERVO_API_KEY_FILE
	// names. Servers without authentication need no key.
	APIKey string
	// APIKeyFile is a file with the key, which only the worker's user should be able to read.
	APIKeyFile string
	// TLS enables encryption. The default uses the files in SERVO_TLS_CA, SERVO_TLS_CERT and
	// SERVO_TLS_KEY; https:// without these uses the certificate authorities of this machine.
	TLS *tls.Config
	// Conn is an existing connection, in place of the options above.
	Conn grpc.ClientConnInterface

	// ID is the name of the worker; default: host and process id.
	ID string
	// Pools are the pools to serve, the preferred first; default: "default".
	Pools []string
	// Concurrency is the worker's capacity: how many tasks run at once; default 1.
	Concurrency int
	// Ahead is how many tasks are leased ahead of need, so that free capacity does not wait for the
	// network; default: half of Concurrency. -1 is none.
	Ahead int
	// Lease is how long a lease lasts without a heartbeat; default: the server's worker timeout (30
	// seconds unless configured).
	Lease time.Duration
	// Grace is how long tasks may continue when the worker stops; default 30 seconds.
	Grace time.Duration

	// Exec enables exec assets, whose commands the worker runs.
	Exec *ExecOptions
	// HTTP enables http assets, whose endpoints the worker calls at public addresses.
	HTTP bool
	// AllowPrivateNetworks are private networks that http assets may also call, such as
	// 10.0.0.0/8. Loopback and link-local addresses are always refused.
	AllowPrivateNetworks []string

	// Python enables python assets of a project, which run in host processes.
	Python *PythonOptions

	// local lets http assets call this machine. It is for tests.
	local bool

	// BlobURL is the blob store of outputs: file:///directory, s3://bucket, gs://bucket or
	// azblob://container. All workers of an installation must use the same. The default is the
	// environment variable SERVO_BLOB_URL. Without it, the worker gets no tasks of assets with an
	// output or checks.
	BlobURL string

	// SecretsFile lists the secrets that tasks may read, and how. The default is the environment
	// variable SERVO_SECRETS. Without it, tasks read none.
	SecretsFile string

	// LogLevel is the minimum level of the task logs; default INFO.
	LogLevel slog.Leveler
	// Logger logs the worker's own events; nil disables them.
	Logger *slog.Logger
	// Tracer creates a span for each task, in the trace of its run. Without a tracer, Main creates
	// spans if the OTEL_* variables configure an exporter. The context of a task has its run's
	// trace in any case.
	Tracer trace.Tracer
}

// ExecOptions configures the commands of exec assets.
type ExecOptions struct {
	// Dir is their working directory; default: a new directory for each, removed afterwards.
	Dir string
	// PassEnv lists variables of the worker's environment that commands get, besides PATH, HOME,
	// TMPDIR, LANG and TZ.
	PassEnv []string
	// User is the user that commands run as, by name or as UID:GID, if the worker runs as root.
	// Commands then cannot inspect the worker's process, which has its key.
	User string
}

// PythonOptions configures the hosts of python assets.
type PythonOptions struct {
	// Project is the directory of the Python project, or DIR:MODULE.
	Project string
	// Interpreter is the Python to use; default: the project's .venv, VIRTUAL_ENV, or python3.
	Interpreter string
	// PassEnv lists variables of the worker's environment that hosts get, besides PATH, HOME,
	// TMPDIR, LANG and TZ.
	PassEnv []string
	// MemoryLimit is how many bytes a host and its child processes may use; default: no limit.
	MemoryLimit int64
	// TasksPerHost is after how many tasks a host is replaced; default 1000.
	TasksPerHost int
	// Grace is the time from SIGTERM to SIGKILL when a task is cancelled; default 5 seconds.
	Grace time.Duration
	// User is the user that hosts run as, by name or as UID:GID, if the worker runs as root.
	User string
	// Output is where prints of the project's import go; default: standard error.
	Output io.Writer
}

// The variables with keys. A worker hides them from the commands that it runs.
const (
	keyVariable      = "SERVO_API_KEY"
	keyFileVariable  = "SERVO_API_KEY_FILE"
	pushKeysVariable = "SERVO_PUSH_KEYS"
)

// blobVariable is the variable with the URL of the blob store.
const blobVariable = "SERVO_BLOB_URL"

// secretsVariable is the variable with the name of the secrets file.
const secretsVariable = "SERVO_SECRETS" //nolint:gosec // a name, not a secret

// key returns the API key of the worker.
func (o *WorkerOptions) key() (string, error) {
	if key := cmp.Or(o.APIKey, os.Getenv(keyVariable)); key != "" {
		return key, nil
	}
	return worker.ReadKey("api-key-file", cmp.Or(o.APIKeyFile, os.Getenv(keyFileVariable)))
}

// executor returns an executor for commands, and hides the keys of this process from them.
func (o *ExecOptions) executor(log *slog.Logger) (*worker.Exec, error) {
	e := &worker.Exec{Dir: o.Dir, PassEnv: o.PassEnv}
	for _, name := range o.PassEnv {
		if name == keyVariable || name == pushKeysVariable {
			return nil, fault.Invalid("pass-env", name+" contains a key of the worker", "pass commands their own key in another variable")
		}
	}
	if o.User != "" {
		var err error
		if e.User, err = worker.LookupUser("exec-user", o.User); err != nil {
			return nil, err
		}
	}
	if err := worker.Hide(keyVariable, pushKeysVariable); err != nil && log != nil {
		log.Warn("commands may be able to read the worker's key; use a key file, and run commands as another user", "error", err)
	}
	return e, nil
}

// defaultServer is the address of `servo dev`.
const defaultServer = "127.0.0.1:8081"

// Worker executes assets. Register them with [Asset], then call [Worker.Run] or [Main].
type Worker struct {
	options  WorkerOptions
	handlers *worker.Handlers
	reads    map[string][]string // the assets that functions declare to read
	instance string              // of a push handler

	assets    []asset.Asset // declared
	pipelines []Pipeline

	mu      sync.Mutex
	running *worker.Worker
	started bool
	aborted bool
}

// NewWorker returns a worker without assets. Run validates the options.
func NewWorker(options WorkerOptions) *Worker {
	return &Worker{options: options, handlers: worker.NewHandlers()}
}

// Assets returns the keys of the registered assets, in order.
func (w *Worker) Assets() []string { return w.handlers.Names() }

// Run works until the context is done. It then claims no more tasks, lets running tasks continue for
// the grace, interrupts the rest (other workers retry them), and returns when all results are
// reported. Run does not handle signals; [Main] does.
func (w *Worker) Run(ctx context.Context) error {
	inner, disconnect, err := w.start() //nolint:contextcheck // the import of a project ends with its own time limit
	if err != nil {
		return err
	}
	return errors.Join(inner.Run(ctx), disconnect())
}

// Abort makes Run return immediately: tasks are interrupted without grace.
func (w *Worker) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.aborted = true
	if w.running != nil {
		w.running.Abort()
	}
}

// encryption reads the files that the environment names, unless TLS is set.
func (o *WorkerOptions) encryption() (err error) {
	if o.TLS == nil {
		o.TLS, err = client.TLSFromFiles(client.TLSFiles{CA: os.Getenv("SERVO_TLS_CA"), Cert: os.Getenv("SERVO_TLS_CERT"), Key: os.Getenv("SERVO_TLS_KEY")})
	}
	return err
}

// start connects and returns the inner worker, and a function that disconnects.
func (w *Worker) start() (*worker.Worker, func() error, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.options
	inside := worker.Options{
		Conn: o.Conn, ID: o.ID, Instance: w.instance, Pools: o.Pools, Concurrency: o.Concurrency, Ahead: o.Ahead, Lease: o.Lease, Grace: o.Grace,
		LogLevel: o.LogLevel, Logger: o.Logger, Tracer: o.Tracer, Executors: []worker.Executor{w.handlers},
	}
	disconnect := func() error { return nil }
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
		inside.Conn, disconnect = c.Conn(), c.Close
	}
	if o.Exec != nil {
		commands, err := o.Exec.executor(o.Logger)
		if err != nil {
			return nil, nil, errors.Join(err, disconnect())
		}
		inside.Executors = append(inside.Executors, commands)
	}
	if o.HTTP {
		networks, err := netguard.ParseNetworks("allow-private-networks", o.AllowPrivateNetworks)
		if err != nil {
			return nil, nil, errors.Join(err, disconnect())
		}
		calls := worker.NewHTTP(o.Concurrency, netguard.NewGuard(netguard.Policy{Networks: networks, Local: o.local, Logger: o.Logger}))
		inside.Executors = append(inside.Executors, calls)
		closeConn := disconnect
		disconnect = func() error { calls.Close(); return closeConn() }
	}
	if o.Python != nil {
		hosts, err := o.Python.executor(max(o.Concurrency, 1), o.Logger)
		if err != nil {
			return nil, nil, errors.Join(err, disconnect())
		}
		inside.Executors = append(inside.Executors, hosts)
		closeConn := disconnect
		disconnect = func() error { hosts.Close(); return closeConn() }
	}
	if address := cmp.Or(o.BlobURL, os.Getenv(blobVariable)); address != "" {
		blobs, err := blob.Open(context.Background(), address, blob.Options{})
		if err != nil {
			return nil, nil, errors.Join(err, disconnect())
		}
		inside.Blobs = blobs
		before := disconnect
		disconnect = func() error { return errors.Join(blobs.Close(), before()) }
	}
	if name := cmp.Or(o.SecretsFile, os.Getenv(secretsVariable)); name != "" {
		var err error
		if inside.Secrets, err = secrets.Load(name); err != nil {
			return nil, nil, errors.Join(err, disconnect())
		}
	}
	inner, err := worker.New(inside)
	if err != nil {
		return nil, nil, errors.Join(err, disconnect())
	}
	w.running, w.started = inner, true
	if w.aborted {
		inner.Abort()
	}
	return inner, disconnect, nil
}

// exitRefused is the exit code of Main if the server refuses the key.
const exitRefused = 6

// IsRefused reports whether Run returned because the server refused the worker's key, or the key does
// not permit the worker's pools. A restart with the same key would be refused as well.
func IsRefused(err error) bool {
	return fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Forbidden)
}

// reach is how long one call waits for an unreachable server. The worker then logs a warning and
// retries.
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

// describe returns what the worker can execute.
func (w *Worker) describe() worker.Description {
	d := worker.Description{Handlers: append([]string{}, w.handlers.Names()...), Pools: w.options.Pools, Exec: w.options.Exec != nil, HTTP: w.options.HTTP, Reads: w.reads}
	if len(d.Pools) == 0 {
		d.Pools = []string{worker.DefaultPool}
	}
	return d
}

// traceGrace is how long a stopped worker tries to export its last traces.
const traceGrace = 5 * time.Second

// Main runs a worker as a program. It logs to standard error, and exports traces if the OTEL_* variables
// configure an exporter. SIGINT and SIGTERM stop the worker; a second signal aborts it. Main exits with
// 0, with 6 if the server refuses the key, or with 1 after another error.
//
// With SERVO_WORKER_DESCRIBE=1 it prints as JSON what the worker can execute, and exits. `servo worker
// check` uses this to compare a program with a manifest. With SERVO_WORKER_MANIFEST=1 it prints the
// manifest that it declares, for `servo deploy --go`.
func Main(w *Worker) {
	if len(os.Args) > 2 && os.Args[1] == host.SupervisorCommand {
		os.Exit(host.Supervise(os.Args[3:]))
	}
	if os.Getenv(worker.DescribeVariable) != "" {
		if err := json.NewEncoder(os.Stdout).Encode(w.describe()); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(worker.ManifestVariable) != "" {
		os.Exit(w.printManifest(os.Stdout, os.Stderr))
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
		w.options.Logger.Warn("the last traces were not exported", "error", late)
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
