package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/data/checks"
	"go.arco.dev/servo/internal/data/commit"
	"go.arco.dev/servo/internal/domain/output"
	"go.arco.dev/servo/internal/domain/quality"
)

// codeCheck is the code of a task whose gate blocks it.
const codeCheck = "CHECK_FAILED"

// taskOutput is the declared output of an attempt: its directory on disk, and what its checks found.
type taskOutput struct {
	quality.Declared

	dir     string // everything of the attempt on disk
	files   string // the output's files, below dir
	results []quality.Result
	started time.Time
	custom  func(ctx context.Context, function string) error
}

// checkFunctions is an executor whose code has check functions.
type checkFunctions interface {
	Check(ctx context.Context, task *Task, function string) error
}

// Committed is how the result of a task names the version that it has committed.
type Committed struct {
	Format  quality.Format `json:"format"`
	Rows    int64          `json:"rows"`
	Bytes   int64          `json:"bytes"`
	Files   int            `json:"files"`
	Digest  string         `json:"digest"`
	Gate    quality.Gate   `json:"gate"`
	Attempt int32          `json:"attempt"`
	Token   int64          `json:"token"`
	Path    string         `json:"path"` // in the blob store
}

// outputResult is the result of a task with an output.
type outputResult struct {
	Output *Committed      `json:"servo_output"`
	Result json.RawMessage `json:"result,omitempty"` // of the asset's code
}

// OutputDir returns the directory that the code writes its output to; "" if the asset has no output.
func (t *Task) OutputDir() string {
	if t.output == nil || t.output.Output == nil {
		return ""
	}
	return t.output.files
}

// OutputFormat returns the declared format of the output; "" without one.
func (t *Task) OutputFormat() quality.Format {
	if t.output == nil || t.output.Output == nil {
		return ""
	}
	return t.output.Output.Format
}

// close deletes the files of the attempt from the disk.
func (o *taskOutput) close() {
	if o != nil && o.dir != "" {
		_ = os.RemoveAll(o.dir)
	}
}

// prepareOutput creates the directory of the output, and runs the checks of the inputs.
func (t *Task) prepareOutput(ctx context.Context, executor Executor) error {
	declaration := t.Lease().GetOutput()
	if declaration == "" {
		return nil
	}
	o := &taskOutput{started: time.Now()}
	if functions, ok := executor.(checkFunctions); ok {
		o.custom = func(ctx context.Context, function string) error { return functions.Check(ctx, t, function) }
	}
	if err := json.Unmarshal([]byte(declaration), &o.Declared); err != nil {
		return &Error{Code: codeConfig, Message: "the declaration of the output cannot be read: " + err.Error(), Cause: err}
	}
	if t.worker.options.Blobs == nil {
		return &Error{Code: codeConfig, Message: "this worker has no blob store, and the asset has an output or checks", SuggestedAction: "start it with --blob-url, or set SERVO_BLOB_URL"}
	}
	var err error
	if o.dir, err = os.MkdirTemp("", "servo-output-"); err != nil {
		return diskError(err)
	}
	t.output = o
	if err := os.Chmod(o.dir, 0o711); err != nil { //nolint:gosec //nolint:gosec // the command's user passes through it
		return diskError(err)
	}
	o.files = filepath.Join(o.dir, "output")
	if err := os.Mkdir(o.files, 0o700); err != nil {
		return diskError(err)
	}
	return t.checkInputs(ctx)
}

// checkInputs runs the PRE checks. A critical failure means that the asset's code is not called.
func (t *Task) checkInputs(ctx context.Context) error {
	byInput := map[string][]quality.Check{}
	var order []string
	for _, c := range t.output.Checks {
		if c.Phase != quality.Pre {
			continue
		}
		input := c.Input
		if input == "" && len(t.Lease().GetUpstream()) > 0 { // the only upstream, with one or more partitions
			input = t.Lease().GetUpstream()[0].GetAsset()
		}
		if !slices.Contains(order, input) {
			order = append(order, input)
		}
		byInput[input] = append(byInput[input], c)
	}
	if len(order) == 0 {
		return nil
	}
	inputs, err := t.Inputs(ctx)
	if err != nil {
		return err
	}
	ctx, span := t.worker.step(ctx, "run_checks")
	defer func() { endSpan(span, err) }()
	for _, key := range order {
		in, found := inputs[key]
		if !found {
			err = &Error{Code: "MISSING_INPUT", Message: fmt.Sprintf("upstream %s has no output to check", key), SuggestedAction: "declare an output for it, or remove the check"}
			return err
		}
		report, failed := checks.Run(ctx, t.request(in.checked(), byInput[key])) //nolint:contextcheck // references are read in the context of the attempt
		if failed != nil {
			err = checkError(ctx, failed)
			return err
		}
		t.output.results = append(t.output.results, report.Results...)
	}
	err = t.output.gate(t.output.phase(quality.Pre))
	return err
}

// request is a request to run checks over files.
func (t *Task) request(files checks.Files, list []quality.Check) checks.Request {
	r := checks.Request{Files: files, Checks: list, Now: time.Now(), Dir: t.output.dir, Custom: t.output.custom}
	for _, u := range t.Lease().GetUpstream() {
		r.Inputs = append(r.Inputs, u.GetAsset())
	}
	if t.output.Output != nil {
		r.Sensitive = *t.output.Output
	}
	r.References = func(asset string) (checks.Files, error) {
		inputs, err := t.Inputs(context.WithoutCancel(t.attempt.ctx))
		if err != nil {
			return checks.Files{}, err
		}
		in, found := inputs[asset]
		if !found {
			return checks.Files{}, fmt.Errorf("upstream %s has no output", asset)
		}
		return in.checked(), nil
	}
	return r
}

// phase returns the checks of a phase.
func (o *taskOutput) phase(phase quality.Phase) []quality.Check {
	return slices.DeleteFunc(slices.Clone(o.Checks), func(c quality.Check) bool { return (c.Phase == quality.Pre) != (phase == quality.Pre) })
}

// gate returns the failure of a task whose checks block it.
func (o *taskOutput) gate(declared []quality.Check) error {
	if quality.Decide(declared, o.results, false).Promotes() {
		return nil
	}
	failed, found := quality.FirstFailure(declared, o.results)
	message := failed.Explain()
	if !found {
		message = "a declared check has no result"
	}
	return &Error{Code: codeCheck, Message: message, Details: map[string]any{"checks": o.shown()}, SuggestedAction: "fix the data or the check; nothing was committed"}
}

// shownSamples is how many offending rows of a check a failure shows; _metadata.json has all.
const shownSamples = 5

// shown are the failed results as details of a failure.
func (o *taskOutput) shown() []quality.Result {
	var failed []quality.Result
	for _, r := range o.results {
		if r.Failed() {
			r.Sample = r.Sample[:min(len(r.Sample), shownSamples)]
			failed = append(failed, r)
		}
	}
	return failed
}

// commitOutput runs the checks of the output, and commits its files. The result names the version.
func (t *Task) commitOutput(ctx context.Context, result Result) (Result, error) {
	o := t.output
	if o == nil || o.Output == nil {
		return result, nil
	}
	report, err := t.checkOutput(ctx)
	if err != nil {
		return Result{}, err
	}
	o.results = append(o.results, report.Results...)
	if err := o.gate(o.Checks); err != nil {
		return Result{}, err
	}
	ctx, span := t.worker.step(ctx, "write_output")
	marker, err := t.write(ctx, report)
	endSpan(span, err)
	if err != nil {
		return Result{}, storeError(ctx, err)
	}
	wrapped, err := Marshal(outputResult{Result: result.JSON, Output: &Committed{
		Format: marker.Format, Rows: marker.Rows, Bytes: marker.Bytes, Files: len(marker.Files), Digest: marker.Digest, Gate: quality.Decide(o.Checks, o.results, false),
		Attempt: marker.Attempt.Attempt, Token: marker.Token, Path: marker.Prefix(),
	}})
	return Result{JSON: wrapped, Partial: result.Partial}, err
}

// checkOutput reads the output's files once. Plain files are only listed.
func (t *Task) checkOutput(ctx context.Context) (checks.Report, error) {
	o := t.output
	names, err := commit.Files(o.files)
	if err != nil {
		return checks.Report{}, checkError(ctx, err)
	}
	declared := o.phase(quality.Post)
	ctx, span := t.worker.step(ctx, "run_checks")
	var report checks.Report
	if o.Output.Format.HasRows() {
		paths := make([]string, len(names))
		for i, name := range names {
			paths[i] = filepath.Join(o.files, filepath.FromSlash(name))
		}
		report, err = checks.Run(ctx, t.request(checks.Files{Paths: paths, Format: o.Output.Format, Schema: o.Output.Schema}, declared)) //nolint:contextcheck // references are read in the context of the attempt
	} else {
		report, err = checks.RunCustom(ctx, t.request(checks.Files{}, declared)) //nolint:contextcheck // references are read in the context of the attempt
	}
	err = checkError(ctx, err)
	endSpan(span, err)
	return report, err
}

func (t *Task) write(ctx context.Context, report checks.Report) (output.Marker, error) {
	o := t.output
	metadata := output.Metadata{
		Schema: report.Columns, SchemaHash: output.SchemaHash(report.Columns), Sensitive: o.Output.Sensitive, Checks: o.results, Gate: quality.Decide(o.Checks, o.results, false),
		StartedAt: o.started.UTC(), CommittedAt: time.Now().UTC(),
	}
	for _, u := range t.Lease().GetUpstream() {
		in := output.Input{Asset: u.GetAsset(), Run: u.GetRun(), Task: u.GetTask()}
		if committed, err := t.committed(ctx, u); err == nil && committed != nil {
			in.Digest = committed.Digest
		}
		metadata.Inputs = append(metadata.Inputs, in)
	}
	if t.attempt.secrets.active() {
		metadata.Checks = t.redactedChecks(metadata.Checks)
	}
	l := t.Lease()
	self := output.Attempt{
		Tenant: l.GetTenant(), Workspace: l.GetWorkspace(), Asset: l.GetAsset(), Partition: l.GetPartition(),
		Run: l.GetRun(), Task: l.GetTask(), Attempt: l.GetAttempt(), Token: l.GetFencingToken(),
	}
	writer := &commit.Writer{Store: t.worker.options.Blobs}
	marker, err := writer.Write(ctx, self, commit.Local{Dir: o.files, Format: o.Output.Format, Rows: report.Rows, Metadata: metadata})
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardPatience)
		defer cancel()
		if _, failed := commit.Discard(clean, t.worker.options.Blobs, self); failed != nil {
			t.worker.options.Logger.Warn("files of a failed attempt remain in the blob store", "path", self.Prefix(), "error", failed)
		}
	}
	return marker, err
}

// discardPatience bounds how long a failed attempt deletes its files.
const discardPatience = 5 * time.Second

// checkError is the failure of a task whose files cannot be checked.
func checkError(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if f, ok := fault.As(err); ok {
		return &Error{Code: codeCheck, Message: f.Message, SuggestedAction: f.Violation.Remedy, Cause: err}
	}
	return &Error{Code: "WORKER_CRASH", Message: "the output cannot be checked: " + err.Error(), Cause: err}
}

// storeError is the failure of a task whose files cannot be stored.
func storeError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if f, ok := fault.As(err); ok && f.Code != fault.NotFound && f.Code != fault.Unavailable {
		return &Error{Code: codeCheck, Message: f.Message, SuggestedAction: f.Violation.Remedy, Cause: err}
	}
	return &Error{Code: "SERVICE_UNAVAILABLE", Message: "the output cannot be stored: " + err.Error(), Cause: err}
}
