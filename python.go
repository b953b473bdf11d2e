package servo

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/worker"
	"go.arco.dev/servo/internal/worker/host"
	"go.arco.dev/servo/internal/worker/python"
)

// pythonHosts is an executor with what it has to release.
type pythonHosts struct {
	*worker.Python

	project *python.Project
}

// Close ends all hosts.
func (h *pythonHosts) Close() {
	h.Pool.Close()
	h.project.Close()
}

// executor imports the project in a first host and returns an executor for its assets. It hides the
// keys of this process from hosts.
func (o *PythonOptions) executor(concurrency int, log *slog.Logger) (*pythonHosts, error) {
	for _, name := range o.PassEnv {
		if name == keyVariable || name == pushKeysVariable {
			return nil, fault.Invalid("pass-env", name+" contains a key of the worker", "pass hosts their own key in another variable")
		}
	}
	options := host.Options{Hosts: concurrency, TasksPerHost: o.TasksPerHost, MemoryLimit: o.MemoryLimit, Grace: o.Grace, Logger: log}
	var user *worker.User
	if o.User != "" {
		var err error
		if user, err = worker.LookupUser("exec-user", o.User); err != nil {
			return nil, err
		}
		options.Prepare = func(cmd *exec.Cmd) { user.Become(cmd) }
	}
	if err := worker.Hide(keyVariable, pushKeysVariable); err != nil && log != nil {
		log.Warn("hosts may be able to read the worker's key; use a key file, and run hosts as another user", "error", err)
	}
	pool, err := host.NewPool(options)
	if err != nil {
		return nil, err
	}
	project, err := python.Open(python.Project{Dir: o.Project, Interpreter: o.Interpreter, PassEnv: o.PassEnv})
	if err != nil {
		return nil, err
	}
	hosts := &pythonHosts{Python: &worker.Python{Pool: pool, User: user}, project: project}
	if err := hosts.load(cmp.Or[io.Writer](o.Output, os.Stderr)); err != nil {
		hosts.Close()
		return nil, err
	}
	return hosts, nil
}

// load reads the assets and the digest of the project.
func (h *pythonHosts) load(output io.Writer) error {
	document, err := h.project.Manifest(context.Background(), h.Pool, output)
	if err != nil {
		return err
	}
	manifest, err := asset.Parse(document, "manifest.json")
	if err != nil {
		return err
	}
	for _, a := range manifest.Assets {
		h.Assets = append(h.Assets, a.Key)
	}
	if h.Digest, err = h.project.Digest(); err != nil {
		return errors.Join(errors.New("read the project"), err)
	}
	h.Code = h.project.Host(h.Digest)
	return nil
}
