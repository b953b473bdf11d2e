package local

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/data/checks"
	"go.arco.dev/servo/internal/data/commit"
	"go.arco.dev/servo/internal/domain/output"
	"go.arco.dev/servo/internal/domain/quality"
	"go.arco.dev/servo/internal/worker"
	"go.arco.dev/servo/internal/worker/host"
)

// The names of local runs in the paths of outputs.
const (
	tenant    = "local"
	workspace = "default"
)

// pending is the output of an attempt until it is committed.
type pending struct {
	*attempt

	started time.Time
	results []quality.Result
}

func (a *attempt) outputDir() string { return filepath.Join(a.dir, "output") }

// close deletes the temporary files of the attempt.
func (a *attempt) close() {
	if a.dir != "" {
		_ = os.RemoveAll(a.dir)
	}
}

// prepare creates the directories of the attempt, and runs the checks of its inputs.
func (a *attempt) prepare(ctx context.Context) (*pending, error) {
	if a.asset.Declared() == nil {
		return nil, nil //nolint:nilnil // no output
	}
	if err := a.makeDir(); err != nil {
		return nil, err
	}
	if err := os.Mkdir(a.outputDir(), 0o700); err != nil {
		return nil, err
	}
	p := &pending{attempt: a, started: time.Now()}
	for _, c := range a.asset.Checks {
		if c.Phase != quality.Pre {
			continue
		}
		input := c.Input
		if input == "" && len(a.asset.Upstream) > 0 {
			input = a.asset.Upstream[0]
		}
		files, err := a.checkedInput(ctx, input)
		if err != nil {
			return nil, err
		}
		report, err := checks.Run(ctx, p.request(ctx, files, []quality.Check{c}))
		if err != nil {
			return nil, checkFailure(err)
		}
		p.results = append(p.results, report.Results...)
	}
	return p, p.gate(slices.DeleteFunc(slices.Clone(a.asset.Checks), func(c quality.Check) bool { return c.Phase != quality.Pre }))
}

func (a *attempt) makeDir() (err error) {
	if a.dir == "" {
		a.dir, err = os.MkdirTemp("", "servo-local-")
	}
	return err
}

// checkedInput downloads the files of an upstream for a check.
func (a *attempt) checkedInput(ctx context.Context, upstream string) (checks.Files, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	versions, err := a.inputFiles(ctx, upstream)
	if err != nil {
		return checks.Files{}, err
	}
	if len(versions) == 0 {
		return checks.Files{}, &host.Failure{Class: "MISSING_INPUT", Message: fmt.Sprintf("upstream %s has no output to check", upstream), Remedy: "declare an output for it, or remove the check"}
	}
	files := checks.Files{Format: versions[0].Format, Schema: versions[0].Schema}
	if declared, known := a.run.Manifest.Asset(upstream); known && declared.Output != nil {
		files.Sensitive = declared.Output.Sensitive
	}
	for _, v := range versions {
		files.Paths = append(files.Paths, v.Files...)
	}
	return files, nil
}

// inputFiles downloads the output of an upstream, once. The caller holds the lock.
func (a *attempt) inputFiles(ctx context.Context, upstream string) ([]host.InputFiles, error) {
	if files, loaded := a.files[upstream]; loaded {
		return files, nil
	}
	found := []host.InputFiles{}
	for i, in := range a.inputs {
		if in.asset != upstream || in.version == nil {
			continue
		}
		marker, metadata, err := commit.Read(ctx, a.run.blobs, in.attempt())
		if err != nil {
			return nil, inputFailure(upstream, err)
		}
		if err := a.makeDir(); err != nil {
			return nil, err
		}
		paths, err := commit.Fetch(ctx, a.run.blobs, marker, filepath.Join(a.dir, "input-"+strconv.Itoa(i)))
		if err != nil {
			return nil, inputFailure(upstream, err)
		}
		found = append(found, host.InputFiles{Partition: in.partition, Format: marker.Format, Rows: marker.Rows, Schema: metadata.Schema, Files: paths})
	}
	if a.files == nil {
		a.files = map[string][]host.InputFiles{}
	}
	a.files[upstream] = found
	return found, nil
}

// commit checks the output, and commits it to the directory of versions. The result names the version.
func (p *pending) commit(ctx context.Context, result json.RawMessage) (json.RawMessage, error) {
	if p.asset.Output == nil {
		return result, nil
	}
	report, err := p.check(ctx)
	if err != nil {
		return nil, checkFailure(err)
	}
	p.results = append(p.results, report.Results...)
	if err := p.gate(p.asset.Checks); err != nil {
		return nil, err
	}
	gate := quality.Decide(p.asset.Checks, p.results, false)
	self := output.Attempt{
		Tenant: tenant, Workspace: workspace, Asset: p.key, Partition: p.partition, Run: p.run.id,
		Task: strconv.FormatInt(p.started.UnixNano(), 36), Attempt: 1, Token: p.started.UnixNano(),
	}
	metadata := output.Metadata{
		Schema: report.Columns, SchemaHash: output.SchemaHash(report.Columns), Checks: p.results, Gate: gate,
		StartedAt: p.started.UTC(), CommittedAt: time.Now().UTC(),
	}
	for _, in := range p.inputs {
		used := output.Input{Asset: in.asset, Run: in.run, Task: in.task}
		if in.version != nil {
			used.Digest = in.version.Digest
		}
		metadata.Inputs = append(metadata.Inputs, used)
	}
	writer := &commit.Writer{Store: p.run.blobs}
	marker, err := writer.Write(ctx, self, commit.Local{Dir: p.outputDir(), Format: p.asset.Output.Format, Rows: report.Rows, Metadata: metadata})
	if err != nil {
		return nil, checkFailure(err)
	}
	return json.Marshal(wrapped{Run: self.Run, Task: self.Task, Result: result, Output: &worker.Committed{
		Format: marker.Format, Rows: marker.Rows, Bytes: marker.Bytes, Files: len(marker.Files), Digest: marker.Digest, Gate: gate,
		Attempt: marker.Attempt.Attempt, Token: marker.Token, Path: marker.Prefix(),
	}})
}

// check runs the checks of the output in one pass over its files.
func (p *pending) check(ctx context.Context) (checks.Report, error) {
	names, err := commit.Files(p.outputDir())
	if err != nil {
		return checks.Report{}, err
	}
	declared := slices.DeleteFunc(slices.Clone(p.asset.Checks), func(c quality.Check) bool { return c.Phase == quality.Pre })
	if !p.asset.Output.Format.HasRows() {
		return checks.RunCustom(ctx, p.request(ctx, checks.Files{}, declared))
	}
	files := checks.Files{Format: p.asset.Output.Format, Schema: p.asset.Output.Schema}
	for _, name := range names {
		files.Paths = append(files.Paths, filepath.Join(p.outputDir(), filepath.FromSlash(name)))
	}
	return checks.Run(ctx, p.request(ctx, files, declared))
}

// request is a request to run checks over files.
func (p *pending) request(ctx context.Context, files checks.Files, list []quality.Check) checks.Request {
	r := checks.Request{Files: files, Checks: list, Now: time.Now(), Dir: p.dir, Inputs: p.asset.Upstream}
	if p.asset.Output != nil {
		r.Sensitive = *p.asset.Output
	}
	r.References = func(upstream string) (checks.Files, error) { return p.checkedInput(ctx, upstream) }
	r.Custom = func(ctx context.Context, function string) error {
		verdict, err := p.call(ctx, function)
		if err != nil {
			return err
		}
		return worker.CheckVerdict(function, verdict)
	}
	return r
}

// gate returns the failure of a task whose checks block it. Other failed checks are logged.
func (p *pending) gate(declared []quality.Check) error {
	for _, result := range p.results {
		if result.Failed() {
			p.Log(time.Now(), "WARN", result.Explain())
		}
	}
	if quality.Decide(declared, p.results, false).Promotes() {
		return nil
	}
	message := "a declared check has no result"
	details := map[string]any{}
	if failed, found := quality.FirstFailure(declared, p.results); found {
		message, details["sample"] = failed.Explain(), failed.Sample
	}
	return &host.Failure{Class: "CHECK_FAILED", Message: message, Details: details, Remedy: "fix the data or the check; nothing was committed"}
}

// checkFailure is the failure of a task whose output cannot be checked or committed.
func checkFailure(err error) error {
	if f, ok := fault.As(err); ok {
		return &host.Failure{Class: "CHECK_FAILED", Message: f.Message, Remedy: f.Violation.Remedy}
	}
	return err
}

// inputFailure is the failure of a task whose input cannot be read.
func inputFailure(upstream string, err error) error {
	if f, ok := fault.As(err); ok {
		return &host.Failure{Class: "MISSING_INPUT", Message: "the output of upstream " + upstream + ": " + f.Message, Remedy: "run the upstream again"}
	}
	return err
}
