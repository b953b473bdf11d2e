package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// The largest size of a graph.
const (
	MaxGraphNodes  = 2_000
	MaxGraphEdges  = 20_000
	maxGraphEvents = 20_000
)

// Graph is the tasks of a run at one moment. A run with more than MaxGraphNodes tasks has groups in
// place of nodes.
type Graph struct {
	Run    RunView
	Nodes  []GraphNode
	Edges  []GraphEdge
	Groups []GraphGroup
	// GroupEdges are the edges between assets, of a run without nodes.
	GroupEdges []GroupEdge
	MoreEdges  bool // than were read
}

// GraphNode is a task.
type GraphNode struct {
	Task      id.Task
	Index     int32
	Asset     string
	Partition string
	Pool      string

	State    run.TaskState
	Outcome  run.Outcome
	Attempt  int32
	Failures int32
	Error    string // the code of the last error
	Fraction float32

	Since, QueuedAt, StartedAt, FinishedAt time.Time
}

// GraphEdge is an edge: the task To waits for From.
type GraphEdge struct{ From, To id.Task }

// GroupEdge is an edge between assets: tasks of To wait for tasks of From.
type GroupEdge struct{ From, To string }

// GraphGroup counts the tasks of an asset in a state.
type GraphGroup struct {
	Asset string
	State run.TaskState
	Tasks int32
}

// RunGraph reads the graph of a run. Its cost is proportional to the number of tasks.
func (s *Store) RunGraph(ctx context.Context, key RunKey) (g Graph, err error) {
	err = s.tenantSnapshot(key.Tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		g = Graph{}
		if g.Run, err = tx.getRun(ctx, key); err != nil {
			return err
		}
		if g.Run.Total > MaxGraphNodes {
			return tx.graphGroups(ctx, key, &g)
		}
		if err := tx.graphNodes(ctx, key, &g); err != nil {
			return err
		}
		edges, err := tx.q.GraphEdges(ctx, db.GraphEdgesParams{TenantID: key.Tenant.UUID, RunID: key.Run.UUID, Most: MaxGraphEdges + 1})
		if g.MoreEdges = len(edges) > MaxGraphEdges; g.MoreEdges {
			edges = edges[:MaxGraphEdges]
		}
		g.Edges = column(edges, func(e db.GraphEdgesRow) GraphEdge {
			return GraphEdge{From: id.Of[id.Task](e.UpstreamID), To: id.Of[id.Task](e.TaskID)}
		})
		return err
	})
	return g, err
}

func (tx *Tx) graphNodes(ctx context.Context, key RunKey, g *Graph) error {
	rows, err := tx.q.GraphTasks(ctx, db.GraphTasksParams{TenantID: key.Tenant.UUID, RunID: key.Run.UUID, Most: MaxGraphNodes})
	if err != nil {
		return err
	}
	live, err := tx.q.GraphLive(ctx, db.GraphLiveParams{TenantID: key.Tenant.UUID, RunID: key.Run.UUID})
	if err != nil {
		return err
	}
	times, err := tx.q.GraphTimes(ctx, db.GraphTimesParams{TenantID: key.Tenant.UUID, RunID: key.Run.UUID, Most: maxGraphEvents})
	if err != nil {
		return err
	}
	place := make(map[uuid.UUID]*GraphNode, len(rows))
	g.Nodes = make([]GraphNode, len(rows))
	for i, r := range rows {
		g.Nodes[i] = GraphNode{
			Task: id.Of[id.Task](r.ID), Index: r.Ix, Asset: r.Asset, Partition: r.Partition, Pool: r.Pool,
			State: run.TaskState(r.State), Outcome: run.Outcome(r.Outcome), Attempt: r.Attempt, Failures: r.Failures, Error: r.Error,
			Since: r.CreatedAt, FinishedAt: timeOf(r.FinishedAt),
		}
		if !g.Nodes[i].FinishedAt.IsZero() {
			g.Nodes[i].Since = g.Nodes[i].FinishedAt
		}
		place[r.ID] = &g.Nodes[i]
	}
	for _, r := range times {
		if n := place[r.TaskID]; n != nil {
			n.QueuedAt, n.StartedAt = r.QueuedAt, r.StartedAt
		}
	}
	for _, r := range live {
		n := place[r.TaskID]
		if n == nil {
			continue // the run has more tasks than its total
		}
		n.State, n.Since, n.Attempt, n.Failures, n.Error, n.Fraction = run.TaskState(r.State), r.Since, r.Attempt, r.Failures, r.Error, r.Fraction
		if !r.StartedAt.IsZero() {
			n.StartedAt = r.StartedAt
		}
	}
	return nil
}

func (tx *Tx) graphGroups(ctx context.Context, key RunKey, g *Graph) error {
	rows, err := tx.q.GraphGroups(ctx, db.GraphGroupsParams{TenantID: key.Tenant.UUID, RunID: key.Run.UUID})
	if err != nil {
		return err
	}
	g.Groups = column(rows, func(r db.GraphGroupsRow) GraphGroup {
		return GraphGroup{Asset: r.Asset, State: run.TaskState(r.State), Tasks: r.Tasks}
	})
	edges, err := tx.q.GraphGroupEdges(ctx, db.GraphGroupEdgesParams{TenantID: key.Tenant.UUID, RunID: key.Run.UUID, Most: MaxGraphEdges})
	g.GroupEdges = column(edges, func(e db.GraphGroupEdgesRow) GroupEdge { return GroupEdge{From: e.Upstream, To: e.Asset} })
	g.MoreEdges = true // there may be: they were not counted
	return err
}
