package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newWhy explains why something has not run yet.
func newWhy() *cobra.Command {
	c := ofRun(spec{
		use: "why RUN|CONFIG [TASK|ASSET]", short: "Explain why a run, task or config has not run yet",
		long: `Explain why a run, a task or a config has not run yet: its state, the blockers in the order in
which they must be resolved, and the remedy for each. The answer follows the rules of the loops that
fire slots, start runs, admit tasks and lease them to workers: without blockers they process it
next. For a run that is running, the task that has waited longest is explained if no task is leased;
for a config the next slot and, for people, the last run if it has not ended.`,
		example: `  servo why latest
  servo why latest gold/revenue
  servo why acme-aws-cost
  servo why 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 gold/revenue -o json`,
	})
	cmd := newCall(c, func(ctx context.Context, s *session) error {
		if len(s.args) == 1 && !looksLikeRun(s.args[0]) {
			return s.whyConfig(ctx, s.args[0])
		}
		var why *servov1.Explanation
		if len(s.args) == 1 {
			run, err := s.findRun(ctx, s.args[0])
			if err != nil {
				return err
			}
			if why, err = s.client.Runs().ExplainRun(ctx, &servov1.ExplainRunRequest{Tenant: s.Tenant, Run: run}); err != nil {
				return err
			}
		} else {
			run, task, err := s.taskArgument(ctx)
			if err != nil {
				return err
			}
			if why, err = s.client.Tasks().ExplainTask(ctx, &servov1.ExplainTaskRequest{Tenant: s.Tenant, Run: run, Task: task}); err != nil {
				return err
			}
		}
		return s.show(why, func(w io.Writer) { whyText(w, s.paint, why, time.Now()) })
	})
	cmd.Args = oneOrTwo
	return cmd
}

// looksLikeRun reports whether a name can be the id of a run, or a part of it.
func looksLikeRun(name string) bool {
	const least = 8 // characters of an id that find a run
	return name == latest || len(name) >= least && strings.Trim(name, "0123456789abcdefABCDEF-") == ""
}

// whyConfig explains a config by its name.
func (s *session) whyConfig(ctx context.Context, name string) error {
	why, err := s.client.Configs().ExplainConfig(ctx, &servov1.ExplainConfigRequest{Tenant: s.Tenant, Workspace: s.Workspace, Config: name})
	if err != nil {
		return err
	}
	last, err := s.whyLastRun(ctx, why.GetRun())
	if err != nil {
		return err
	}
	return s.show(why, func(w io.Writer) {
		whyText(w, s.paint, why, time.Now())
		if last != nil {
			fmt.Fprintln(w)
			whyText(w, s.paint, last, time.Now())
		}
	})
}

// whyLastRun explains the last run of a config, for people, if it has not ended: a question about
// a late config is about that run, not about the slot after it.
func (s *session) whyLastRun(ctx context.Context, name string) (*servov1.Explanation, error) {
	if name == "" || !s.Form.forPeople() {
		return nil, nil //nolint:nilnil // there is nothing to explain
	}
	why, err := s.client.Runs().ExplainRun(ctx, &servov1.ExplainRunRequest{Tenant: s.Tenant, Run: name})
	if err != nil || ended(servov1.Run_State(servov1.Run_State_value[why.GetState()])) {
		return nil, err
	}
	return why, nil
}

// oneOrTwo accepts a run or config, or a run and a task of it.
func oneOrTwo(cmd *cobra.Command, args []string) error {
	if len(args) == 1 || len(args) == 2 {
		return nil
	}
	return usageFault(cmd, fmt.Sprintf("takes a run or config, or a run and a task, not %s", count(len(args), "argument")))
}

func whyText(w io.Writer, p palette, why *servov1.Explanation, now time.Time) {
	subject := "run " + why.GetRun()
	switch {
	case why.GetConfig() != "":
		subject = fmt.Sprintf("config %s of %s", clean(why.GetName()), clean(why.GetPipeline()))
	case why.GetTask() != "":
		subject = fmt.Sprintf("task %s (%s) of run %s", why.GetTask(), clean(why.GetAsset()), why.GetRun())
	case why.GetPipeline() != "":
		subject += " of " + clean(why.GetPipeline())
	}
	fmt.Fprintf(w, "%s is %s since %s\n", subject, p.state(why.GetState()), when(now, why.GetSince()))
	if len(why.GetBlockers()) == 0 {
		fmt.Fprintf(w, "no blockers\nnext: %s\n", clean(why.GetNext()))
		return
	}
	for i, b := range why.GetBlockers() {
		fmt.Fprintf(w, "%3d. %s  %s\n     %s\n", i+1, b.GetCode(), clean(b.GetMessage()), clean(b.GetRemedy()))
	}
	if next := why.GetNext(); next != "" {
		fmt.Fprintf(w, "then: %s\n", clean(next))
	}
}
