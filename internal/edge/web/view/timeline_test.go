package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

var timelineBegin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a constant

// at is an event some seconds after the begin of the run.
func at(seconds float64, kind, task string) *servov1.Event {
	return &servov1.Event{Type: kind, Task: task, RecordedAt: timestamppb.New(timelineBegin.Add(time.Duration(seconds * float64(time.Second))))}
}

func created(t require.TestingT, tasks ...string) *servov1.Event {
	var list []any
	for i, name := range tasks {
		list = append(list, map[string]any{"id": name, "asset": "ns/" + name, "ix": i})
	}
	data, err := structpb.NewStruct(map[string]any{"tasks": list})
	require.NoError(t, err)
	e := at(0, "run.created", "")
	e.Data = data
	return e
}

func timelineRun(end float64) *servov1.Run {
	return &servov1.Run{Id: "r", Tenant: "acme", CreatedAt: timestamppb.New(timelineBegin), FinishedAt: at(end, "", "").GetRecordedAt()}
}

func kinds(row TimelineRow) (out []string) {
	for _, s := range row.Segments {
		out = append(out, fmt.Sprintf("%s %d", s.Kind, (s.To-s.From)/1000))
	}
	return out
}

func TestTimeline(t *testing.T) {
	t.Parallel()

	t.Run("every wait is a segment", func(t *testing.T) {
		t.Parallel()
		events := []*servov1.Event{
			created(t, "a", "b"),
			at(2, "task.queued", "a"), at(5, "task.claimed", "a"), at(6, "task.started", "a"), at(10, "task.retrying", "a"), at(52, "task.readied", "a"),
			at(53, "task.queued", "a"), at(54, "task.claimed", "a"), at(54, "task.started", "a"), at(60, "task.succeeded", "a"),
			at(60, "task.readied", "b"), at(102, "task.queued", "b"), at(103, "task.claimed", "b"), at(103, "task.started", "b"), at(110, "task.failed", "b"),
		}
		graph := &servov1.RunGraph{Nodes: []*servov1.GraphNode{{Task: "a"}, {Task: "b", Index: 1}}, Edges: []*servov1.GraphEdge{{From: 0, To: 1}}}
		shown := TimelineOf(events, timelineRun(110), TimelineOptions{Graph: graph})
		require.Equal(t, []string{"ready 2", "queued 3", "starting 1", "running 4", "backoff 42", "ready 1", "queued 1", "starting 0", "running 6"}, kinds(shown.Rows[0]))
		require.Equal(t, []string{"upstream 60", "ready 42", "queued 1", "starting 0", "running 7"}, kinds(shown.Rows[1]))
		require.Equal(t, "1 min 43 s", shown.Rows[1].Waited)
		require.Equal(t, "7.0 s", shown.Rows[1].Took)
		require.True(t, shown.Rows[0].Critical)
		require.True(t, shown.Rows[1].Critical)
		require.Equal(t, 13*time.Second, shown.Critical)
	})

	t.Run("a task that was returned is not executed while it waits again", func(t *testing.T) {
		t.Parallel()
		events := []*servov1.Event{
			created(t, "a"), at(0, "task.queued", "a"), at(1, "task.claimed", "a"), at(1, "task.started", "a"), at(6, "task.returned", "a"), at(7, "task.queued", "a"),
		}
		run := timelineRun(100)
		run.FinishedAt = nil
		shown := TimelineOf(events, run, TimelineOptions{Now: timelineBegin.Add(100 * time.Second)})
		require.Equal(t, "5.0 s", shown.Rows[0].Took)
		require.Equal(t, []string{"ready 0", "queued 1", "starting 0", "running 5", "ready 1", "queued 93"}, kinds(shown.Rows[0]))
	})

	t.Run("whatever happens, segments of a task touch and stay in the picture", func(t *testing.T) {
		t.Parallel()
		types := []string{"task.readied", "task.queued", "task.withdrawn", "task.claimed", "task.started", "task.retrying", "task.returned", "task.succeeded", "task.cancelled"}
		rapid.Check(t, func(t *rapid.T) {
			events := []*servov1.Event{created(t, "a")}
			now := 0.0
			for _, kind := range rapid.SliceOfN(rapid.SampledFrom(types), 0, 20).Draw(t, "types") {
				now += rapid.Float64Range(0, 100).Draw(t, "wait")
				events = append(events, at(now, kind, "a"))
			}
			shown := TimelineOf(events, timelineRun(now+1), TimelineOptions{})
			segments := shown.Rows[0].Segments
			for i, s := range segments {
				require.GreaterOrEqual(t, s.X, 0.0)
				require.LessOrEqual(t, s.X+s.Width, 100.2)
				require.NotEmpty(t, s.Kind)
				if i > 0 {
					require.Equal(t, segments[i-1].To, s.From)
				}
			}
			if len(segments) > 0 {
				require.Equal(t, timelineBegin.UnixMilli(), segments[0].From)
			}
		})
	})

	t.Run("many tasks are grouped by asset, and an open group is paged", func(t *testing.T) {
		t.Parallel()
		var list []any
		for i := range 10_000 {
			list = append(list, map[string]any{"id": fmt.Sprint("t", i), "asset": "ns/many", "part": fmt.Sprint(i)})
		}
		data, err := structpb.NewStruct(map[string]any{"tasks": list})
		require.NoError(t, err)
		e := at(0, "run.created", "")
		e.Data = data
		events := []*servov1.Event{e, at(1, "task.queued", "t7"), at(2, "task.claimed", "t7"), at(2, "task.started", "t7"), at(9, "task.succeeded", "t7")}
		shown := TimelineOf(events, timelineRun(10), TimelineOptions{Path: "/ui/x?tab=gantt"})
		require.Len(t, shown.Rows, 1)
		require.Equal(t, 10_000, shown.Rows[0].Tasks)
		require.Equal(t, "/ui/x?open=ns%2Fmany&tab=gantt", shown.Rows[0].At)
		shown = TimelineOf(events, timelineRun(10), TimelineOptions{Path: "/ui/x?tab=gantt", Open: "ns/many"})
		require.Len(t, shown.Rows, timelineRows)
		require.Equal(t, "/ui/x?row=200&tab=gantt", shown.Paging.NextAt)
	})

	t.Run("a zoomed timeline shows its part alone", func(t *testing.T) {
		t.Parallel()
		events := []*servov1.Event{created(t, "a"), at(10, "task.queued", "a"), at(20, "task.claimed", "a"), at(20, "task.started", "a"), at(100, "task.succeeded", "a")}
		shown := TimelineOf(events, timelineRun(100), TimelineOptions{From: timelineBegin.Add(30 * time.Second), To: timelineBegin.Add(40 * time.Second)})
		require.True(t, shown.Zoomed)
		require.Equal(t, []string{"running 80"}, kinds(shown.Rows[0]))
		require.Equal(t, 100.0, shown.Rows[0].Segments[0].Width) //nolint:testifylint // exact
	})
}
