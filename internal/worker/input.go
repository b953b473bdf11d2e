package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/data/checks"
	"go.arco.dev/servo/internal/data/commit"
	"go.arco.dev/servo/internal/domain/output"
	"go.arco.dev/servo/internal/domain/quality"
)

// Input is the output of an upstream on this machine's disk.
type Input struct {
	Asset  string           `json:"asset"`
	Run    string           `json:"run"`
	Task   string           `json:"task"`
	Format quality.Format   `json:"format"`
	Rows   int64            `json:"rows"`
	Digest string           `json:"digest"`
	Schema []quality.Column `json:"schema,omitempty"`
	Files  []string         `json:"files"`

	sensitive []string
}

// checked are the files of the input for checks.
func (in Input) checked() checks.Files {
	return checks.Files{Paths: in.Files, Format: in.Format, Schema: in.Schema, Sensitive: in.sensitive}
}

// with adds the files of another partition.
func (in Input) with(other Input) Input {
	if in.Asset == "" {
		return other
	}
	in.Files, in.Rows = append(in.Files, other.Files...), in.Rows+other.Rows
	in.Digest = output.ContentDigest([]output.File{{Name: in.Digest, SHA256: other.Digest}})
	return in
}

// hasInputFiles reports whether an upstream may have an output that this worker can load.
func (t *Task) hasInputFiles() bool {
	return t.worker.options.Blobs != nil && len(t.Lease().GetUpstream()) > 0
}

// committed returns the version that an upstream's result names; nil if it has none.
func (t *Task) committed(ctx context.Context, u *servov1.UpstreamResult) (*Committed, error) {
	if !u.GetOmitted() && u.GetResult().GetStructValue().GetFields()["servo_output"] == nil {
		return nil, nil
	}
	data, err := t.wholeResult(ctx, u)
	if err != nil {
		return nil, err
	}
	var result outputResult
	if json.Unmarshal(data, &result) != nil {
		return nil, nil // of an asset without an output
	}
	return result.Output, nil
}

// Inputs downloads the outputs of the upstreams, once, and returns them by asset. Upstreams without an
// output are left out. The files of all partitions that the task depends on are united.
func (t *Task) Inputs(ctx context.Context) (map[string]Input, error) {
	t.loading.Lock()
	defer t.loading.Unlock()
	if t.inputs != nil {
		return t.inputs, nil
	}
	if !t.hasInputFiles() {
		return nil, nil
	}
	ctx, span := t.worker.step(ctx, "load_inputs")
	inputs := map[string]Input{}
	var err error
	for i, u := range t.Lease().GetUpstream() {
		var in *Input
		if in, err = t.load(ctx, u, i); err != nil {
			err = inputError(ctx, u.GetAsset(), err)
			break
		}
		if in != nil {
			inputs[u.GetAsset()] = inputs[u.GetAsset()].with(*in)
		}
	}
	endSpan(span, err)
	if err != nil {
		return nil, err
	}
	t.inputs = inputs
	return inputs, nil
}

// load downloads the version of one upstream, once. The caller holds the lock of inputs.
func (t *Task) load(ctx context.Context, u *servov1.UpstreamResult, place int) (*Input, error) {
	if in, loaded := t.loaded[place]; loaded {
		return in, nil
	}
	in, err := t.download(ctx, u, place)
	if err == nil {
		if t.loaded == nil {
			t.loaded = map[int]*Input{}
		}
		t.loaded[place] = in
	}
	return in, err
}

func (t *Task) download(ctx context.Context, u *servov1.UpstreamResult, place int) (*Input, error) {
	committed, err := t.committed(ctx, u)
	if err != nil || committed == nil {
		return nil, err
	}
	// The place is computed from what the server has sent: a result cannot name files of others.
	l := t.Lease()
	marker, metadata, err := commit.Read(ctx, t.worker.options.Blobs, output.Attempt{
		Tenant: l.GetTenant(), Workspace: l.GetWorkspace(), Asset: u.GetAsset(), Partition: u.GetPartition(),
		Run: u.GetRun(), Task: u.GetTask(), Attempt: committed.Attempt, Token: committed.Token,
	})
	if err != nil {
		return nil, err
	}
	if marker.Digest != committed.Digest {
		return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("the marker has digest %.12s, the result names %.12s", marker.Digest, committed.Digest))
	}
	dir, err := t.inputDir()
	if err != nil {
		return nil, err
	}
	paths, err := commit.Fetch(ctx, t.worker.options.Blobs, marker, filepath.Join(dir, fmt.Sprintf("input-%d", place)))
	if err != nil {
		return nil, err
	}
	return &Input{Asset: u.GetAsset(), Run: u.GetRun(), Task: u.GetTask(), Format: marker.Format, Rows: marker.Rows, Digest: marker.Digest, Schema: metadata.Schema, Files: paths, sensitive: metadata.Sensitive}, nil
}

// inputDir is where inputs are stored. A task without an output gets a directory for them alone.
func (t *Task) inputDir() (string, error) {
	if t.output == nil {
		dir, err := os.MkdirTemp("", "servo-input-")
		if err != nil {
			return "", diskError(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec //nolint:gosec // the command's user reads it
			return "", diskError(err)
		}
		t.output = &taskOutput{dir: dir}
	}
	return t.output.dir, nil
}

// inputError is the failure of a task whose input cannot be loaded.
func inputError(ctx context.Context, asset string, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if f, ok := fault.As(err); ok {
		code := "DATA_CORRUPTION"
		if f.Code == fault.NotFound {
			code = "MISSING_INPUT"
		}
		return &Error{Code: code, Message: fmt.Sprintf("the output of upstream %s: %s", asset, f.Message), SuggestedAction: "run the upstream again", Cause: err}
	}
	return &Error{Code: "SERVICE_UNAVAILABLE", Message: fmt.Sprintf("the output of upstream %s cannot be loaded: %v", asset, err), Cause: err}
}
