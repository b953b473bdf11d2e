package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo"
	"go.arco.dev/servo/client"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/worker"
)

// newWorker runs a worker for assets that need no code of one's own.
func newWorker() *cobra.Command {
	var (
		options servo.WorkerOptions
		exec    servo.ExecOptions
		python  servo.PythonOptions
		memory  byteSize
		keyFile string
		log     logging
	)
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run a worker for exec, http and python assets",
		Long: `Run a worker: it claims tasks from the servers and runs the commands of exec assets and
calls the endpoints of http assets. Assets written in Go are run by a program of their own,
built with the package go.arco.dev/servo.

With --python it also runs the Python assets of a project, each concurrent task in a host process
of the project's environment (.venv, VIRTUAL_ENV or python3). The worker itself renews leases and
reports results, whatever happens in a host (docs/hosts.md). Hosts see the same variables as
commands.

A command gets the task as JSON on its standard input and writes its result as JSON into the
file that $SERVO_RESULT names; what it prints is kept as the task's log. Of this worker's
environment it sees PATH, HOME, TMPDIR, LANG, TZ and what --pass-env names. A command of an asset
with an output writes its files to $SERVO_OUTPUT_DIR, and $SERVO_INPUTS names a JSON file with the
files of its upstreams. Such assets need --blob-url.

The endpoints of http assets must have public addresses, or addresses in the private networks
that --allow-private-networks lists. Loopback and link-local addresses are always refused, and
proxies are not used.

The worker authenticates with a key of the role worker, of all its pools: from --api-key-file, SERVO_API_KEY,
the file that SERVO_API_KEY_FILE names, or the context of servo login. Commands do not get it. A
file that only the worker's user can read, with --exec-user for commands, keeps it from them best;
docs/security.md lists what they could read otherwise.

SIGTERM or Ctrl-C stops the worker in order: it claims no more tasks, running ones may continue for
--grace, then they are interrupted and retried by other workers. A second signal interrupts them
at once.`,
		Example: `  servo worker --concurrency 8
  servo worker --python ./shop --host-memory 2GiB
  servo worker --server a:8081 --server b:8081 --pool big --pool default --pass-env AWS_REGION`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Exec = &exec
			if python.Project != "" {
				python.PassEnv, python.User, python.MemoryLimit, python.Output = exec.PassEnv, exec.User, int64(memory), cmd.ErrOrStderr()
				options.Python = &python
			}
			return startWorker(cmd, options, keyFile, log)
		},
	}
	flags := cmd.Flags()
	addServer(cmd)
	addTLSCA(cmd)
	addTLSPair(cmd)
	flags.StringArrayVar(&options.Pools, "pool", nil, "pool to serve, repeatable, preferred first (default \"default\")")
	flags.IntVar(&options.Concurrency, "concurrency", 4, "capacity: tasks that run at once")
	flags.StringVar(&options.ID, "id", "", "name of this worker (default host-pid)")
	flags.DurationVar(&options.Grace, "grace", 30*time.Second, "maximum time for running tasks when the worker stops")
	flags.DurationVar(&options.Lease, "lease", 0, "lease duration without a heartbeat (default: the server's --worker-timeout and a little more)")
	flags.StringArrayVar(&exec.PassEnv, "pass-env", nil, "environment variable for commands, repeatable")
	addPrivateNetworks(cmd, &options.AllowPrivateNetworks)
	flags.StringVar(&keyFile, "api-key-file", "", "file with the worker's API key (SERVO_API_KEY_FILE)")
	flags.StringVar(&exec.User, "exec-user", "", "user of commands, a name or UID:GID; needs root (default: the worker's user)")
	flags.StringVar(&exec.Dir, "dir", "", "directory of commands (default: a new one each, deleted afterwards)")
	flags.StringVar(&python.Project, "python", "", "directory of a Python project to run, or DIR:MODULE")
	flags.StringVar(&python.Interpreter, "interpreter", "", "interpreter of Python (default: .venv of the project, VIRTUAL_ENV or python3)")
	flags.Var(&memory, "host-memory", "memory limit of a host with its child processes, such as 2GiB (default: none)")
	flags.IntVar(&python.TasksPerHost, "host-tasks", 1000, "number of tasks after which a host is replaced")
	flags.DurationVar(&python.Grace, "host-grace", 5*time.Second, "time from SIGTERM to SIGKILL when a task of a host is cancelled")
	flags.StringVar(&options.SecretsFile, "secrets", "", "file with the secrets that tasks may read (SERVO_SECRETS)")
	flags.StringVar(&options.BlobURL, "blob-url", "", "blob store of outputs: file:///dir, s3://bucket, gs://bucket (SERVO_BLOB_URL)")
	addLogging(cmd, &log, "info")
	return cmd
}

// startWorker completes the options from the settings and runs a worker.
func startWorker(cmd *cobra.Command, options servo.WorkerOptions, keyFile string, log logging) error {
	settings, err := readSettings(cmd.Flags(), environmentOf(cmd.Context()))
	if err != nil {
		return err
	}
	if options.TLS, err = settings.encryption(); err != nil {
		return err
	}
	if options.Logger, err = log.logger(cmd.ErrOrStderr()); err != nil {
		return err
	}
	if cmd.Flags().Changed("lease") && options.Lease == 0 {
		return fault.Invalid("--lease", "is 0s", "give at least 1s, or leave it out for the default")
	}
	if err := checkDirectory(options.Exec.Dir); err != nil {
		return err
	}
	if keyFile != "" {
		if settings.APIKey, err = worker.ReadKey("--api-key-file", keyFile); err != nil {
			return err
		}
	}
	options.Servers, options.APIKey, options.HTTP = settings.Servers, settings.APIKey, true
	if options.ID == "" {
		options.ID = hostPID("worker")
	}
	traces, err := telemetry.FromEnv(cmd.Context(), os.Getenv, telemetry.Service{Name: "servo-worker", Version: thisBuild().Version}, options.Logger)
	if err != nil {
		return err
	}
	defer stopTraces(cmd.Context(), traces, options.Logger)
	options.Tracer = traces.Tracer()
	return runWorker(cmd.Context(), servo.NewWorker(options))
}

// runWorker works until the context ends; a second signal aborts it.
func runWorker(ctx context.Context, w *servo.Worker) error {
	impatient, done := secondSignal(ctx)
	defer done()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-impatient:
			w.Abort()
		case <-ended:
		}
	}()
	return workerFault(w.Run(ctx))
}

// workerFault names the flag where the worker names its option.
func workerFault(err error) error {
	if servo.IsRefused(err) {
		return withExit(exitRefused, err)
	}
	if p, ok := errors.AsType[*client.Problem](err); ok {
		return fault.New(fault.Code(p.Code), p.Message, fault.Field("--server"), fault.Remedy(p.Remedy), fault.Cause(err))
	}
	f, ok := fault.As(err)
	if !ok || f.Violation.Field == "" {
		return err
	}
	flag := map[string]string{"pools": "--pool"}[f.Violation.Field]
	if flag == "" {
		flag = "--" + f.Violation.Field
	}
	return fault.New(f.Code, f.Message, fault.Field(flag), fault.Remedy(f.Violation.Remedy), fault.Cause(err))
}

// checkDirectory refuses a missing directory: every command would fail.
func checkDirectory(dir string) error {
	if dir == "" {
		return nil
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fault.New(fault.InvalidArgument, fmt.Sprintf("directory %q does not exist", dir), fault.Field("--dir"),
			fault.Remedy("create it, or omit the flag"), fault.Cause(err))
	}
	return nil
}
