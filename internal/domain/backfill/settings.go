package backfill

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/partition"
)

// Limits of backfills.
const (
	// MaxPartitions is the maximum number of partitions of one backfill.
	MaxPartitions = 10_000_000
	// MaxRanges bounds the size of a set with many gaps.
	MaxRanges = 100_000
	// MaxChunkSize and MaxConcurrentRuns bound the options.
	MaxChunkSize      = 10_000
	MaxConcurrentRuns = 100
	// MaxReason is the maximum length of a reason or note.
	MaxReason = 1000

	maxChunks = 1_000_000
)

// The defaults of the options.
const (
	DefaultChunkSize         = 100
	DefaultMaxConcurrentRuns = 3
	DefaultThreshold         = "10%"
)

// Only restricts the selected partitions by their status.
type Only string

// The restrictions.
const (
	All         Only = "" // no restriction
	OnlyMissing Only = "MISSING"
	OnlyFailed  Only = "FAILED"
	OnlyStale   Only = "STALE"
)

// Settings are what a backfill does. They do not change.
type Settings struct {
	// Asset is the asset whose partitions are covered.
	Asset string `json:"asset"`
	// Pipeline or Select are what each run executes.
	Pipeline   string          `json:"pipeline,omitempty"`
	Select     []string        `json:"select,omitempty"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// Partitions and Only are the request as it was written. The set that it resolved to is in the event.
	Partitions []string        `json:"partitions,omitempty"`
	Only       Only            `json:"only,omitempty"`
	Order      partition.Order `json:"order"`
	// ChunkSize is the maximum number of partitions of one run.
	ChunkSize         int32 `json:"chunk_size"`
	MaxConcurrentRuns int32 `json:"max_concurrent_runs"`
	StopOnFailure     bool  `json:"stop_on_failure,omitempty"`
	// FailureThreshold is a number of partitions or a percentage. With more failed partitions, no further
	// run starts.
	FailureThreshold string `json:"failure_threshold"`
	// Deployment is the code of all runs; zero follows the active deployment of the workspace.
	Deployment id.Deployment `json:"deployment,omitzero"`
	Note       string        `json:"note,omitempty"`
}

// WithDefaults sets options that are not set.
func (s Settings) WithDefaults() Settings {
	if s.Order == "" {
		s.Order = partition.OldestFirst
	}
	if s.ChunkSize == 0 {
		s.ChunkSize = DefaultChunkSize
	}
	if s.MaxConcurrentRuns == 0 {
		s.MaxConcurrentRuns = DefaultMaxConcurrentRuns
	}
	if s.FailureThreshold == "" {
		s.FailureThreshold = DefaultThreshold
	}
	return s
}

// Validate checks the options. The engine checks assets and partitions.
func (s Settings) Validate() error {
	switch {
	case s.Order != partition.OldestFirst && s.Order != partition.NewestFirst:
		return fault.Invalid("order", fmt.Sprintf("is %.50q", string(s.Order)), "use oldest or newest")
	case s.ChunkSize < 1 || s.ChunkSize > MaxChunkSize:
		return fault.Invalid("chunk_size", fmt.Sprintf("is %d", s.ChunkSize), fmt.Sprintf("use 1 to %d partitions", MaxChunkSize))
	case s.MaxConcurrentRuns < 1 || s.MaxConcurrentRuns > MaxConcurrentRuns:
		return fault.Invalid("max_concurrent_runs", fmt.Sprintf("is %d", s.MaxConcurrentRuns), fmt.Sprintf("use 1 to %d runs", MaxConcurrentRuns))
	case len(s.Note) > MaxReason || !utf8.ValidString(s.Note) || strings.ContainsRune(s.Note, 0):
		return fault.Invalid("note", "is too long or not text", fmt.Sprintf("use at most %d bytes of UTF-8 text", MaxReason))
	}
	switch s.Only {
	case All, OnlyMissing, OnlyFailed:
	case OnlyStale:
		return fault.Invalid("only", "stale partitions are not known: assets have no versioned outputs yet", "use MISSING or FAILED, or name the partitions")
	default:
		return fault.Invalid("only", fmt.Sprintf("is %.50q", string(s.Only)), "use MISSING or FAILED, or leave it out")
	}
	_, err := s.allowedFailures(1)
	return err
}

// CheckSize refuses a set that one backfill cannot cover.
func (s Settings) CheckSize(set partition.Set) error {
	n, ranges := set.Count(), 0
	for _, series := range set.Series() {
		ranges += len(set.Ranges(series))
	}
	switch {
	case n == 0:
		return fault.New(fault.InvalidArgument, "the selection has no partition", fault.Field("partitions"), fault.Remedy("select a range that has partitions"+s.remedyForNone()))
	case n > MaxPartitions:
		return tooMany(n, MaxPartitions, "partitions")
	case ranges > MaxRanges:
		return tooMany(int64(ranges), MaxRanges, "separate ranges of partitions")
	case n/int64(s.ChunkSize) > maxChunks:
		return tooMany(n/int64(s.ChunkSize), maxChunks, "runs")
	}
	return nil
}

func (s Settings) remedyForNone() string {
	switch s.Only {
	case OnlyMissing:
		return ", or leave out MISSING: every partition in the range has succeeded"
	case OnlyFailed:
		return ", or leave out FAILED: no partition in the range has failed"
	case All, OnlyStale:
	}
	return ""
}

func tooMany(n, limit int64, of string) error {
	return fault.New(fault.LimitExceeded, fmt.Sprintf("the selection has %d %s, the limit is %d", n, of, limit), fault.Field("partitions"),
		fault.Remedy("select a shorter range, and create several backfills"), fault.Value("limit", limit), fault.Value("current", n))
}

// allowedFailures is how many of n partitions may fail before the backfill does.
func (s Settings) allowedFailures(n int64) (int64, error) {
	if s.StopOnFailure {
		return 0, nil
	}
	text, percent := strings.CutSuffix(strings.TrimSpace(s.FailureThreshold), "%")
	value, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || value < 0 || percent && value > 100 {
		return 0, fault.Invalid("failure_threshold", fmt.Sprintf("is %.50q", s.FailureThreshold), "use a number of partitions such as 20, or a percentage such as 10%")
	}
	if percent {
		return n * value / 100, nil
	}
	return value, nil
}
