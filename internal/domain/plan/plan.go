// Package plan computes the list of tasks of a run from a manifest and a request: which assets, in
// which order, with a fingerprint that identifies equal plans. It is pure: the same request returns
// the same bytes, regardless of the order of its parts. It does not depend on earlier runs.
package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/partition"
)

// Request selects the assets to plan: those of a pipeline, of a selection, or all.
type Request struct {
	Pipeline   string          // a pipeline of the manifest
	Select     []string        // selection expressions, their union
	Parameters json.RawMessage // for the pipeline; validated against its declarations
	// Partitions returns the requested partitions of a scheme; nil if none are named.
	Partitions func(*partition.Scheme) (partition.Set, error)
	// Values are those of the dynamic dimensions (Planner.Sources).
	Values partition.Values
	// Undivided plans one task for each asset, also with partitions: to check a request.
	Undivided bool
	// Limit is the maximum number of tasks of a plan with partitions; 0 is MaxTasks.
	Limit int
	// Only are the tasks to plan, regardless of the pipeline's selection: the part of a run that is
	// retried.
	Only []Target
}

// Plan is the list of tasks of one run. Its fingerprint covers its JSON without the fingerprint.
type Plan struct {
	Pipeline    string          `json:"pipeline,omitempty"`
	Parameters  json.RawMessage `json:"parameters"` // canonical, defaults filled in
	Tasks       []Task          `json:"tasks"`      // by stage, then by key
	Edges       [][2]int        `json:"edges"`      // from task, to task: ascending
	Stages      []int           `json:"stages"`     // the number of tasks in each
	Fingerprint string          `json:"fingerprint,omitempty"`
}

// Task is one asset and partition.
type Task struct {
	Index     int            `json:"index"` // its index in Tasks
	Key       string         `json:"key"`
	Partition string         `json:"partition,omitempty"` // empty for an asset without partitions
	Pool      string         `json:"pool"`
	Needs     string         `json:"-"` // the capability that its worker needs
	Timeout   asset.Duration `json:"timeout"`
	Stage     int            `json:"stage"` // the length of the longest path of assets to it
	Range     *Range         `json:"-"`     // the partitions of Partition; nil without
	Barrier   bool           `json:"-"`     // it executes nothing: it is complete when its upstreams are
}

// New plans one request. For many requests with one manifest, use a Planner.
func New(m *asset.Manifest, request Request) (Plan, error) {
	planner, err := NewPlanner(m)
	if err != nil {
		return Plan{}, err
	}
	return planner.Plan(request)
}

// Planner plans requests for one manifest. Planning does not change it, so goroutines may share one.
type Planner struct {
	manifest *asset.Manifest
	graph    *asset.Graph
	schemes  *asset.Schemes
}

// NewPlanner prepares a manifest, which must be normalised, as those from Parse are.
func NewPlanner(m *asset.Manifest) (*Planner, error) {
	graph, err := asset.NewGraph(m.Assets)
	if err != nil {
		return nil, err
	}
	schemes, err := asset.NewSchemes(graph)
	if err != nil {
		return nil, err
	}
	return &Planner{manifest: m, graph: graph, schemes: schemes}, nil
}

// Graph returns the graph of the manifest's assets.
func (p *Planner) Graph() *asset.Graph { return p.graph }

// Check refuses a request whose pipeline or parameters do not fit the manifest, without planning it.
func (p *Planner) Check(request Request) error {
	_, _, err := p.resolve(request)
	return err
}

// Assets returns the keys of the assets of a pipeline; none if the manifest does not have it.
func (p *Planner) Assets(pipeline string) ([]string, error) {
	found, ok := p.manifest.Pipeline(pipeline)
	if !ok {
		return nil, nil
	}
	chosen, err := p.choose(nil, found.Select)
	var keys []string
	for i, yes := range chosen {
		if yes {
			keys = append(keys, p.graph.Asset(i).Key)
		}
	}
	return keys, err
}

// Plan plans one request.
func (p *Planner) Plan(request Request) (Plan, error) {
	expressions, parameters, err := p.resolve(request)
	if err != nil {
		return Plan{}, err
	}
	selected, err := p.choose(request.Only, expressions)
	if err != nil {
		return Plan{}, err
	}
	var plan Plan
	if p.divides(selected) && !request.Undivided {
		plan, err = p.layPartitions(selected, request)
	} else if err = p.refusePartitions(request); err == nil {
		plan, err = p.lay(selected)
	}
	if err != nil {
		return Plan{}, err
	}
	plan.Pipeline, plan.Parameters = request.Pipeline, parameters
	if plan.Fingerprint, err = plan.fingerprint(); err != nil {
		return Plan{}, fmt.Errorf("fingerprint: %w", err)
	}
	return plan, nil
}

// resolve returns the selection expressions and the parameters of a request.
func (p *Planner) resolve(request Request) (expressions []string, parameters json.RawMessage, err error) {
	if request.Pipeline == "" {
		// Pipelines declare parameters: without a pipeline, every parameter is unknown.
		if parameters, err = asset.ValidateParameters(asset.Pipeline{}, request.Parameters); err != nil {
			return nil, nil, err
		}
		if len(request.Select) == 0 {
			return []string{asset.SelectAll}, parameters, nil
		}
		return request.Select, parameters, nil
	}
	if len(request.Select) > 0 {
		return nil, nil, fault.Invalid("select", "a pipeline has its own selection", "set a pipeline or a selection, not both")
	}
	pipeline, ok := p.manifest.Pipeline(request.Pipeline)
	if !ok {
		names := p.manifest.PipelineNames()
		remedy := "this manifest has no pipelines: use a selection"
		if len(names) > 0 {
			remedy = "name a pipeline of this manifest"
		}
		return nil, nil, fault.Invalid("pipeline", fmt.Sprintf("unknown pipeline %.100q", request.Pipeline)+suggest.DidYouMean(request.Pipeline, names), remedy)
	}
	if parameters, err = asset.ValidateParameters(pipeline, request.Parameters); err != nil {
		return nil, nil, err
	}
	return pipeline.Select, parameters, nil
}

// choose marks the assets to plan: those with the keys, or without keys those of the expressions.
func (p *Planner) choose(only []Target, expressions []string) ([]bool, error) {
	if len(only) == 0 {
		selection, err := asset.ParseSelection(expressions...)
		if err != nil {
			return nil, err
		}
		return selection.Resolve(p.graph)
	}
	chosen := make([]bool, p.graph.Len())
	for i, target := range only {
		key := target.Asset
		node, known := p.graph.Index(key)
		if !known {
			return nil, fault.Invalid(fmt.Sprintf("only[%d]", i), fmt.Sprintf("unknown asset %.100q", key)+suggest.DidYouMean(key, p.graph.Keys()), "use an asset of this manifest")
		}
		chosen[node] = true
	}
	return chosen, nil
}

// noTime is for selections without time.
var noTime = time.Unix(0, 0)

// Divided reports whether any asset of the manifest has partitions.
func (p *Planner) Divided() bool { return p.schemes.Any() }

// divides reports whether a selected asset has partitions.
func (p *Planner) divides(selected []bool) bool {
	if !p.schemes.Any() {
		return false
	}
	for i, yes := range selected {
		if yes && p.schemes.Of(i) != nil {
			return true
		}
	}
	return false
}

// refusePartitions refuses partitions of assets that have none.
func (p *Planner) refusePartitions(request Request) error {
	if request.Partitions != nil && !request.Undivided {
		return fault.Invalid("partitions", "no selected asset has partitions", "leave them out, or declare partitions in the manifest")
	}
	for i, target := range request.Only {
		if target.Partition != "" {
			return fault.New(fault.Conflict, fmt.Sprintf("asset %s has no partition %.200q any more", target.Asset, target.Partition),
				fault.Field(fmt.Sprintf("only[%d]", i)), fault.Remedy("trigger a new run"))
		}
	}
	return nil
}

// Scheme returns the partitions of an asset; nil if it has none.
func (p *Planner) Scheme(key string) *partition.Scheme {
	node, known := p.graph.Index(key)
	if !known {
		return nil
	}
	return p.schemes.Of(node)
}

// Mapping returns how the partitions of an asset relate to those of an upstream.
func (p *Planner) Mapping(down, up string) (*partition.Mapping, error) {
	from, _ := p.graph.Index(down)
	to, _ := p.graph.Index(up)
	return p.schemes.Mapping(from, to)
}

// SchemesOf returns the schemes of the partitioned assets that a pipeline or selection has, each
// once; none if it cannot be resolved.
func (p *Planner) SchemesOf(request Request) []*partition.Scheme {
	if !p.schemes.Any() {
		return nil
	}
	expressions := request.Select
	if pipeline, ok := p.manifest.Pipeline(request.Pipeline); ok {
		expressions = pipeline.Select
	} else if len(expressions) == 0 {
		expressions = []string{asset.SelectAll}
	}
	selected, err := p.choose(request.Only, expressions)
	if err != nil {
		return nil
	}
	var schemes []*partition.Scheme
	for i, yes := range selected {
		if s := p.schemes.Of(i); yes && s != nil && !slices.Contains(schemes, s) {
			schemes = append(schemes, s)
		}
	}
	return schemes
}

// Sources are the lists of dynamic values that a request needs.
func (p *Planner) Sources(request Request) []string {
	var names []string
	for _, scheme := range p.SchemesOf(request) {
		for _, name := range scheme.Sources() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// lay puts the selected assets in order and connects them.
func (p *Planner) lay(selected []bool) (Plan, error) {
	stages, err := p.graph.Stages(selected)
	if err != nil {
		return Plan{}, err
	}
	var nodes []int
	for i, yes := range selected {
		if yes {
			nodes = append(nodes, i)
		}
	}
	// Nodes are numbered by key, so a stable sort by stage is one by stage and key.
	slices.SortStableFunc(nodes, func(a, b int) int { return stages[a] - stages[b] })

	plan := Plan{Tasks: make([]Task, len(nodes)), Edges: [][2]int{}, Stages: []int{}}
	place := make([]int, p.graph.Len())
	for index, node := range nodes {
		a := p.graph.Asset(node)
		place[node] = index
		plan.Tasks[index] = Task{Index: index, Key: a.Key, Pool: a.Pool, Needs: a.Capability(), Timeout: a.Timeout, Stage: stages[node]}
		if stages[node] == len(plan.Stages) {
			plan.Stages = append(plan.Stages, 0)
		}
		plan.Stages[stages[node]]++
	}
	for from, node := range nodes {
		first := len(plan.Edges)
		for _, to := range p.graph.Downstream(node) {
			if selected[to] {
				plan.Edges = append(plan.Edges, [2]int{from, place[to]})
			}
		}
		slices.SortFunc(plan.Edges[first:], func(a, b [2]int) int { return a[1] - b[1] })
	}
	return plan, nil
}

// Keys returns the keys of the tasks, in order.
func (p Plan) Keys() []string {
	keys := make([]string, len(p.Tasks))
	for i, t := range p.Tasks {
		keys[i] = t.Key
	}
	return keys
}
