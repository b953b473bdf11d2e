package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/worker/host"
	"go.arco.dev/servo/internal/worker/python"
)

// importPatience is how long the import of a Python project may take.
const importPatience = 2 * time.Minute

// manifestSource is where a command reads its manifest: a file, or a project that declares it.
type manifestSource struct {
	file        string
	python      string
	golang      string
	interpreter string
}

// add gives a command the flags --file, --go, --python and --interpreter.
func (m *manifestSource) add(cmd *cobra.Command) {
	addManifest(cmd, &m.file)
	cmd.Flags().StringVar(&m.python, "python", "", "directory of a Python project that declares the assets, or DIR:MODULE")
	cmd.Flags().StringVar(&m.golang, "go", "", "package of a Go worker that declares the assets, such as ./cmd/worker")
	cmd.Flags().StringVar(&m.interpreter, "interpreter", "", "interpreter of Python (default: .venv of the project, VIRTUAL_ENV or python3)")
}

// read returns the manifest and the name that errors about it use.
func (m *manifestSource) read(cmd *cobra.Command) (data []byte, name string, err error) {
	if m.golang != "" {
		if m.python != "" || cmd.Flags().Changed("file") {
			return nil, "", fault.New(fault.InvalidArgument, "is set together with --file or --python", fault.Field("--go"), fault.Remedy("remove one of them"))
		}
		data, err = goManifest(cmd, m.golang)
		return data, "manifest.json", err
	}
	if m.python == "" {
		data, err = readInput(cmd, "--file", m.file, asset.MaxBytes)
		return data, m.file, err
	}
	if cmd.Flags().Changed("file") {
		return nil, "", fault.New(fault.InvalidArgument, "is set together with --file", fault.Field("--python"), fault.Remedy("remove one of them"))
	}
	data, err = pythonManifest(cmd, m.python, m.interpreter)
	return data, "manifest.json", err
}

// pythonManifest imports a Python project in a process of its own and returns its manifest.
func pythonManifest(cmd *cobra.Command, dir, interpreter string) ([]byte, error) {
	project, pool, err := openProject(cmd, dir, interpreter, host.Options{})
	if err != nil {
		return nil, err
	}
	defer project.Close()
	defer pool.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), importPatience)
	defer cancel()
	return project.Manifest(ctx, pool, cmd.ErrOrStderr())
}

// openProject opens a Python project, and a pool for its hosts.
func openProject(cmd *cobra.Command, dir, interpreter string, options host.Options) (*python.Project, *host.Pool, error) {
	pool, err := host.NewPool(options)
	if err != nil {
		return nil, nil, err
	}
	environment := environmentOf(cmd.Context())
	project, err := python.Open(python.Project{Dir: environment.path(dir), Interpreter: interpreter, Getenv: environment.Getenv, Output: cmd.ErrOrStderr()})
	if err != nil {
		return nil, nil, workerFault(err)
	}
	return project, pool, nil
}

// message returns the manifest, checked, as a part of a message.
func (m *manifestSource) message(cmd *cobra.Command) (manifestBody, error) {
	data, name, err := m.read(cmd)
	if err != nil {
		return manifestBody{}, err
	}
	return manifestMessage(data, name)
}
