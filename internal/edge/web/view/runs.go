package view

import (
	"slices"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// RunsModel is the list of runs.
type RunsModel struct {
	Paging

	Scope                          Scope
	State, Pipeline, Config, Since string
	Runs                           []*servov1.Run
	Invalid                        string // the error of a filter
}

func runStateOptions() []Option {
	options := stateOptions("any", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELLED")
	return slices.Insert(options, 1, Option{"UNFINISHED", "unfinished"}, Option{"TROUBLE", "failed or timed out"})
}

// unfinished reports whether a run has not ended.
func unfinished(r *servov1.Run) bool { return r.GetFinishedAt() == nil }

// taskFraction is the ended or succeeded tasks of all tasks.
func taskFraction(c *servov1.TaskCounts) string {
	done := c.GetSucceeded()
	if c.GetRemaining() > 0 {
		done = c.GetTotal() - c.GetRemaining()
	}
	return Count(done, false) + "/" + Count(c.GetTotal(), false)
}

// taskPart is the tasks with one outcome, in a bar of 110 pixels.
type taskPart struct {
	X, Width float64
	Class    string
}

// taskParts are the outcomes of tasks. Every outcome above zero is visible.
func taskParts(c *servov1.TaskCounts) (parts []taskPart) {
	const width, least = 110.0, 2.0
	x := 0.0
	for _, part := range []struct {
		n     int32
		class string
	}{{c.GetSucceeded(), "f-ok"}, {c.GetFailed(), "f-bad"}, {c.GetCancelled(), "f-off"}, {c.GetSkipped(), "f-idle"}} {
		if part.n > 0 {
			w := min(max(width*float64(part.n)/float64(max(c.GetTotal(), 1)), least), width-x)
			parts = append(parts, taskPart{X: x, Width: w, Class: part.class})
			x += w
		}
	}
	return parts
}
