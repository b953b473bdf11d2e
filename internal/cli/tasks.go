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

// newTasks reads the tasks of runs.
func newTasks() *cobra.Command {
	return group("tasks", "Read the tasks of a run and what they have logged", newTasksForceCancel(), newTasksGet(), newTasksList(), newTasksLogs())
}

func newTasksList() *cobra.Command {
	var (
		r     remote
		state []string
		limit int
	)
	cmd := &cobra.Command{
		Use:     "list RUN",
		Short:   "List the tasks of a run in the order of its plan",
		Example: `  servo tasks list latest --state failed`,
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			wanted, err := states[servov1.Task_State](state, servov1.Task_State_value)
			if err != nil {
				return err
			}
			tenant, name, err := s.runArgument(ctx, args[0])
			if err != nil {
				return err
			}
			tasks, err := listed(s, client.AllTasks(ctx, s.client, &servov1.ListTasksRequest{Tenant: tenant, Run: name, State: wanted}), limit)
			if err != nil {
				return err
			}
			return showAll(s, tasks, "no such tasks; leave out --state to see others", func(w io.Writer) { tasksTable(w, s.paint, tasks, time.Now()) })
		}),
	}
	cmd.Flags().StringArrayVar(&state, "state", nil, "only tasks in these states: "+strings.ToLower(strings.Join(stateNames(servov1.Task_State_value), ", ")))
	cmd.Flags().IntVar(&limit, "limit", 0, "how many tasks at most (0: all)")
	addListWatch(cmd)
	completeStates(cmd, servov1.Task_State_value)
	aboutRun(cmd)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func tasksTable(w io.Writer, p palette, tasks []*servov1.Task, now time.Time) {
	var t table
	t.add("TASK", "ASSET", "STATE", "ATTEMPT", "SINCE", "REMARK")
	for _, task := range tasks {
		t.add(task.GetId(), taskName(task.GetAsset(), task.GetPartition()), p.state(task.GetState().String()), fmt.Sprint(task.GetAttempt()),
			age(now, task.GetSince()), orDash(remark(task, now)))
	}
	t.print(w)
}

// remark is what is worth saying about a task in its state.
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

func newTasksGet() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "get RUN TASK|ASSET",
		Short: "Show a task with its attempts and their stages",
		Example: `  servo tasks get latest gold/revenue
  servo tasks get 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 gold/revenue -o json`,
		Args: exactly(2),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			task, err := s.taskArgument(ctx, args)
			if err != nil {
				return err
			}
			return s.show(task, func(w io.Writer) { taskText(w, s.paint, task, time.Now()) })
		}),
	}
	aboutRun(cmd)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

// taskArgument reads the task that a command is about.
func (s *session) taskArgument(ctx context.Context, args []string) (*servov1.Task, error) {
	tenant, run, err := s.runArgument(ctx, args[0])
	if err != nil {
		return nil, err
	}
	name, err := s.findTask(ctx, tenant, run, args[1])
	if err != nil {
		return nil, err
	}
	s.Tenant = tenant
	return s.client.Tasks().GetTask(ctx, &servov1.GetTaskRequest{Tenant: tenant, Run: run, Task: name})
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
		t.add("worker", clean(task.GetWorker())+", heard of "+age(now, task.GetHeartbeatAt()))
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
