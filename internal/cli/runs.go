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

// newRuns is the group of commands about runs.
func newRuns() *cobra.Command {
	return group("runs", "Trigger, show, watch, cancel and retry runs",
		newShow(ofRun(spec{
			use: "cancel RUN", short: "Cancel a run", reason: true, example: `  servo runs cancel latest --reason "wrong day"`,
			long: "Cancel a run: waiting tasks end at once, and workers are asked to stop running ones.",
		}), func(ctx context.Context, s *session) (*servov1.Run, error) {
			run, err := s.findRun(ctx, s.args[0])
			if err != nil {
				return nil, err
			}
			return s.client.Runs().CancelRun(ctx, &servov1.CancelRunRequest{Tenant: s.Tenant, Run: run, Reason: s.reason})
		}, cancelledText),
		newCall(ofRun(spec{use: "get RUN", short: "Show a run"}), func(ctx context.Context, s *session) error {
			run, err := s.findRun(ctx, s.args[0])
			if err != nil {
				return err
			}
			r, err := s.client.Runs().GetRun(ctx, &servov1.GetRunRequest{Tenant: s.Tenant, Run: run})
			if err != nil {
				return err
			}
			failed, err := s.failedTasks(ctx, r)
			if err != nil {
				return err
			}
			return s.show(r, func(w io.Writer) { runText(w, s.paint, r, failed, time.Now()) })
		}),
		newRunsList(), newRunsRetry(), newRunsTrigger(), newRunsWatch())
}

func newRunsList() *cobra.Command {
	var (
		state           []string
		pipeline, since string
		config          string
		allTenants      bool
	)
	return newCall(spec{
		use: "list", short: "List runs, newest first", limit: "runs",
		example: `  servo runs list --state failed,timed_out --since 24h
  servo runs list --pipeline daily --limit 5 -o json`,
		flags: func(cmd *cobra.Command) {
			addTenant(cmd)
			addStates(cmd, &state, servov1.Run_State_value)
			cmd.Flags().StringVar(&pipeline, "pipeline", "", "filter by pipeline")
			completeFlag(cmd, "pipeline", (*session).pipelineNames)
			cmd.Flags().StringVar(&config, "config", "", "filter by config, a name or id")
			completeFlag(cmd, "config", (*session).configNames)
			cmd.Flags().BoolVar(&allTenants, "all-tenants", false, "runs of all tenants (platform keys only)")
			cmd.Flags().StringVar(&since, "since", "", "filter by creation time: 24h, or 2026-01-31T00:00:00Z")
		},
	}, func(ctx context.Context, s *session) error {
		wanted, err := states[servov1.Run_State](state, servov1.Run_State_value)
		if err != nil {
			return err
		}
		from, err := sinceTime(since, time.Now())
		if err != nil {
			return err
		}
		req := &servov1.ListRunsRequest{Workspace: s.Workspace, Pipeline: pipeline, Config: config, State: wanted, From: from, PageSize: pageSize(s.limit)}
		if !allTenants {
			if req.Tenant, err = s.requireTenant(ctx); err != nil {
				return err
			}
		}
		runs, err := listed(s, client.AllRuns(ctx, s.client, req))
		if err != nil {
			return err
		}
		none := "no runs yet; servo runs trigger PIPELINE"
		if pipeline != "" || config != "" || since != "" || len(state) > 0 {
			none = "no such runs; omit --state, --pipeline, --config or --since to list others"
		}
		return showAll(s, runs, none, func(w io.Writer) { runsTable(w, s.view(), runs) })
	})
}

// addStates gives a command the filter --state.
func addStates(cmd *cobra.Command, to *[]string, known map[string]int32) {
	cmd.Flags().StringArrayVar(to, "state", nil, "filter by states: "+strings.ToLower(strings.Join(stateNames(known), ", ")))
	completeStates(cmd, known)
}

// pageSize is one more than will be shown, to know whether there are more.
func pageSize(limit int) int32 {
	const most = 100
	if limit <= 0 || limit >= most {
		return most
	}
	return int32(limit + 1)
}

// sinceTime reads a time, or a duration before now.
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
		fault.Remedy("use 90m, 24h or 2026-01-31T00:00:00Z"))
}

func runsTable(w io.Writer, v view, runs []*servov1.Run) {
	p, now, wide := v.paint, v.now, v.wide
	workspaces, tenants := false, false // columns with one value only are left out
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

// pipelineName is the pipeline of a run.
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

// failedTasks returns the first failed tasks of a run, for people.
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

// failureText is the code and message of a failure, in at most n characters.
func failureText(f *servov1.Failure, n int) string {
	if f == nil {
		return "-"
	}
	return clip(strings.TrimSuffix(f.GetCode()+": "+f.GetMessage(), ": "), n)
}

func cancelledText(w io.Writer, s *session, r *servov1.Run) {
	state := s.paint.state(r.GetState().String())
	if ended(r.GetState()) {
		fmt.Fprintf(w, "run %s is %s\n", r.GetId(), state)
		return
	}
	fmt.Fprintf(w, "run %s is %s: %s to stop\nwatch it: servo runs watch %s%s\n", r.GetId(), state, count(int(r.GetTasks().GetRemaining()), "task"), r.GetId(), s.again())
}

// again is the flags that a suggested command needs to reach the same tenant and server. Settings
// of the environment and the file apply to it anyway.
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

// ended reports whether a run has ended.
func ended(state servov1.Run_State) bool { return state >= servov1.Run_SUCCEEDED }
