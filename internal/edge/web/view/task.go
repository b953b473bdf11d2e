package view

import (
	"fmt"
	"slices"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

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

// logCommand prints the complete log of the task.
func (m TaskModel) logCommand() string {
	return "servo tasks logs " + m.Run.GetId() + " " + m.Task.GetId() + " --tenant " + m.Run.GetTenant()
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

// stderrOf is the last output of a failed command.
func stderrOf(f *servov1.Failure) string {
	return f.GetDetails().GetFields()["stderr"].GetStringValue()
}

// failureTone is the tone of the error of a task: a task that is retried has not failed.
func failureTone(t *servov1.Task) string {
	if t.GetState() == servov1.Task_FAILED {
		return toneBad
	}
	return toneLate
}

// noFurtherAttempt is the reason that a failed task is not retried; "" for other tasks.
func noFurtherAttempt(t *servov1.Task) string {
	if t.GetState() != servov1.Task_FAILED {
		return ""
	}
	class, failures := t.GetFailure().GetClass(), t.GetFailures()
	switch {
	case t.GetOutcome() == "POISON":
		return "No further attempt: the task was delivered too often without progress."
	case failures > 1:
		return fmt.Sprintf("No further attempt: the task failed %d times, which is the limit max_attempts.", failures)
	case slices.Contains([]string{"transient", "infrastructure", "system"}, class):
		return "No further attempt: the retry policy permits none for " + t.GetFailure().GetCode() + " (max_attempts or no_retry_on)."
	case class != "":
		return "No further attempt: errors of class " + Words(class) + " are not retried unless retry_on lists " + t.GetFailure().GetCode() + "."
	}
	return ""
}
