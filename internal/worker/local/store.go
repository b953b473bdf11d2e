package local

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/data/commit"
	"go.arco.dev/servo/internal/domain/output"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/worker"
	"go.arco.dev/servo/internal/worker/host"
)

// stored is the result of an asset, or of a partition or range of it, from this run or an earlier one.
type stored struct {
	asset, partition string
	file             string
	result           json.RawMessage
	version          *worker.Committed // nil without an output
	run, task        string            // that have written the version
}

// wrapped is the stored result of a task with an output, as servers store it.
type wrapped struct {
	Output *worker.Committed `json:"servo_output"`
	Run    string            `json:"run"`
	Task   string            `json:"task"`
	Result json.RawMessage   `json:"result,omitempty"`
}

const extension = ".json"

// file returns the name of a stored result: results/gold/revenue.json, or with a partition
// results/gold/revenue/date=2026-01-31,region=eu.json.
func (r *Run) file(key, part string) string {
	name := filepath.Join(r.Dir, "results", filepath.FromSlash(key))
	if part == "" {
		return name + extension
	}
	values := map[string]string{}
	if json.Unmarshal([]byte(part), &values) != nil || len(values) == 0 {
		return filepath.Join(name, "partition="+url.QueryEscape(part)+extension)
	}
	parts := make([]string, 0, len(values))
	for dimension, value := range values {
		parts = append(parts, dimension+"="+url.QueryEscape(value))
	}
	slices.Sort(parts)
	return filepath.Join(name, strings.Join(parts, ",")+extension)
}

// partitionOf returns the key of a partition from the name that file gave it; "" if it is none.
func partitionOf(name string) string {
	values := map[string]string{}
	for _, part := range strings.Split(strings.TrimSuffix(name, extension), ",") {
		dimension, escaped, ok := strings.Cut(part, "=")
		value, err := url.QueryUnescape(escaped)
		if !ok || err != nil {
			return ""
		}
		values[dimension] = value
	}
	key, err := json.Marshal(values)
	if err != nil {
		return ""
	}
	return string(key)
}

// resolve finds the stored results of the task's upstreams: of this run, or of earlier ones.
func (a *attempt) resolve() error {
	if a.mapped {
		return nil // as on a server, tasks of a fan-out have no upstreams
	}
	upstreams := slices.Clone(a.asset.Upstream)
	_, self := a.asset.PartitionMapping[a.key]
	if self {
		upstreams = append(upstreams, a.key)
	}
	for _, upstream := range upstreams {
		found, err := a.storedOf(upstream)
		if err != nil {
			return err
		}
		if len(found) == 0 && upstream != a.key { // the first partition has none before it
			return &host.Failure{
				Class: run.CodeMissingInput, Message: "upstream " + upstream + " has no result in " + a.run.Dir + ", and is not part of this run",
				Remedy: "run it too: servo run --local '+" + a.key + "'",
			}
		}
		a.inputs = append(a.inputs, found...)
	}
	return nil
}

// storedOf returns the stored results of an upstream that the task needs, in order.
func (a *attempt) storedOf(upstream string) ([]stored, error) {
	scheme := a.run.Planner.Scheme(upstream)
	if scheme == nil {
		one, err := a.run.read(upstream, "", a.run.file(upstream, ""))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return []stored{one}, err
	}
	mapping, err := a.run.Planner.Mapping(a.key, upstream)
	if err != nil {
		return nil, err
	}
	own := partition.Range{}
	series := ""
	if a.ranged != nil {
		own, series = a.ranged.Range, a.ranged.Series
	}
	var found []stored
	err = a.run.each(upstream, func(part, file string) error {
		upSeries, r, err := scheme.ParseRange(part)
		if err != nil || !mapping.Matches(series, own, upSeries, r) || upstream == a.key && part == a.partition {
			return nil //nolint:nilerr // a partition that the asset does not have any more
		}
		one, err := a.run.read(upstream, part, file)
		found = append(found, one)
		return err
	})
	return found, err
}

// each visits the stored partitions of an asset, in order.
func (r *Run) each(key string, visit func(part, file string) error) error {
	dir := strings.TrimSuffix(r.file(key, ""), extension)
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	for _, entry := range entries {
		if part := partitionOf(entry.Name()); part != "" && strings.HasSuffix(entry.Name(), extension) {
			if err := visit(part, filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads a stored result.
func (r *Run) read(key, part, file string) (stored, error) {
	data, err := os.ReadFile(file) //nolint:gosec // in the directory of results
	if err != nil {
		return stored{}, err
	}
	if !json.Valid(data) {
		return stored{}, &host.Failure{Class: "DATA_CORRUPTION", Message: "the stored result of " + key + " is no JSON", Remedy: "delete " + file}
	}
	s := stored{asset: key, partition: part, file: file, result: json.RawMessage(strings.TrimSpace(string(data)))}
	var w wrapped
	if json.Unmarshal(data, &w) == nil && w.Output != nil {
		s.version, s.result, s.run, s.task = w.Output, w.Result, w.Run, w.Task
		if len(s.result) == 0 {
			s.result = json.RawMessage("null")
		}
	}
	return s, nil
}

// store replaces a result at once, so that a run that is killed leaves no partial one. Results of other
// ranges that overlap with it, and the versions that nothing names any more, are deleted.
func (a *attempt) store(ctx context.Context, result json.RawMessage) error {
	name := a.run.file(a.key, a.partition)
	replaced, err := a.overlapping(name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(name), ".result-")
	if err != nil {
		return err
	}
	_, err = file.Write(append(slices.Clone(result), '\n'))
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return err
	}
	for _, old := range replaced {
		if old.file != name {
			err = errors.Join(err, os.Remove(old.file))
		}
		err = errors.Join(err, a.run.discard(ctx, old))
	}
	return err
}

// overlapping returns the stored results that a new one replaces.
func (a *attempt) overlapping(name string) ([]stored, error) {
	if scheme := a.run.Planner.Scheme(a.key); scheme != nil && a.ranged != nil {
		var found []stored
		err := a.run.each(a.key, func(part, file string) error {
			series, r, err := scheme.ParseRange(part)
			if err != nil || series != a.ranged.Series || r.Intersect(a.ranged.Range).Len() == 0 {
				return nil //nolint:nilerr // a partition that the asset does not have any more
			}
			one, err := a.run.read(a.key, part, file)
			found = append(found, one)
			return err
		})
		return found, err
	}
	one, err := a.run.read(a.key, a.partition, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return []stored{one}, err
}

// discard deletes the files of a version that was replaced.
func (r *Run) discard(ctx context.Context, old stored) error {
	if old.version == nil {
		return nil
	}
	_, err := commit.Discard(ctx, r.blobs, old.attempt())
	return err
}

// attempt identifies the attempt that has written the version.
func (s stored) attempt() output.Attempt {
	return output.Attempt{
		Tenant: tenant, Workspace: workspace, Asset: s.asset, Partition: s.partition, Run: s.run, Task: s.task,
		Attempt: s.version.Attempt, Token: s.version.Token,
	}
}
