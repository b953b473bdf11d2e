package servo

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"

	"go.arco.dev/servo/internal/data/rows"
	"go.arco.dev/servo/internal/worker"
)

// OutputDir returns the directory to which the function writes the files of its asset's output. The
// worker checks and commits them after the function has returned. It is "" if the manifest declares no
// output for the asset.
func (t *Task) OutputDir() string { return t.backend.OutputDir() }

// Rows writes rows of type T to a file of a task's output, in the declared format (parquet or jsonl).
// Fields are named by the struct tag parquet, or json.
type Rows[T any] struct {
	writer *rows.Writer[T]
}

// Output creates a file of the task's output. Name is that of the file without its extension, such as
// "part-0".
func Output[T any](task *Task, name string) (*Rows[T], error) {
	dir := task.OutputDir()
	if dir == "" {
		return nil, &Error{Code: InvalidConfiguration, Message: fmt.Sprintf("asset %s declares no output", task.Asset), SuggestedAction: "add output: {format: parquet} to the asset in the manifest"}
	}
	format := task.backend.OutputFormat()
	w, err := rows.Create[T](filepath.Join(dir, name+"."+string(format)), format)
	if err != nil {
		return nil, err
	}
	return &Rows[T]{writer: w}, nil
}

// Write appends rows.
func (r *Rows[T]) Write(values ...T) error { return r.writer.Write(values...) }

// Close completes the file. A file that is not closed cannot be read, and fails the task.
func (r *Rows[T]) Close() error { return r.writer.Close() }

// Input reads the rows of an upstream's output (parquet or jsonl) into values of type T, one by one. The
// files are downloaded once per attempt. The iteration ends after an error.
func Input[T any](ctx context.Context, task *Task, asset string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		inputs, err := task.backend.Inputs(ctx)
		if err != nil {
			yield(zero, err)
			return
		}
		in, found := inputs[asset]
		if !found {
			yield(zero, &Error{Code: MissingInput, Message: fmt.Sprintf("upstream %s has no output", asset), SuggestedAction: "declare the asset as upstream, and an output for it; start the worker with a blob store"})
			return
		}
		if err := rows.ReadTyped(in.Files, in.Format, func(row T) bool { return yield(row, nil) }); err != nil {
			yield(zero, err)
		}
	}
}

// CheckFunc registers a function of a custom check. It is called after the asset's function, with the
// output's files in [Task.OutputDir]. An error fails the check.
func CheckFunc(w *Worker, name string, check func(ctx context.Context, task *Task) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		panic("servo: check " + name + " is registered after the worker was started")
	}
	w.addCheck(name, check)
}

// addCheck registers a function. The caller holds the lock.
func (w *Worker) addCheck(name string, check func(ctx context.Context, task *Task) error) {
	w.handlers.AddCheck(name, func(ctx context.Context, t *worker.Task) error { return check(ctx, taskOf(t)) })
}
