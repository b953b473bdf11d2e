package view

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/web/graph"
)

// RunsModel is the list of runs.
type RunsModel struct {
	Scope                          Scope
	State, Pipeline, Config, Since string
	Runs                           []*servov1.Run
	First                          bool
	FirstAt, NextAt                string
}

// RunModel is one run.
type RunModel struct {
	Run                 *servov1.Run
	Tab, Filter         string
	Why                 *servov1.Explanation
	Failed              []*servov1.Task
	Tasks               []*servov1.Task
	Events              []*servov1.Event
	Graph               Graph
	Gantt               Gantt
	First               bool
	FirstAt, NextAt     string
	MayCancel, MayRetry bool
	Retry               *servov1.Run // the newest run that has retried this one
}

// TaskModel is one task.
type TaskModel struct {
	Run          *servov1.Run
	Task         *servov1.Task
	Why          *servov1.Explanation
	Upstream     []*servov1.UpstreamTask
	MoreUpstream bool
	Logs         string
	LogsCut      bool
	MayCancel    bool
	MayRetry     bool
}

// Dear reports whether a look at the run costs more than it is worth every other second: the
// timeline of many tasks reads page after page of events, and what has ended changes no more.
func (m RunModel) Dear() bool { return len(m.Gantt.Rows) > 50 || !unfinished(m.Run) }

// unfinished reports whether a run goes on.
func unfinished(r *servov1.Run) bool { return r.GetFinishedAt() == nil }

// doneTasks is how many tasks of a run have ended.
func doneTasks(c *servov1.TaskCounts) int64 { return int64(c.GetTotal() - c.GetRemaining()) }

func meterClass(c *servov1.TaskCounts) string {
	switch {
	case c.GetFailed() > 0:
		return "bad"
	case c.GetRemaining() == 0:
		return "ok"
	}
	return ""
}

// countsOf is how many tasks ended in which way.
func countsOf(c *servov1.TaskCounts) string {
	text := fmt.Sprintf("%s of %s succeeded", Count(c.GetSucceeded(), false), Count(c.GetTotal(), false))
	for _, part := range []struct {
		n    int32
		what string
	}{{c.GetFailed(), "failed"}, {c.GetSkipped(), "skipped"}, {c.GetCancelled(), "cancelled"}} {
		if part.n > 0 {
			text += ", " + Count(part.n, false) + " " + part.what
		}
	}
	return text
}

// tabAt is the address of a part of a run's page.
func (m RunModel) tabAt(tab string) string {
	path := RunPath(m.Run.GetTenant(), m.Run.GetId())
	if tab == "graph" {
		return path
	}
	return path + "?tab=" + tab
}

// JSON is a value as people read it.
func JSON(v any) string {
	var raw []byte
	switch m := v.(type) {
	case *structpb.Struct:
		if m == nil {
			return "{}"
		}
		raw, _ = protojson.Marshal(m)
	case *structpb.Value:
		if m == nil {
			return ""
		}
		raw, _ = protojson.Marshal(m)
	default:
		raw, _ = json.Marshal(v)
	}
	var plain any
	if json.Unmarshal(raw, &plain) != nil {
		return string(raw)
	}
	out, _ := json.MarshalIndent(plain, "", "  ") // it was JSON a moment ago
	return string(out)
}

// eventLine is what an event says, in a line.
func eventLine(e *servov1.Event) string {
	raw, err := protojson.Marshal(e.GetData())
	if err != nil || string(raw) == "{}" {
		return ""
	}
	return Clip(strings.Join(strings.Fields(string(raw)), " "), 300)
}

// maxAlike is how many tasks of one asset are drawn one by one, unless somebody asks for it: a
// column of a hundred boxes that say the same is no picture.
const maxAlike = 12

// GraphOf lays out a run: by task, or by asset if there are too many tasks, or many that are
// alike and nobody has asked to see each of them.
func GraphOf(g *servov1.RunGraph, each bool) Graph {
	n, alike := len(g.GetNodes()), false
	for _, group := range g.GetGroups() {
		alike = alike || group.GetTotal() > maxAlike
	}
	if n == 0 || n > maxBoxes || alike && !each {
		out := graphOfGroups(g)
		out.Drawable = n > 0 && n <= maxBoxes
		return out
	}
	out := graphOfTasks(g)
	out.Drawable = alike
	return out
}

func graphOfTasks(g *servov1.RunGraph) Graph {
	place := map[int32]int{}
	for i, n := range g.GetNodes() {
		place[n.GetIndex()] = i
	}
	var edges []graph.Edge
	for _, e := range g.GetEdges() {
		from, ok := place[e.GetFrom()]
		to, known := place[e.GetTo()]
		if ok && known {
			edges = append(edges, graph.Edge{From: from, To: to})
		}
	}
	laid := graph.Lay(len(place), edges, graphSizes())
	out := drawn(laid)
	out.MoreEdges = g.GetMoreEdges()
	for i, n := range g.GetNodes() {
		look := LookOf(n.GetState().String())
		detail := look.Label
		if n.GetPartition() != "" {
			detail = Clip(n.GetPartition(), 18) + " · " + detail
		}
		if n.GetFailures() > 0 {
			detail += fmt.Sprintf(" · attempt %d", n.GetAttempt())
		}
		out.Boxes = append(out.Boxes, Box{
			Point: laid.Boxes[i], Look: look, Title: n.GetAsset(), Detail: detail, Fraction: n.GetFraction(),
			At: TaskPath(g.GetRun().GetTenant(), g.GetRun().GetId(), n.GetTask()),
		})
	}
	return out
}

func graphOfGroups(g *servov1.RunGraph) Graph {
	place := map[string]int{}
	for i, group := range g.GetGroups() {
		place[group.GetAsset()] = i
	}
	var edges []graph.Edge
	for i, group := range g.GetGroups() {
		for _, up := range group.GetUpstream() {
			if from, ok := place[up]; ok && from != i {
				edges = append(edges, graph.Edge{From: from, To: i})
			}
		}
	}
	laid := graph.Lay(len(place), edges, graphSizes())
	out := drawn(laid)
	out.Grouped, out.MoreEdges = true, g.GetMoreEdges()
	for i, group := range g.GetGroups() {
		out.Boxes = append(out.Boxes, Box{
			Point: laid.Boxes[i], Look: groupLook(group.GetStates()), Title: group.GetAsset(), Detail: groupDetail(group),
			At: RunPath(g.GetRun().GetTenant(), g.GetRun().GetId()) + "?tab=tasks&asset=" + group.GetAsset(),
		})
	}
	return out
}

// telling are the states of tasks by how much they say about a group, the first most.
func telling() []string {
	return []string{"FAILED", "RUNNING", "DISPATCHED", "RETRY_WAIT", "QUEUED", "READY", "PENDING", "CANCELLED", "SKIPPED", "SUCCEEDED"}
}

// groupLook is that of the state which says most about a group.
func groupLook(states map[string]int32) Look {
	for _, s := range telling() {
		if states[s] > 0 {
			return LookOf(s)
		}
	}
	return LookOf("PENDING")
}

// groupDetail is how a group fares, what says most first: a box may have no room for the rest.
func groupDetail(group *servov1.GraphGroup) string {
	var parts []string
	for _, s := range telling() {
		if n := group.GetStates()[s]; n > 0 {
			parts = append(parts, Count(n, false)+" "+LookOf(s).Label)
		}
	}
	return strings.Join(parts, ", ")
}
