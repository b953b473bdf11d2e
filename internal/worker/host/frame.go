package host

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.arco.dev/servo/internal/domain/quality"
)

// Protocol is the version of the frame protocol that this package speaks.
const Protocol = 1

// MaxFrame is the maximum length of a frame without its prefix. Larger data goes by file paths.
const MaxFrame = 4 << 20

// errFrame means that the other side violates the protocol.
var errFrame = errors.New("invalid frame")

// The types of frames that go down to a host.
const (
	typeRun      = "run"      // execute a task
	typeCancel   = "cancel"   // the running task should end
	typeAnswer   = "answer"   // to a request
	typeDescribe = "describe" // send the manifest
)

// The types of frames that come up from a host.
const (
	typeHello    = "hello"    // first frame: the host has imported the project
	typeRequest  = "request"  // is answered
	typeProgress = "progress" // of the running task
	typeResult   = "result"   // the task succeeded
	typeYield    = "yield"    // the task returns to the queue
	typeError    = "error"    // the task failed, or the import, before hello
	typeManifest = "manifest" // answer to describe
)

// frame is one message in either direction; each type uses some of its fields.
type frame struct {
	Type string `json:"type"`
	Task string `json:"task,omitempty"` // of run, cancel, progress, result, yield, error

	*Run // of run

	Reason string `json:"reason,omitempty"` // of cancel: CANCELLED, TIMEOUT, INTERRUPTED or LEASE_LOST

	ID     int64           `json:"id,omitempty"`     // of request and answer
	Method string          `json:"method,omitempty"` // of request
	Params json.RawMessage `json:"params,omitempty"` // of request
	Value  json.RawMessage `json:"value,omitempty"`  // of answer
	Error  *Failure        `json:"error,omitempty"`  // of answer, error

	Protocol int      `json:"protocol,omitempty"` // of hello
	SDK      string   `json:"sdk,omitempty"`      // of hello
	Language string   `json:"language,omitempty"` // of hello
	Assets   []string `json:"assets,omitempty"`   // of hello

	Progress *Progress       `json:"progress,omitempty"` // of progress
	Result   json.RawMessage `json:"result,omitempty"`   // of result
	Partial  bool            `json:"partial,omitempty"`  // of result
	Next     *string         `json:"next,omitempty"`     // of yield
	CPU      float64         `json:"cpu,omitempty"`      // of result, yield, error: seconds of the task

	Manifest json.RawMessage `json:"manifest,omitempty"` // of manifest
	Problems []Problem       `json:"problems,omitempty"` // of manifest

	Places map[string]string `json:"places,omitempty"` // of manifest: file and line by asset
}

// Run is a task for a host.
type Run struct {
	Tenant     string          `json:"tenant,omitempty"`
	RunID      string          `json:"run,omitempty"`
	Asset      string          `json:"asset"`
	Attempt    int             `json:"attempt,omitempty"`
	Partition  string          `json:"partition,omitempty"`
	Pipeline   string          `json:"pipeline,omitempty"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	Inputs     []Input         `json:"inputs,omitempty"`
	Cursor     string          `json:"cursor,omitempty"`
	Deadline   string          `json:"deadline,omitempty"` // RFC 3339
	Config     string          `json:"config,omitempty"`
	Trigger    string          `json:"trigger,omitempty"`
	Slot       string          `json:"slot,omitempty"`
	Start      string          `json:"interval_start,omitempty"`
	End        string          `json:"interval_end,omitempty"`
	Trace      string          `json:"trace,omitempty"` // W3C traceparent

	Partitions []map[string]string `json:"partitions,omitempty"` // values by dimension, in order
	Output     *Output             `json:"output,omitempty"`     // where to write it
	Check      string              `json:"check,omitempty"`      // a check function to run over the output, instead of the asset's
}

// Output is where a task writes its output.
type Output struct {
	Dir    string           `json:"dir"`
	Format quality.Format   `json:"format"`
	Schema []quality.Column `json:"schema,omitempty"`
}

// Verdict is the result of a check function.
type Verdict struct {
	Passed    bool   `json:"passed"`
	Message   string `json:"message"`
	Traceback string `json:"traceback,omitempty"`
}

// Input is the result of an upstream task.
type Input struct {
	Asset     string          `json:"asset"`
	Partition string          `json:"partition,omitempty"`
	Result    json.RawMessage `json:"result"`
	Output    *InputOutput    `json:"output,omitempty"` // whose files the host requests
}

// InputOutput is the version of an upstream's output.
type InputOutput struct {
	Format quality.Format `json:"format"`
	Rows   int64          `json:"rows"`
	Digest string         `json:"digest"`
}

// InputFiles are the files of one version of an upstream's output: the answer to an input request.
type InputFiles struct {
	Partition string           `json:"partition,omitempty"`
	Format    quality.Format   `json:"format"`
	Rows      int64            `json:"rows"`
	Schema    []quality.Column `json:"schema,omitempty"`
	Files     []string         `json:"files"`
}

// Progress is the progress of a task.
type Progress struct {
	Phase       string  `json:"phase,omitempty"`
	Stage       string  `json:"stage,omitempty"`
	Fraction    float32 `json:"fraction,omitempty"`
	Extracted   int64   `json:"records_extracted,omitempty"`
	Transformed int64   `json:"records_transformed,omitempty"`
	Loaded      int64   `json:"records_loaded,omitempty"`
	Bytes       int64   `json:"bytes,omitempty"`
}

// Failure is why a task, an import or a request failed.
type Failure struct {
	Class      string         `json:"class"`
	Message    string         `json:"message"`
	Traceback  string         `json:"traceback,omitempty"`
	Remedy     string         `json:"remedy,omitempty"`
	Details    map[string]any `json:"details,omitempty"`
	RetryAfter float64        `json:"retry_after,omitempty"` // seconds
	NoRetry    bool           `json:"no_retry,omitempty"`
}

// Error returns the message, or the class without one.
func (f *Failure) Error() string {
	if f.Message != "" {
		return f.Message
	}
	return f.Class
}

// Problem is a mistake in a project, with its place.
type Problem struct {
	File      string `json:"file,omitempty"`
	Line      int    `json:"line,omitempty"`
	Message   string `json:"message"`
	Remedy    string `json:"remedy,omitempty"`
	Traceback string `json:"traceback,omitempty"`
}

// String returns the problem with its place, as editors recognise it.
func (p Problem) String() string {
	if p.File == "" {
		return p.Message
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
}

// readFrame reads one frame: four bytes with its length, the most significant first, and JSON.
func readFrame(from io.Reader) (*frame, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(from, prefix[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(prefix[:])
	if length > MaxFrame {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", errFrame, length, MaxFrame)
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(from, data); err != nil {
		return nil, err
	}
	f := &frame{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return f, nil
}

// encodeFrame returns a frame with its prefix.
func encodeFrame(f *frame) ([]byte, error) {
	body, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	if len(body) > MaxFrame {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", errFrame, len(body), MaxFrame)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...), nil //nolint:gosec // at most MaxFrame
}
