package asset

import (
	"encoding/json"
	"time"
)

// Version is the manifest version that this package reads and writes.
const Version = 1

// What holds where a manifest says nothing.
const (
	DefaultPool     = "default"
	DefaultTimeout  = Duration(time.Hour)
	DefaultMethod   = "POST"
	DefaultPriority = 5
	SelectAll       = "*"
)

// Manifest is everything that is deployed together. One that comes from Parse is valid
// and normalised: defaults are filled in, and lists whose order means nothing are sorted.
type Manifest struct {
	Version   int        `json:"version"`
	Assets    []Asset    `json:"assets"`
	Pipelines []Pipeline `json:"pipelines,omitempty"`
}

// Asset is a node of the DAG: data with the code that makes it. Exactly one of Exec, HTTP
// and Go is set.
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
}

// Exec is an asset made by a command on the worker's machine.
type Exec struct {
	Command []string          `json:"command"`
	Env     map[string]string `json:"env,omitempty"`
}

// HTTP is an asset made by calling an endpoint.
type HTTP struct {
	URL     string            `json:"url"`
	Method  string            `json:"method,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// Go is an asset made by a handler that a Go worker has registered, by default under the
// asset's key.
type Go struct {
	Handler string `json:"handler,omitempty"`
}

// Kind is how the asset's code is reached.
type Kind string

// The kinds of code.
const (
	KindExec Kind = "exec"
	KindHTTP Kind = "http"
	KindGo   Kind = "go"
)

// Kind says which of the code fields is set; "" if none is.
func (a Asset) Kind() Kind {
	switch {
	case a.Exec != nil:
		return KindExec
	case a.HTTP != nil:
		return KindHTTP
	case a.Go != nil:
		return KindGo
	}
	return ""
}

// Capability is what a worker must have to make the asset: exec, http, or for Go the handler, such as
// "go:orders". Package run has the other direction.
func (a Asset) Capability() string {
	if a.Go == nil {
		return string(a.Kind())
	}
	handler := a.Go.Handler
	if handler == "" {
		handler = a.Key
	}
	return string(KindGo) + ":" + handler
}

// Retry is a retry policy as it is declared. A zero field is not said: the next weaker
// layer says it. An empty list is said, and lists nothing.
type Retry struct {
	MaxAttempts   int      `json:"max_attempts,omitempty"`
	MaxDeaths     int      `json:"max_deaths,omitempty"`
	InitialDelay  Duration `json:"initial_delay,omitzero"`
	MaxDelay      Duration `json:"max_delay,omitzero"`
	Multiplier    float64  `json:"multiplier,omitempty"`
	Jitter        float64  `json:"jitter,omitempty"` // share of the delay that is spread, 0 to 1
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

// Asset finds an asset of a normalised manifest by its key.
func (m *Manifest) Asset(key string) (Asset, bool) {
	return find(m.Assets, key, func(a Asset) string { return a.Key })
}

// Pipeline finds a pipeline of a normalised manifest by its name.
func (m *Manifest) Pipeline(name string) (Pipeline, bool) {
	return find(m.Pipelines, name, func(p Pipeline) string { return p.Name })
}

// PipelineNames are the names of all pipelines.
func (m *Manifest) PipelineNames() []string {
	names := make([]string, len(m.Pipelines))
	for i, p := range m.Pipelines {
		names[i] = p.Name
	}
	return names
}
