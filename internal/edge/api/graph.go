package api

import (
	"context"
	"slices"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

// GetRunGraph implements servov1.RunServiceServer.
func (s runService) GetRunGraph(ctx context.Context, req *servov1.GetRunGraphRequest) (*servov1.RunGraph, error) {
	key, err := s.runKey(ctx, req)
	if err != nil {
		return nil, err
	}
	found, err := s.store.RunGraph(ctx, key)
	if err != nil {
		return nil, err
	}
	answer := &servov1.RunGraph{MoreEdges: found.MoreEdges}
	if answer.Run, err = runToProto(req.GetTenant(), found.Run); err != nil {
		return nil, err
	}
	groups := newGroups()
	for _, g := range found.Groups {
		groups.add(g.Asset, g.State.String(), g.Tasks)
	}
	for _, e := range found.GroupEdges {
		groups.connect(e.From, e.To)
	}
	nodes := make(map[id.Task]*servov1.GraphNode, len(found.Nodes))
	for _, n := range found.Nodes {
		out := nodeToProto(n)
		answer.Nodes = append(answer.Nodes, out)
		nodes[n.Task] = out
		groups.add(n.Asset, n.State.String(), 1)
	}
	for _, e := range found.Edges {
		from, to := nodes[e.From], nodes[e.To]
		if from == nil || to == nil {
			continue // its task was not read
		}
		answer.Edges = append(answer.Edges, &servov1.GraphEdge{From: from.GetIndex(), To: to.GetIndex()})
		groups.connect(from.GetAsset(), to.GetAsset())
	}
	answer.Groups = groups.all
	return answer, nil
}

func nodeToProto(n store.GraphNode) *servov1.GraphNode {
	return &servov1.GraphNode{
		Task: n.Task.String(), Index: n.Index, Asset: n.Asset, Partition: n.Partition, Pool: n.Pool, State: servov1.Task_State(n.State),
		Outcome: string(n.Outcome), Attempt: n.Attempt, Failures: n.Failures, Since: timestamp(n.Since), QueuedAt: timestamp(n.QueuedAt),
		StartedAt: timestamp(n.StartedAt), FinishedAt: timestamp(n.FinishedAt), Fraction: n.Fraction, Error: n.Error,
	}
}

// groups counts tasks by asset, in the order of the assets.
type groups struct {
	all     []*servov1.GraphGroup
	byAsset map[string]*servov1.GraphGroup
}

func newGroups() *groups { return &groups{byAsset: map[string]*servov1.GraphGroup{}} }

func (g *groups) add(asset, state string, tasks int32) {
	found := g.byAsset[asset]
	if found == nil {
		found = &servov1.GraphGroup{Asset: asset, States: map[string]int32{}}
		g.byAsset[asset], g.all = found, append(g.all, found)
	}
	found.Total += tasks
	found.States[state] += tasks
}

// connect adds a dependency between two assets.
func (g *groups) connect(from, to string) {
	if of := g.byAsset[to]; of != nil && from != to && !slices.Contains(of.GetUpstream(), from) {
		of.Upstream = append(of.Upstream, from)
	}
}
