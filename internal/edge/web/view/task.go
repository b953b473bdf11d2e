package view

import servov1 "go.arco.dev/servo/gen/servo/v1"

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

// at is the address of an action on the task.
func (m TaskModel) at(action string) string {
	return TaskPath(m.Run.GetTenant(), m.Run.GetId(), m.Task.GetId()) + "/" + action
}

// crumbs lead to the run of the task.
func (m TaskModel) crumbs() []Link {
	return runsCrumbs(m.Run.GetTenant(), Link{m.Run.GetPipeline() + " " + ShortID(m.Run.GetId()), RunPath(m.Run.GetTenant(), m.Run.GetId())})
}

// attemptEnd is how an attempt ended.
func attemptEnd(a *servov1.Attempt) string {
	if a.GetEnded() == "" {
		return "running"
	}
	return Words(a.GetEnded())
}
