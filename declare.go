package servo

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"go.arco.dev/servo/internal/base/duration"
	"go.arco.dev/servo/internal/domain/asset"
)

// Command declares an asset that a command produces. It runs on workers with [ExecOptions].
func Command(w *Worker, key string, command []string, options ...AssetOption) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		panic("servo: asset " + key + " is declared after the worker was started")
	}
	w.declare(asset.Asset{Key: key, Exec: &asset.Exec{Command: command}}, options)
}

// declare adds an asset to the manifest. The caller holds the lock.
func (w *Worker) declare(a asset.Asset, options []AssetOption) {
	for _, option := range options {
		option(w, &a)
	}
	w.assets = append(w.assets, a)
}

// Pipeline is a named selection of assets that can be run, with parameters.
type Pipeline struct {
	Name        string
	Description string
	// Select are the assets: keys, "+key" with all upstreams, "key+" with all downstreams, patterns
	// such as "silver/*"; default: all.
	Select     []string
	Parameters []Parameter
	Retry      *RetryPolicy
	// MaxExecution is how long a run may take; default: the tenant's limit.
	MaxExecution time.Duration
	Priority     int  // 1 to 10, 10 first; default 5
	AllowOverlap bool // runs need not wait for each other
}

// Parameter is an input of the runs of a pipeline.
type Parameter struct {
	Name        string
	Type        string // string, integer, number, boolean, object or array
	Description string
	Required    bool
	Default     any   // nil: none
	Enum        []any // the permitted values; default: all
}

// AddPipeline declares a pipeline.
func (w *Worker) AddPipeline(p Pipeline) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pipelines = append(w.pipelines, p)
}

// Manifest returns the manifest of the declared assets and pipelines as JSON, as `servo deploy --go`
// deploys it. The error lists every mistake, with the asset and the field.
func (w *Worker) Manifest() ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := asset.Manifest{Version: asset.Version, Assets: w.assets}
	for _, p := range w.pipelines {
		declared, err := p.declared()
		if err != nil {
			return nil, err
		}
		m.Pipelines = append(m.Pipelines, declared)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the manifest: %w", err)
	}
	parsed, err := asset.Parse(data, "manifest.json")
	if err != nil {
		return nil, err
	}
	return parsed.Canonical()
}

// printManifest writes the manifest, or what is wrong with it, and returns the exit code.
func (w *Worker) printManifest(out, problems io.Writer) int {
	manifest, err := w.Manifest()
	if err != nil {
		fmt.Fprintln(problems, err)
		return 1
	}
	if _, err := fmt.Fprintln(out, string(manifest)); err != nil {
		return 1
	}
	return 0
}

func (p Pipeline) declared() (asset.Pipeline, error) {
	out := asset.Pipeline{
		Name: p.Name, Description: p.Description, Select: p.Select, Retry: p.Retry.declared(), MaxExecution: duration.Duration(p.MaxExecution), Priority: p.Priority,
	}
	if p.AllowOverlap {
		out.Overlap = asset.OverlapAllow
	}
	for _, parameter := range p.Parameters {
		declared := asset.Parameter{Name: parameter.Name, Type: asset.ParameterType(parameter.Type), Description: parameter.Description, Required: parameter.Required}
		var err error
		if declared.Default, err = scalar(parameter.Default); err != nil {
			return out, fmt.Errorf("default of parameter %s of pipeline %s: %w", parameter.Name, p.Name, err)
		}
		for _, value := range parameter.Enum {
			encoded, err := scalar(value)
			if err != nil {
				return out, fmt.Errorf("enum of parameter %s of pipeline %s: %w", parameter.Name, p.Name, err)
			}
			declared.Enum = append(declared.Enum, encoded)
		}
		out.Parameters = append(out.Parameters, declared)
	}
	return out, nil
}

// scalar is a value as JSON; nil is none.
func scalar(value any) (json.RawMessage, error) {
	if value == nil {
		return nil, nil
	}
	return json.Marshal(value)
}

// RetryPolicy declares how failed attempts are repeated. A zero field is not set: the pipeline, the
// config or the server's default sets it.
type RetryPolicy struct {
	MaxAttempts   int
	MaxDeaths     int // of workers that run the task
	InitialDelay  time.Duration
	MaxDelay      time.Duration
	Multiplier    float64
	Jitter        float64  // share of the delay that is random, 0 to 1
	RetryOn       []string // error codes
	NoRetryOn     []string
	TimeoutGrowth float64
}

func (r *RetryPolicy) declared() *asset.Retry {
	if r == nil {
		return nil
	}
	return &asset.Retry{
		MaxAttempts: r.MaxAttempts, MaxDeaths: r.MaxDeaths, InitialDelay: duration.Duration(r.InitialDelay), MaxDelay: duration.Duration(r.MaxDelay),
		Multiplier: r.Multiplier, Jitter: r.Jitter, RetryOn: r.RetryOn, NoRetryOn: r.NoRetryOn, TimeoutGrowth: r.TimeoutGrowth,
	}
}
