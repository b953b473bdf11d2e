package output

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/quality"
)

// The objects that describe a version. They lie beside its files, and the marker is written last.
const (
	MetadataName = "_metadata.json"
	MarkerName   = "_commit.json"
)

// The limits of a version.
const (
	MaxFiles       = 10_000
	MaxFileName    = 200
	MaxMarkerBytes = 4 << 20
	MaxMetadata    = 4 << 20
	markerVersion  = 1
)

// Attempt identifies the attempt that writes a version.
type Attempt struct {
	Tenant    string `json:"tenant"`
	Workspace string `json:"workspace"`
	Asset     string `json:"asset"`
	Partition string `json:"partition,omitempty"`
	Run       string `json:"run"`
	Task      string `json:"task"`
	Attempt   int32  `json:"attempt"`
	Token     int64  `json:"token"`
}

// Prefix is where the files of the attempt lie. No two attempts have the same: a token is never
// used twice.
func (a Attempt) Prefix() string {
	return path.Join(a.Tenant, a.Workspace, "assets", a.Asset, "materializations", a.Task+"-"+strconv.FormatInt(a.Token, 10)) + "/"
}

// File is one file of a version.
type File struct {
	Name   string `json:"name"` // below the prefix
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Marker is _commit.json. A version whose marker is missing, or belongs to another attempt, does not
// exist.
type Marker struct {
	Version int `json:"version"`
	Attempt
	Format   quality.Format `json:"format"`
	Files    []File         `json:"files"`
	Rows     int64          `json:"rows"`
	Bytes    int64          `json:"bytes"`
	Metadata string         `json:"metadata_sha256"`
	Digest   string         `json:"digest"` // of the content: equal for equal files
}

// Metadata is _metadata.json: what is known about a version besides its files.
type Metadata struct {
	Schema      []quality.Column `json:"schema,omitempty"`
	SchemaHash  string           `json:"schema_hash,omitempty"`
	Sensitive   []string         `json:"sensitive,omitempty"` // columns that readers keep out of samples too
	Checks      []quality.Result `json:"checks,omitempty"`
	Gate        quality.Gate     `json:"gate"`
	Inputs      []Input          `json:"inputs,omitempty"`
	StartedAt   time.Time        `json:"started_at,omitzero"`
	CommittedAt time.Time        `json:"committed_at,omitzero"`
}

// Input is a version that the attempt read.
type Input struct {
	Asset string `json:"asset"`
	Run   string `json:"run"`
	Task  string `json:"task"`
	// Digest is that of the version; empty if the upstream has no output.
	Digest string `json:"digest,omitempty"`
}

// NewMarker returns the marker of files that were written. Metadata is the digest of _metadata.json.
func NewMarker(a Attempt, format quality.Format, files []File, rows int64, metadata string) Marker {
	files = slices.Clone(files)
	slices.SortFunc(files, func(x, y File) int { return strings.Compare(x.Name, y.Name) })
	m := Marker{Version: markerVersion, Attempt: a, Format: format, Files: files, Rows: rows, Metadata: metadata, Digest: ContentDigest(files)}
	for _, f := range files {
		m.Bytes += f.Bytes
	}
	return m
}

// ContentDigest is a digest over names and contents of files.
func ContentDigest(sorted []File) string {
	sum := sha256.New()
	for _, f := range sorted {
		fmt.Fprintf(sum, "%s\x00%s\n", f.Name, f.SHA256)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// SchemaHash is a digest of column names and types, "" without columns.
func SchemaHash(columns []quality.Column) string {
	if len(columns) == 0 {
		return ""
	}
	data, err := canon.Marshal(columns)
	if err != nil {
		return ""
	}
	return canon.Sum(data)
}

// ParseMarker reads _commit.json and checks it against the attempt that reports it.
func ParseMarker(data []byte, of Attempt) (Marker, error) {
	var m Marker
	refuse := func(message string) (Marker, error) {
		return Marker{}, fault.New(fault.InvalidArgument, MarkerName+": "+message, fault.Field("output"), fault.Remedy("let the worker commit the output again in a new attempt"))
	}
	if len(data) > MaxMarkerBytes {
		return refuse(fmt.Sprintf("has %d bytes, the limit is %d", len(data), MaxMarkerBytes))
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return refuse("is not a marker: " + err.Error())
	}
	switch {
	case m.Version != markerVersion:
		return refuse(fmt.Sprintf("has version %d, this build reads version %d", m.Version, markerVersion))
	case m.Attempt != of:
		return refuse(fmt.Sprintf("belongs to attempt %s with token %d, not to %s with token %d", m.Task, m.Token, of.Task, of.Token))
	case !slices.Contains(quality.Formats, m.Format):
		return refuse(fmt.Sprintf("has unknown format %.40q", m.Format))
	case len(m.Files) == 0 || len(m.Files) > MaxFiles:
		return refuse(fmt.Sprintf("lists %d files, must list 1 to %d", len(m.Files), MaxFiles))
	case m.Rows < 0:
		return refuse(fmt.Sprintf("has %d rows", m.Rows))
	}
	var bytes int64
	for i, f := range m.Files {
		if err := CheckName(f.Name); err != nil {
			return Marker{}, err
		}
		switch {
		case i > 0 && m.Files[i-1].Name >= f.Name:
			return refuse("its files are not sorted, or one is listed twice")
		case f.Bytes < 0 || !digestPattern.MatchString(f.SHA256):
			return refuse(fmt.Sprintf("file %q has no size or digest", f.Name))
		}
		bytes += f.Bytes
	}
	if bytes != m.Bytes || m.Digest != ContentDigest(m.Files) || !digestPattern.MatchString(m.Metadata) {
		return refuse("its totals do not match its files")
	}
	return m, nil
}

var (
	digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
	namePattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.=+-]*(/[A-Za-z0-9][A-Za-z0-9_.=+-]*)*$`)
)

// CheckName refuses names of files that are not plain paths below the prefix, or that are reserved.
func CheckName(name string) error {
	refuse := func(message, remedy string) error {
		return fault.New(fault.InvalidArgument, fmt.Sprintf("output file %.100q %s", name, message), fault.Field("output"), fault.Remedy(remedy))
	}
	switch {
	case len(name) > MaxFileName:
		return refuse(fmt.Sprintf("has a name of %d bytes, the limit is %d", len(name), MaxFileName), "shorten it")
	case strings.HasPrefix(name, "_"):
		return refuse("has a reserved name", "choose a name without leading underscore")
	case !namePattern.MatchString(name), strings.Contains(name, ".."):
		return refuse("has an invalid name", "use letters, digits, '_', '-', '.', '=', '+', and '/' between parts")
	case strings.HasSuffix(name, ".attrs"):
		return refuse("has a reserved suffix", "choose another name than *.attrs")
	}
	return nil
}
