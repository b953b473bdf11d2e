package asset

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/quality"
)

// Version is the manifest version that this package reads and writes.
const Version = 1

// The defaults of a manifest.
const (
	DefaultPool     = "default"
	DefaultTimeout  = Duration(time.Hour)
	DefaultMethod   = "POST"
	DefaultPriority = 5
	SelectAll       = "*"
)

// Manifest is the set of assets and pipelines that are deployed together. A manifest from Parse is
// valid and normalised: defaults are filled in, and lists whose order has no meaning are sorted.
type Manifest struct {
	Version   int        `json:"version"`
	Assets    []Asset    `json:"assets"`
	Pipelines []Pipeline `json:"pipelines,omitempty"`
}

// Asset is a node of the DAG: data with the code that produces it. Exactly one of Exec, HTTP, Go
// and Python is set.
type Asset struct {
	Key         string   `json:"key"` // namespace/name
	Description string   `json:"description,omitempty"`
	Upstream    []string `json:"upstream,omitempty"`
	Pool        string   `json:"pool,omitempty"`
	Timeout     Duration `json:"timeout,omitzero"`
	Retry       *Retry   `json:"retry,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	Owners      []string `json:"owners,omitempty"`
	Exec        *Exec    `json:"exec,omitempty"`
	HTTP        *HTTP    `json:"http,omitempty"`
	Go          *Go      `json:"go,omitempty"`
	Python      *Python  `json:"python,omitempty"`

	// Partitions are the dimensions that divide the asset; none if it is made as a whole.
	Partitions        []partition.Dimension `json:"partitions,omitempty"`
	PartitionMapping  map[string]string     `json:"partition_mapping,omitempty"` // by upstream
	PartitionsPerTask PerTask               `json:"partitions_per_task,omitempty"`

	// Output, if set, makes the asset versioned: each success writes a version of it.
	Output     *quality.Output `json:"output,omitempty"`
	Checks     []quality.Check `json:"checks,omitempty"`
	Quarantine bool            `json:"quarantine,omitempty"`
}

// Exec is an asset that a command on the worker's machine produces.
type Exec struct {
	Command []string          `json:"command"`
	Env     map[string]string `json:"env,omitempty"`
}

// HTTP is an asset that a call of an endpoint produces.
type HTTP struct {
	URL     string            `json:"url"`
	Method  string            `json:"method,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// Go is an asset that a handler of a Go worker produces. By default the handler has the asset's key
// as its name.
type Go struct {
	Handler string `json:"handler,omitempty"`
}

// Python is an asset that a Python function produces, in a host process of a worker.
type Python struct {
	Function string `json:"function,omitempty"` // module:name, for people
	Code     string `json:"code,omitempty"`     // digest of the code; "" leaves the version to the worker
}

// Kind is the kind of an asset's code.
type Kind string

// The kinds of code.
const (
	KindExec   Kind = "exec"
	KindHTTP   Kind = "http"
	KindGo     Kind = "go"
	KindPython Kind = "python"
)

// Kind returns the kind of the asset's code; "" if it has none.
func (a Asset) Kind() Kind {
	switch {
	case a.Exec != nil:
		return KindExec
	case a.HTTP != nil:
		return KindHTTP
	case a.Go != nil:
		return KindGo
	case a.Python != nil:
		return KindPython
	}
	return ""
}

// Capability is the capability that a worker needs to execute the asset: exec, http, for Go the
// handler, such as "go:orders", and for Python the digest of the code or the asset, such as
// "python:gold/revenue". If the asset has an output or checks, "output:" comes before it: a worker
// without support for them must not complete it. With a custom_sql check, "sql:" comes before that: only
// some builds of the worker have DuckDB. Package run has the other direction.
func (a Asset) Capability() string {
	capability := string(a.Kind())
	switch {
	case a.Python != nil:
		capability += ":" + cmp.Or(a.Python.Code, a.Key)
	case a.Go != nil:
		capability += ":" + cmp.Or(a.Go.Handler, a.Key)
	}
	if a.Declared() == nil {
		return capability
	}
	if slices.ContainsFunc(a.Checks, func(c quality.Check) bool { return c.Type == quality.CustomSQL }) {
		return SQLPrefix + OutputPrefix + capability
	}
	return OutputPrefix + capability
}

// What begins the capabilities of assets with an output or checks, and of those with custom_sql checks.
const (
	OutputPrefix = "output:"
	SQLPrefix    = "sql:"
)

// Declared returns the declared output and checks of the asset; nil if it has neither.
func (a Asset) Declared() *quality.Declared {
	if a.Output == nil && len(a.Checks) == 0 {
		return nil
	}
	return &quality.Declared{Output: a.Output, Checks: a.Checks}
}

// Retry is a retry policy as it is declared. A zero field is not set: the next weaker layer sets it.
// An empty list is set.
type Retry struct {
	MaxAttempts   int      `json:"max_attempts,omitempty"`
	MaxDeaths     int      `json:"max_deaths,omitempty"`
	InitialDelay  Duration `json:"initial_delay,omitzero"`
	MaxDelay      Duration `json:"max_delay,omitzero"`
	Multiplier    float64  `json:"multiplier,omitempty"`
	Jitter        float64  `json:"jitter,omitempty"` // share of the delay that is random, 0 to 1
	RetryOn       []string `json:"retry_on,omitzero"`
	NoRetryOn     []string `json:"no_retry_on,omitzero"`
	TimeoutGrowth float64  `json:"timeout_growth,omitempty"`
}

// Pipeline is a named selection of assets that can be run, with declared parameters.
type Pipeline struct {
	Name         string      `json:"name"`
	Description  string      `json:"description,omitempty"`
	Select       []string    `json:"select,omitempty"`
	Parameters   []Parameter `json:"parameters,omitempty"`
	Retry        *Retry      `json:"retry,omitempty"`
	MaxExecution Duration    `json:"max_execution,omitzero"`
	Priority     int         `json:"priority,omitempty"` // 1 to 10, 10 first
	Overlap      Overlap     `json:"overlap,omitempty"`
	Lock         *Lock       `json:"lock,omitempty"`
}

// Parameter is one declared input of a pipeline's runs.
type Parameter struct {
	Name        string            `json:"name"`
	Type        ParameterType     `json:"type"`
	Description string            `json:"description,omitempty"`
	Required    bool              `json:"required,omitempty"`
	Default     json.RawMessage   `json:"default,omitempty"`
	Enum        []json.RawMessage `json:"enum,omitempty"`
}

// ParameterType is the JSON type of a parameter.
type ParameterType string

// The types of parameters.
const (
	TypeString  ParameterType = "string"
	TypeInteger ParameterType = "integer"
	TypeNumber  ParameterType = "number"
	TypeBoolean ParameterType = "boolean"
	TypeObject  ParameterType = "object"
	TypeArray   ParameterType = "array"
)

// Asset returns the asset of a normalised manifest with a key.
func (m *Manifest) Asset(key string) (Asset, bool) {
	return find(m.Assets, key, func(a Asset) string { return a.Key })
}

// Pipeline returns the pipeline of a normalised manifest with a name.
func (m *Manifest) Pipeline(name string) (Pipeline, bool) {
	return find(m.Pipelines, name, func(p Pipeline) string { return p.Name })
}

// PipelineNames returns the names of all pipelines.
func (m *Manifest) PipelineNames() []string {
	names := make([]string, len(m.Pipelines))
	for i, p := range m.Pipelines {
		names[i] = p.Name
	}
	return names
}
