package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newTasks is the group of commands about tasks.
func newTasks() *cobra.Command {
	return group("tasks", "Show the tasks of a run and their logs",
		newShow(ofRun(spec{
			use: "force-cancel RUN TASK|ASSET", short: "End a task whose worker is silent", reason: true,
			long: `End a task of a run that is being cancelled, if its worker has been silent for five minutes;
before that the command is refused with the time from which on it is possible. Later reports of
the worker have no effect.`,
			example: `  servo runs cancel latest
  servo tasks force-cancel latest gold/revenue --reason "its machine is gone"`,
		}), func(ctx context.Context, s *session) (*servov1.Task, error) {
			run, task, err := s.taskArgument(ctx)
			if err != nil {
				return nil, err
			}
			return s.client.Tasks().ForceCancelTask(ctx, &servov1.ForceCancelTaskRequest{Tenant: s.Tenant, Run: run, Task: task, Reason: s.reason})
		}, func(w io.Writer, s *session, t *servov1.Task) {
			fmt.Fprintf(w, "task %s is %s\n", taskName(t.GetAsset(), t.GetPartition()), s.paint.state(t.GetState().String()))
		}),
		newShow(ofRun(spec{
			use: "get RUN TASK|ASSET", short: "Show a task with its attempts and their stages",
			example: `  servo tasks get latest gold/revenue
  servo tasks get 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 gold/revenue -o json`,
		}), getTask, func(w io.Writer, s *session, t *servov1.Task) { taskText(w, s.paint, t, time.Now()) }),
		newTasksList(), newTasksLogs())
}

func newTasksList() *cobra.Command {
	var (
		state  []string
		wanted []servov1.Task_State
	)
	return newList(ofRun(spec{
		use: "list RUN", short: "List the tasks of a run in plan order", example: `  servo tasks list latest --state failed`, limit: "tasks", unlimited: true,
		flags: func(cmd *cobra.Command) { addStates(cmd, &state, servov1.Task_State_value) },
		check: func(*session) (err error) {
			wanted, err = states[servov1.Task_State](state, servov1.Task_State_value)
			return err
		},
	}), "no such tasks; omit --state to list all", func(ctx context.Context, s *session) ([]*servov1.Task, error) {
		run, err := s.findRun(ctx, s.args[0])
		if err != nil {
			return nil, err
		}
		return listed(s, client.AllTasks(ctx, s.client, &servov1.ListTasksRequest{Tenant: s.Tenant, Run: run, State: wanted}))
	}, columns([]string{"TASK", "ASSET", "STATE", "ATTEMPT", "SINCE", "REMARK"}, func(v view, t *servov1.Task) []string {
		return []string{
			t.GetId(), taskName(t.GetAsset(), t.GetPartition()), v.paint.state(t.GetState().String()), fmt.Sprint(t.GetAttempt()),
			age(v.now, t.GetSince()), orDash(remark(t, v.now)),
		}
	}))
}

// remark is the failure, progress or outcome of a task.
func remark(task *servov1.Task, now time.Time) string {
	switch {
	case task.GetFailure() != nil && task.GetDueAt() != nil:
		return failureText(task.GetFailure(), 60) + ", again in " + short(task.GetDueAt().AsTime().Sub(now))
	case task.GetFailure() != nil:
		return failureText(task.GetFailure(), 80)
	case task.GetWorker() != "":
		text := "on " + task.GetWorker()
		if progress := task.GetProgress(); progress != nil {
			done := ""
			if progress.GetFraction() > 0 {
				done = fmt.Sprintf("%.0f%%", progress.GetFraction()*100)
			}
			text = joined(" ", done, clip(activity(progress), 60), text)
		}
		return text
	case task.GetOutcome() != "" && task.GetOutcome() != "SUCCESS" && task.GetOutcome() != task.GetState().String():
		return strings.ToLower(strings.ReplaceAll(task.GetOutcome(), "_", " "))
	}
	return ""
}

// taskArgument returns the run and the task that the first two arguments name.
func (s *session) taskArgument(ctx context.Context) (run, task string, err error) {
	if run, err = s.findRun(ctx, s.args[0]); err != nil {
		return "", "", err
	}
	task, err = s.findTask(ctx, run, s.args[1])
	return run, task, err
}

// getTask returns the task that the first two arguments name.
func getTask(ctx context.Context, s *session) (*servov1.Task, error) {
	run, task, err := s.taskArgument(ctx)
	if err != nil {
		return nil, err
	}
	return s.client.Tasks().GetTask(ctx, &servov1.GetTaskRequest{Tenant: s.Tenant, Run: run, Task: task})
}

func taskText(w io.Writer, p palette, task *servov1.Task, now time.Time) {
	var t table
	t.add("task", task.GetId())
	t.add("asset", taskName(task.GetAsset(), task.GetPartition()))
	t.add("run", task.GetRun())
	state := p.state(task.GetState().String())
	if o := task.GetOutcome(); o != "" && o != "SUCCESS" {
		state += " (" + clean(o) + ")"
	}
	t.add("state", state+" since "+when(now, task.GetSince()))
	t.add("pool", fmt.Sprintf("%s, priority %d, timeout %s", clean(task.GetPool()), task.GetPriority(), timeoutText(task.GetTimeout())))
	if task.GetWorker() != "" {
		t.add("worker", clean(task.GetWorker())+", last heartbeat "+age(now, task.GetHeartbeatAt()))
	}
	if pr := task.GetProgress(); pr != nil {
		for _, row := range [][2]string{{"progress", joined(" ", share(pr), activity(pr))}, {"counted", counters(pr)}, {"to go", left(pr, now)}} {
			if row[1] != "" {
				t.add(row[0], row[1])
			}
		}
	}
	if task.GetDueAt() != nil {
		t.add("next attempt", "in "+short(task.GetDueAt().AsTime().Sub(now)))
	}
	if task.GetCursor() != "" {
		t.add("cursor", clip(task.GetCursor(), 200))
	}
	if f := task.GetFailure(); f != nil {
		t.add("failure", failureText(f, 1000))
		if f.GetSuggestedAction() != "" {
			t.add("suggestion", clip(f.GetSuggestedAction(), 1000))
		}
	}
	for _, in := range task.GetInputs() {
		from := "task " + in.GetTask()
		if in.GetRun() != task.GetRun() {
			from += " of run " + in.GetRun()
		}
		t.add("input", taskName(in.GetAsset(), in.GetPartition())+" from "+from)
	}
	if task.GetResult() != nil {
		t.add("result", clip(compact(task.GetResult()), 1000))
	}
	t.print(w)
	if len(task.GetAttempts()) == 0 {
		return
	}
	var attempts table
	attempts.add("ATTEMPT", "WORKER", "CLAIMED", "TOOK", "ENDED", "FAILURE")
	for _, a := range task.GetAttempts() {
		attempts.add(fmt.Sprint(a.GetNumber()), clean(a.GetWorker()), age(now, a.GetClaimedAt()), elapsed(now, a.GetStartedAt(), a.GetEndedAt()),
			orDash(a.GetEnded()), failureText(a.GetFailure(), 80))
	}
	fmt.Fprintln(w)
	attempts.print(w)
	stagesTable(w, task.GetAttempts(), now)
}
