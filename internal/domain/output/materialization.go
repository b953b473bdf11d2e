package output

import (
	"bytes"
	"encoding/json"
	"time"

	"go.arco.dev/servo/internal/domain/quality"
)

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

// resultField is the field of a task's result that names its version.
const resultField = "servo_output"

// CommittedIn returns the version that the result of a task names; nil if it names none.
func CommittedIn(result json.RawMessage) *Committed {
	if !bytes.Contains(result, []byte(`"`+resultField+`"`)) {
		return nil
	}
	var named map[string]json.RawMessage
	if json.Unmarshal(result, &named) != nil || named[resultField] == nil {
		return nil
	}
	c := &Committed{}
	if json.Unmarshal(named[resultField], c) != nil {
		return nil
	}
	return c
}

// Materialization is one version with what is recorded about it.
type Materialization struct {
	State  State          `json:"state"`
	Gate   quality.Gate   `json:"gate"`
	Format quality.Format `json:"format"`
	Path   string         `json:"path,omitempty"` // in the blob store; "" for tables
	Rows   int64          `json:"rows"`
	Bytes  int64          `json:"bytes"`
	Files  int            `json:"files"`
	Digest string         `json:"digest"`

	SchemaHash  string    `json:"schema_hash,omitempty"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	CommittedAt time.Time `json:"committed_at,omitzero"`

	Detail
}

// Detail is the part of a materialization that lists leave out.
type Detail struct {
	// Partitions are the keys of the pointers of a range; empty if the version has one partition.
	Partitions []string         `json:"partitions,omitempty"`
	Schema     []quality.Column `json:"schema,omitempty"`
	Checks     []quality.Result `json:"checks,omitempty"`
	Inputs     []Input          `json:"inputs,omitempty"`
	// Truncated lists the parts that were too large to be recorded; _metadata.json has all.
	Truncated []string `json:"truncated,omitempty"`
}

// The limits of what is recorded about a version.
const (
	maxSchemaBytes  = 32 << 10
	maxChecksBytes  = 48 << 10
	maxInputs       = 1_000
	keptSamples     = 5   // of a failed check
	shortTexts      = 100 // bytes of texts of check results if there are too many of them
	maxDetailFields = 3
)

// Materialize returns what is recorded about a committed version. Its state is still open.
func Materialize(m Marker, metadata Metadata, gate quality.Gate) Materialization {
	out := Materialization{
		Gate: gate, Format: m.Format, Path: m.Prefix(), Rows: m.Rows, Bytes: m.Bytes, Files: len(m.Files), Digest: m.Digest,
		SchemaHash: metadata.SchemaHash, StartedAt: metadata.StartedAt.UTC(), CommittedAt: metadata.CommittedAt.UTC(),
	}
	out.Truncated = make([]string, 0, maxDetailFields)
	if out.Schema = metadata.Schema; size(out.Schema) > maxSchemaBytes {
		out.Schema, out.Truncated = nil, append(out.Truncated, "schema")
	}
	var cut bool
	if out.Checks, cut = boundChecks(metadata.Checks); cut {
		out.Truncated = append(out.Truncated, "checks")
	}
	if out.Inputs = metadata.Inputs; len(out.Inputs) > maxInputs {
		out.Inputs, out.Truncated = out.Inputs[:maxInputs], append(out.Truncated, "inputs")
	}
	if len(out.Truncated) == 0 {
		out.Truncated = nil
	}
	return out
}

// boundChecks shortens samples, and then texts, until results are small enough to be recorded.
func boundChecks(results []quality.Result) (bounded []quality.Result, cut bool) {
	bounded = make([]quality.Result, len(results))
	for i, r := range results {
		if len(r.Sample) > keptSamples {
			r.Sample, cut = r.Sample[:keptSamples], true
		}
		bounded[i] = r
	}
	if size(bounded) <= maxChecksBytes {
		return bounded, cut
	}
	for i := range bounded {
		r := &bounded[i]
		r.Sample = nil
		for _, text := range []*string{&r.Actual, &r.Expected, &r.Error} {
			*text = (*text)[:min(len(*text), shortTexts)]
		}
	}
	return bounded, true
}

func size(value any) int {
	data, err := json.Marshal(value)
	if err != nil {
		return 0
	}
	return len(data)
}

// GateOf decides about a committed version with the declarations of its asset: a worker's own decision
// does not count.
func (m Metadata) GateOf(checks []quality.Check, quarantine bool) quality.Gate {
	return quality.Decide(checks, m.Checks, quarantine)
}
