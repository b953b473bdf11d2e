package asset

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/partition"
)

// PerTask is how many consecutive partitions one task covers: 0 and 1 are one, AllPerTask is as many
// as possible.
type PerTask int

const (
	// AllPerTask is written as "all".
	AllPerTask PerTask = -1
	// MaxPerTask bounds the partitions of one task, also with "all": the task receives their list.
	MaxPerTask = 1_000
	allWord    = "all"
)

// Most returns the maximum number of partitions of one task.
func (p PerTask) Most() int64 {
	if p == AllPerTask {
		return MaxPerTask
	}
	return int64(max(p, 1))
}

// MarshalJSON writes a number or "all".
func (p PerTask) MarshalJSON() ([]byte, error) {
	if p == AllPerTask {
		return json.Marshal(allWord)
	}
	return json.Marshal(int(p))
}

// UnmarshalJSON reads a number or "all".
func (p *PerTask) UnmarshalJSON(data []byte) error {
	var word string
	if json.Unmarshal(data, &word) == nil {
		if word != allWord {
			return errors.New("partitions_per_task is a number or all")
		}
		*p = AllPerTask
		return nil
	}
	return json.Unmarshal(data, (*int)(p))
}

// decodePartitions decodes the partitions of an asset. Package partition has the rules.
func decodePartitions(o *object, a *Asset) {
	dimensions, path, set := o.list("partitions", partition.MaxDimensions)
	if set && len(dimensions) == 0 {
		o.found.add(path, "is empty", "remove the field, or declare a dimension")
	}
	for i, value := range dimensions {
		d := asObject(o.found, at(path, i), value)
		d.required("dimension", "name the dimension, such as date")
		d.required("kind", "choose one of hourly, daily, weekly, monthly, static")
		a.Partitions = append(a.Partitions, partition.Dimension{
			Name: d.text("dimension"), Kind: partition.Kind(d.text("kind")), Start: d.text("start"), Timezone: d.text("timezone"),
			EndOffset: d.offset("end_offset"), Values: d.texts("values", partition.MaxValues), Source: d.text("source"),
		})
		d.close()
	}
	a.PartitionMapping = o.dictionary("partition_mapping")
	value, path, set := o.take("partitions_per_task")
	number, isNumber := value.(float64)
	switch {
	case !set:
	case value == allWord:
		a.PartitionsPerTask = AllPerTask
	case !isNumber || number != math.Trunc(number) || number < 1 || number > MaxPerTask:
		o.found.add(path, fmt.Sprintf("must be all or a number from 1 to %d", MaxPerTask), "choose a value in the range, or all")
	default:
		a.PartitionsPerTask = PerTask(number)
	}
}

// offset decodes a whole number of either sign.
func (o *object) offset(name string) int {
	f, path, ok := field[float64](o, name, "a whole number", "write a whole number without quotes")
	if ok && (f != math.Trunc(f) || math.Abs(f) > partition.MaxOffset) {
		o.found.add(path, outOfRange(f, -partition.MaxOffset, partition.MaxOffset), "choose a number in the range")
		return 0
	}
	return int(f)
}

func (a *Asset) validatePartitions(found *violations, path string) {
	partition.Validate(a.Partitions, func(field, message, remedy string) { found.add(path+".partitions"+field, message, remedy) })
	for i, d := range a.Partitions {
		if d.Kind == partition.Dynamic {
			found.add(at(path+".partitions", i)+".kind", "dynamic dimensions are not supported yet", "use a static dimension, or a fan-out")
		}
	}
	if a.PartitionsPerTask != 0 && len(a.Partitions) == 0 {
		found.add(path+".partitions_per_task", "the asset has no partitions", "declare partitions, or remove it")
	}
	if a.PartitionsPerTask.Most() > 1 && len(a.Partitions) > 0 && !slices.ContainsFunc(a.Partitions, func(d partition.Dimension) bool { return d.Kind.Time() }) {
		found.add(path+".partitions_per_task", "only partitions of time are consecutive", "remove it, or add a time dimension")
	}
	if p := a.PartitionsPerTask; p < AllPerTask || p > MaxPerTask {
		found.add(path+".partitions_per_task", outOfRange(int(p), 1, MaxPerTask), "choose a value in the range, or all")
	}
}

// Schemes returns the scheme of each partitioned asset of a graph, nil for the others, and the
// mappings of their upstreams. Equal declarations share one scheme.
type Schemes struct {
	graph   *Graph
	schemes []*partition.Scheme
	shared  map[string]*partition.Scheme
}

// NewSchemes compiles the partitions of a graph's assets. A graph without any costs nothing.
func NewSchemes(g *Graph) (*Schemes, error) {
	s := &Schemes{graph: g}
	for i, a := range g.assets {
		if len(a.Partitions) == 0 {
			continue
		}
		if s.schemes == nil {
			s.schemes, s.shared = make([]*partition.Scheme, len(g.assets)), map[string]*partition.Scheme{}
		}
		canonical, err := canon.Marshal(a.Partitions)
		if err != nil {
			return nil, err
		}
		scheme, known := s.shared[string(canonical)]
		if !known {
			if scheme, err = partition.New(a.Partitions); err != nil {
				return nil, fault.Under(assetPath(i, a.Key), err)
			}
			s.shared[string(canonical)] = scheme
		}
		s.schemes[i] = scheme
	}
	return s, nil
}

// Any reports whether any asset has partitions.
func (s *Schemes) Any() bool { return s.schemes != nil }

// Of returns the scheme of an asset; nil if it has no partitions.
func (s *Schemes) Of(i int) *partition.Scheme {
	if s.schemes == nil {
		return nil
	}
	return s.schemes[i]
}

// Mapping returns the mapping of an asset to one of its upstreams, or to itself.
func (s *Schemes) Mapping(down, up int) (*partition.Mapping, error) {
	text := s.graph.assets[down].PartitionMapping[s.graph.assets[up].Key]
	m, err := partition.NewMapping(text, s.Of(down), s.Of(up))
	if f, ok := fault.As(err); ok {
		named := *f
		named.Violation.Field = mappingPath(down, s.graph.assets[down].Key, s.graph.assets[up].Key)
		return nil, &named
	}
	return m, err
}

func mappingPath(i int, key, upstream string) string {
	return assetPath(i, key) + ".partition_mapping[" + printable(upstream) + "]"
}

// validateMappings checks how partitioned assets relate, once each of them is valid.
func (m *Manifest) validateMappings(found *violations, g *Graph) {
	schemes, err := NewSchemes(g)
	if err != nil {
		return // reported at its own field
	}
	report := func(err error) {
		if f, ok := fault.As(err); ok {
			found.add(f.Violation.Field, f.Message, f.Violation.Remedy)
		}
	}
	for i, a := range g.assets {
		for _, key := range slices.Sorted(maps.Keys(a.PartitionMapping)) {
			switch {
			case key == a.Key && a.PartitionMapping[key] != partition.MapPrevious:
				found.add(mappingPath(i, a.Key, key), quoted(a.PartitionMapping[key])+" is not a mapping of an asset to itself", "write previous")
			case key == a.Key:
				_, err := schemes.Mapping(i, i)
				report(err)
			case a.PartitionMapping[key] == partition.MapPrevious:
				found.add(mappingPath(i, a.Key, key), "previous is for the asset itself", `write "last 2 days", for example`)
			case !slices.Contains(a.Upstream, key):
				found.add(mappingPath(i, a.Key, key), printable(key)+" is not an upstream of the asset", "add it to upstream, or remove the mapping")
			}
		}
		if !schemes.Any() && len(a.PartitionMapping) == 0 {
			continue
		}
		for _, up := range g.upstream[i] {
			_, err := schemes.Mapping(i, up)
			report(err)
		}
	}
}
