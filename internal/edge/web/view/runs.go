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
}

func runStateOptions() []Option {
	options := stateOptions("any", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELLED")
	return slices.Insert(options, 1, Option{"UNFINISHED", "unfinished"}, Option{"TROUBLE", "failed or timed out"})
}

// unfinished reports whether a run has not ended.
func unfinished(r *servov1.Run) bool { return r.GetFinishedAt() == nil }

// doneTasks is the number of ended tasks of a run.
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
