package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// newRuns triggers, reads and ends runs.
func newRuns() *cobra.Command {
	return group("runs", "Trigger, read and end runs",
		newRunsCancel(), newRunsGet(), newRunsList(), newRunsRetry(), newRunsTrigger(), newRunsWatch())
}

func newRunsList() *cobra.Command {
	var (
		r               remote
		state           []string
		pipeline, since string
		config          string
		everybody       bool
		limit           int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, the newest first",
		Example: `  servo runs list --state failed,timed_out --since 24h
  servo runs list --pipeline daily --limit 5 -o json`,
		Args: exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			wanted, err := states[servov1.Run_State](state, servov1.Run_State_value)
			if err != nil {
				return err
			}
			from, err := sinceTime(since, time.Now())
			if err != nil {
				return err
			}
			tenant := ""
			if !everybody {
				if tenant, err = s.requireTenant(ctx); err != nil {
					return err
				}
			}
			runs, err := listed(s, client.AllRuns(ctx, s.client, &servov1.ListRunsRequest{
				Tenant: tenant, Workspace: s.Workspace, Pipeline: pipeline, Config: config, State: wanted, From: from, PageSize: pageSize(limit),
			}), limit)
			if err != nil {
				return err
			}
			none := "no runs yet; servo runs trigger PIPELINE"
			if pipeline != "" || config != "" || since != "" || len(state) > 0 {
				none = "no such runs; leave out --state, --pipeline, --config or --since to see others"
			}
			return showAll(s, runs, none, func(w io.Writer) { runsTable(w, s.paint, runs, time.Now(), s.Form == outputWide) })
		}),
	}
	cmd.Flags().StringArrayVar(&state, "state", nil, "only runs in these states: "+strings.ToLower(strings.Join(stateNames(servov1.Run_State_value), ", ")))
	completeStates(cmd, servov1.Run_State_value)
	cmd.Flags().StringVar(&pipeline, "pipeline", "", "only runs of this pipeline")
	completeFlag(cmd, "pipeline", (*session).pipelineNames)
	cmd.Flags().StringVar(&config, "config", "", "only runs of this config, by name or id")
	completeFlag(cmd, "config", (*session).configNames)
	cmd.Flags().BoolVar(&everybody, "all-tenants", false, "runs of all tenants, for the installation's operators")
	cmd.Flags().StringVar(&since, "since", "", "only runs made since then: 24h, or 2026-01-31T00:00:00Z")
	addLimit(cmd, &limit, "runs")
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

// pageSize reads what will be shown, and one more to know whether there is more.
func pageSize(limit int) int32 {
	const most = 100
	if limit <= 0 || limit >= most {
		return most
	}
	return int32(limit + 1)
}

// sinceTime is a time in the past, or so long ago.
func sinceTime(text string, now time.Time) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return timestamppb.New(now.Add(-d)), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return timestamppb.New(at), nil
	}
	return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("%q is neither a duration nor a time", text), fault.Field("--since"),
		fault.Remedy("write 90m, 24h or 2026-01-31T00:00:00Z"))
}

func runsTable(w io.Writer, p palette, runs []*servov1.Run, now time.Time, wide bool) {
	workspaces, tenants := false, false // a column that says the same on every line says nothing
	for _, r := range runs {
		workspaces = workspaces || r.GetWorkspace() != "default"
		tenants = tenants || r.GetTenant() != runs[0].GetTenant()
	}
	var t table
	var ids []string
	for _, r := range runs {
		ids = append(ids, r.GetId())
	}
	tails := append([]string{"TAIL"}, uniqueTails(ids)...) // of each line
	add := func(tenant, workspace string, r *servov1.Run, cells ...string) {
		if wide && r == nil {
			cells = append(cells, "CONFIG", "PRIORITY", "FINISHED", "RETRY OF", tails[0])
		} else if wide {
			cells = append(cells, orDash(r.GetConfig()), fmt.Sprint(r.GetPriority()), age(now, r.GetFinishedAt()), orDash(r.GetParentRun()), tails[len(t.rows)])
		}
		if workspaces {
			cells = append([]string{cells[0], workspace}, cells[1:]...)
		}
		if tenants {
			cells = append([]string{cells[0], tenant}, cells[1:]...)
		}
		t.add(cells...)
	}
	add("TENANT", "WORKSPACE", nil, "RUN", "PIPELINE", "STATE", "TASKS", "CREATED", "TOOK", "TRIGGER")
	for _, r := range runs {
		tasks := fmt.Sprintf("%d/%d", r.GetTasks().GetTotal()-r.GetTasks().GetRemaining(), r.GetTasks().GetTotal())
		add(clean(r.GetTenant()), clean(r.GetWorkspace()), r, r.GetId(), pipelineName(r), p.state(r.GetState().String()), tasks,
			age(now, r.GetCreatedAt()), elapsed(now, r.GetStartedAt(), r.GetFinishedAt()), triggerText(r))
	}
	t.print(w)
}

// pipelineName is what was run.
func pipelineName(r *servov1.Run) string {
	if r.GetPipeline() == "" {
		return "(selection)"
	}
	return clean(r.GetPipeline())
}

func triggerText(r *servov1.Run) string {
	text := orDash(r.GetTriggerType())
	if by := r.GetTriggeredBy(); by != "" {
		text += " by " + clip(by, 40)
	}
	return text
}

func newRunsGet() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "get RUN",
		Short: "Show a run",
		Args:  exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, name, err := s.runArgument(ctx, args[0])
			if err != nil {
				return err
			}
			r, err := s.client.Runs().GetRun(ctx, &servov1.GetRunRequest{Tenant: tenant, Run: name})
			if err != nil {
				return err
			}
			failed, err := s.failedTasks(ctx, r)
			if err != nil {
				return err
			}
			return s.show(r, func(w io.Writer) { runText(w, s.paint, r, failed, time.Now()) })
		}),
	}
	aboutRun(cmd)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

// runArgument is the tenant and the run that a command is about.
func (s *session) runArgument(ctx context.Context, name string) (tenant, run string, err error) {
	if tenant, err = s.requireTenant(ctx); err != nil {
		return "", "", err
	}
	run, err = s.findRun(ctx, tenant, name)
	return tenant, run, err
}

// failedTasks are the first tasks that a run failed by: what people ask next.
func (s *session) failedTasks(ctx context.Context, r *servov1.Run) ([]*servov1.Task, error) {
	const some = 5
	if r.GetTasks().GetFailed() == 0 || !s.Form.forPeople() {
		return nil, nil
	}
	return first(client.AllTasks(ctx, s.client, &servov1.ListTasksRequest{
		Tenant: r.GetTenant(), Run: r.GetId(), State: []servov1.Task_State{servov1.Task_FAILED}, PageSize: some,
	}), some)
}

func runText(w io.Writer, p palette, r *servov1.Run, failed []*servov1.Task, now time.Time) {
	var t table
	t.add("run", r.GetId())
	t.add("pipeline", pipelineName(r))
	t.add("workspace", clean(r.GetTenant())+"/"+clean(r.GetWorkspace()))
	t.add("state", p.state(r.GetState().String()))
	if r.GetCancelReason() != "" {
		t.add("reason", clean(r.GetCancelReason()))
	}
	t.add("tasks", countsText(r.GetTasks()))
	t.add("created", when(now, r.GetCreatedAt()))
	t.add("took", elapsed(now, r.GetStartedAt(), r.GetFinishedAt()))
	t.add("trigger", triggerText(r))
	if r.GetParentRun() != "" {
		t.add("retry of", r.GetParentRun())
	}
	t.add("priority", fmt.Sprint(r.GetPriority()))
	if len(r.GetParameters().GetFields()) > 0 {
		t.add("parameters", compact(r.GetParameters()))
	}
	t.add("deployment", r.GetDeployment())
	t.print(w)
	if len(failed) == 0 {
		return
	}
	fmt.Fprintln(w)
	for _, task := range failed {
		fmt.Fprintf(w, "%s %s: %s\n", p.state("FAILED"), taskName(task.GetAsset(), task.GetPartition()), failureText(task.GetFailure(), 200))
	}
	if more := int(r.GetTasks().GetFailed()) - len(failed); more > 0 {
		fmt.Fprintf(w, "and %d more: servo tasks list %s --state failed\n", more, r.GetId())
	}
}

// countsText is "4 of 6 done: 3 succeeded, 1 failed".
func countsText(c *servov1.TaskCounts) string {
	text := fmt.Sprintf("%d of %d done", c.GetTotal()-c.GetRemaining(), c.GetTotal())
	var parts []string
	for _, part := range []struct {
		n    int32
		name string
	}{{c.GetSucceeded(), "succeeded"}, {c.GetFailed(), "failed"}, {c.GetSkipped(), "skipped"}, {c.GetCancelled(), "cancelled"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.name))
		}
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

// failureText is why something failed, in at most n letters.
func failureText(f *servov1.Failure, n int) string {
	if f == nil {
		return "-"
	}
	return clip(strings.TrimSuffix(f.GetCode()+": "+f.GetMessage(), ": "), n)
}

func newRunsCancel() *cobra.Command {
	var (
		r      remote
		reason string
	)
	cmd := &cobra.Command{
		Use:     "cancel RUN",
		Short:   "Stop a run: what waits ends at once, workers are asked to stop",
		Example: `  servo runs cancel latest --reason "wrong day"`,
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, name, err := s.runArgument(ctx, args[0])
			if err != nil {
				return err
			}
			r, err := s.client.Runs().CancelRun(ctx, &servov1.CancelRunRequest{Tenant: tenant, Run: name, Reason: reason})
			if err != nil {
				return err
			}
			return s.show(r, func(w io.Writer) {
				if ended(r.GetState()) {
					fmt.Fprintf(w, "run %s is %s\n", r.GetId(), s.paint.state(r.GetState().String()))
					return
				}
				fmt.Fprintf(w, "run %s is %s: %s to stop\nwatch it: servo runs watch %s%s\n", r.GetId(), s.paint.state(r.GetState().String()),
					count(int(r.GetTasks().GetRemaining()), "task"), r.GetId(), s.again())
			})
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the people who read about it")
	aboutRun(cmd)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

// again is the flags that a command to try next needs to be about the same thing: those of
// this one. The environment and the file are heard without being asked.
func (s *session) again() string {
	text := ""
	if s.cmd.Flags().Changed("tenant") {
		text += " -t " + s.Tenant
	}
	if s.cmd.Flags().Changed("server") {
		text += " --server " + strings.Join(s.Servers, ",")
	}
	return text
}

// ended says that nothing happens to a run any more.
func ended(state servov1.Run_State) bool { return state >= servov1.Run_SUCCEEDED }
