package view

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/web/graph"
)

// RunModel is one run.
type RunModel struct {
	Paging

	Run                 *servov1.Run
	Tab, Filter         string
	Asset               string // filter of tasks
	Invalid             string // the error of a filter
	Why                 *servov1.Explanation
	Failed              []*servov1.Task
	Tasks               []*servov1.Task
	Events              []*servov1.Event
	Graph               Graph
	Timeline            Timeline
	MayCancel, MayRetry bool
	MayTrigger          bool
	Retry               *servov1.Run // the newest retry of this run
}

// ExpensiveToRefresh reports whether a refresh every two seconds costs too much: the timeline of
// many tasks reads many pages of events, and a run that ended does not change.
func (m RunModel) ExpensiveToRefresh() bool { return len(m.Timeline.Rows) > 50 || !unfinished(m.Run) }

// countsOf is the number of tasks by outcome.
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

func (m RunModel) tabs() (tabs []Tab) {
	for _, t := range []Option{{"graph", "Graph"}, {"gantt", "Timeline"}, {"tasks", "Tasks"}, {"events", "Events"}, {"parameters", "Parameters"}} {
		tabs = append(tabs, Tab{t.Label, m.tabAt(t.Value), m.Tab == t.Value})
	}
	return tabs
}

// tabAt is the address of a tab.
func (m RunModel) tabAt(tab string) string {
	path := RunPath(m.Run.GetTenant(), m.Run.GetId())
	if tab == "graph" {
		return path
	}
	return path + "?tab=" + tab
}

// at is the address of an action on the run.
func (m RunModel) at(action string) string {
	return RunPath(m.Run.GetTenant(), m.Run.GetId()) + "/" + action
}

// retryOptions are the tasks that a retry can run.
func (m RunModel) retryOptions() []Option {
	c := m.Run.GetTasks()
	return []Option{{"FAILED", Plural(c.GetTotal()-c.GetSucceeded(), "task that did not succeed", "tasks that did not succeed")}, {"ALL", "all " + Plural(c.GetTotal(), "task", "tasks")}}
}

// filteredEvents are the events whose type begins with the filter.
func (m RunModel) filteredEvents() []*servov1.Event {
	return slices.DeleteFunc(slices.Clone(m.Events), func(e *servov1.Event) bool { return !strings.HasPrefix(e.GetType(), m.Filter) })
}

// runsCrumbs lead to the runs of a tenant.
func runsCrumbs(tenant string, further ...Link) []Link {
	return append([]Link{{tenant, TenantPath(tenant)}, {"Runs", Scope{Tenant: tenant}.At("/ui/runs")}}, further...)
}

// JSON is a value as indented JSON.
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
	out, _ := json.MarshalIndent(plain, "", "  ") // it was parsed above
	return string(out)
}

// eventLine is the data of an event in one line.
func eventLine(e *servov1.Event) string {
	raw, err := protojson.Marshal(e.GetData())
	if err != nil || string(raw) == "{}" {
		return ""
	}
	return Clip(strings.Join(strings.Fields(string(raw)), " "), 300)
}

// maxAlike is the number of tasks of one asset that are drawn as boxes of their own, unless the
// visitor requests it: a column of a hundred equal boxes shows nothing.
const maxAlike = 12

// GraphOf lays out a run: by task, or by asset if it has too many tasks, or many of one asset and
// each is not requested.
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
	out := drawn(laid, edges)
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
	out := drawn(laid, edges)
	out.Grouped, out.MoreEdges = true, g.GetMoreEdges()
	for i, group := range g.GetGroups() {
		look, detail := groupLook(group)
		out.Boxes = append(out.Boxes, Box{
			Point: laid.Boxes[i], Look: look, Title: group.GetAsset(), Detail: detail,
			At: RunPath(g.GetRun().GetTenant(), g.GetRun().GetId()) + "?tab=tasks&asset=" + group.GetAsset(),
		})
	}
	return out
}

// statesByWeight are the states of tasks, the most important for a group first.
func statesByWeight() []string {
	return []string{"FAILED", "RUNNING", "DISPATCHED", "RETRY_WAIT", "QUEUED", "READY", "PENDING", "CANCELLED", "SKIPPED", "SUCCEEDED"}
}

// groupLook is the look of the most important state of a group, and the number of tasks in each
// state. The first come first: a box may have no room for the rest.
func groupLook(group *servov1.GraphGroup) (look Look, detail string) {
	look = LookOf("PENDING")
	var parts []string
	for _, s := range statesByWeight() {
		if n := group.GetStates()[s]; n > 0 {
			if len(parts) == 0 {
				look = LookOf(s)
			}
			parts = append(parts, Count(n, false)+" "+LookOf(s).Label)
		}
	}
	return look, strings.Join(parts, ", ")
}
