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
	var r remote
	cmd := &cobra.Command{
		Use:   "why RUN|CONFIG [TASK|ASSET]",
		Short: "Say why a run, a task or a config has not run yet, and what would unblock it",
		Long: `Say why a run, a task or a config has not run yet: its state, what stands in the way, in the order in
which it must go, and what would unblock it. The answer is made by the rules of the loops that
fire slots, start runs, admit tasks and give them to workers: where nothing stands in the way, they take it
next. Of a run that goes on, the task that has waited longest is explained if none is worked on; of a
config the slot that comes next and, for people, the last run if it has not ended.`,
		Example: `  servo why latest
  servo why latest gold/revenue
  servo why acme-aws-cost
  servo why 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 gold/revenue -o json`,
		Args: oneOrTwo,
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			if len(args) == 1 && !looksLikeRun(args[0]) {
				return s.whyConfig(ctx, args[0])
			}
			tenant, name, err := s.runArgument(ctx, args[0])
			if err != nil {
				return err
			}
			var why *servov1.Explanation
			if len(args) == 1 {
				why, err = s.client.Runs().ExplainRun(ctx, &servov1.ExplainRunRequest{Tenant: tenant, Run: name})
			} else {
				var task string
				if task, err = s.findTask(ctx, tenant, name, args[1]); err != nil {
					return err
				}
				why, err = s.client.Tasks().ExplainTask(ctx, &servov1.ExplainTaskRequest{Tenant: tenant, Run: name, Task: task})
			}
			if err != nil {
				return err
			}
			return s.show(why, func(w io.Writer) { whyText(w, s.paint, why, time.Now()) })
		}),
	}
	aboutRun(cmd)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

// looksLikeRun says that a name may be an id of a run, or a part of one.
func looksLikeRun(name string) bool {
	const least = 8 // letters of an id that find a run
	return name == latest || len(name) >= least && strings.Trim(name, "0123456789abcdefABCDEF-") == ""
}

// whyConfig explains a config by its name.
func (s *session) whyConfig(ctx context.Context, name string) error {
	tenant, err := s.requireTenant(ctx)
	if err != nil {
		return err
	}
	why, err := s.client.Configs().ExplainConfig(ctx, &servov1.ExplainConfigRequest{Tenant: tenant, Workspace: s.Workspace, Config: name})
	if err != nil {
		return err
	}
	last, err := s.whyLastRun(ctx, tenant, why.GetRun())
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

// whyLastRun explains the last run of a config, for people, if it has not ended: whoever asks
// why a config is late means that run, not the slot after it.
func (s *session) whyLastRun(ctx context.Context, tenant, name string) (*servov1.Explanation, error) {
	if name == "" || !s.Form.forPeople() {
		return nil, nil //nolint:nilnil // there is nothing to explain
	}
	why, err := s.client.Runs().ExplainRun(ctx, &servov1.ExplainRunRequest{Tenant: tenant, Run: name})
	if err != nil || ended(servov1.Run_State(servov1.Run_State_value[why.GetState()])) {
		return nil, err
	}
	return why, nil
}

// oneOrTwo wants a run, and perhaps a task of it.
func oneOrTwo(cmd *cobra.Command, args []string) error {
	if len(args) == 1 || len(args) == 2 {
		return nil
	}
	return usageFault(cmd, fmt.Sprintf("takes a run, and perhaps a task of it, not %s", count(len(args), "argument")))
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
		fmt.Fprintf(w, "nothing stands in the way\nnext: %s\n", clean(why.GetNext()))
		return
	}
	for i, b := range why.GetBlockers() {
		fmt.Fprintf(w, "%3d. %s  %s\n     %s\n", i+1, b.GetCode(), clean(b.GetMessage()), clean(b.GetRemedy()))
	}
	fmt.Fprintf(w, "then: %s\n", clean(why.GetNext()))
}
