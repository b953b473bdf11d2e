package cli

import (
	"context"
	"fmt"
	"io"
	"os/user"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func newRunsTrigger() *cobra.Command {
	var (
		r         remote
		values    parameters
		selection []string
		priority  int32
		key       string
		wait      bool
	)
	cmd := &cobra.Command{
		Use:   "trigger [PIPELINE]",
		Short: "Run a pipeline, or a selection of assets",
		Long: `Run a pipeline, or a selection of assets, of the workspace's active deployment.

--param day=2026-01-31 is read as the type that the pipeline declares: a string as it is,
an integer, number or boolean as such, an object or array as JSON. --params takes a JSON
object, or @FILE; a --param is stronger.

With --key the same command again gives the same run. --wait watches until the run has
ended, and exits with 3 if it did not succeed.`,
		Example: `  servo runs trigger daily --param day=2026-01-31 --wait
  servo runs trigger daily --params @day.json --key daily-2026-01-31
  servo runs trigger --select +gold/revenue`,
		Args:              atMost(1),
		ValidArgsFunction: completion((*session).pipelineNames),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			req := &servov1.TriggerRunRequest{Workspace: s.Workspace, Select: selection, Priority: priority, TriggeredBy: whoAmI()}
			if len(args) > 0 {
				req.Pipeline = args[0]
			}
			if req.Pipeline == "" && len(selection) == 0 {
				return usageFault(s.cmd, "nothing to run: name a PIPELINE or --select assets")
			}
			var err error
			if req.Tenant, err = s.requireTenant(ctx); err != nil {
				return err
			}
			if req.Parameters, err = values.ofServer(ctx, s, req); err != nil {
				return err
			}
			answer, err := s.client.Runs().TriggerRun(withKey(ctx, key), req)
			if err != nil {
				return err
			}
			return s.triggered(ctx, answer, wait)
		}),
	}
	values.add(cmd)
	cmd.Flags().StringArrayVar(&selection, "select", nil, "run these assets: ns/name, +ns/name, ns/name+, ns/*, tag:x, owner:y")
	cmd.Flags().Int32Var(&priority, "priority", 0, "1 (last) to 10 (first); the pipeline's if not said")
	cmd.Flags().StringVar(&key, "key", "", "a repeat with the same key gives the same run")
	addWait(cmd, &wait)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func newRunsRetry() *cobra.Command {
	var (
		r    remote
		all  bool
		key  string
		wait bool
	)
	cmd := &cobra.Command{
		Use:   "retry RUN",
		Short: "Run again what did not succeed in a run that is over",
		Long: `Run again what did not succeed in a run that is over, as a new run of the deployment that is
active now: mend the code, deploy, retry.`,
		Example: `  servo runs retry latest --wait
  servo runs retry 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 --all`,
		Args: exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, name, err := s.runArgument(ctx, args[0])
			if err != nil {
				return err
			}
			req := &servov1.RetryRunRequest{Tenant: tenant, Run: name, Mode: servov1.RetryRunRequest_FAILED, TriggeredBy: whoAmI()}
			if all {
				req.Mode = servov1.RetryRunRequest_ALL
			}
			answer, err := s.client.Runs().RetryRun(withKey(ctx, key), req)
			if err != nil {
				return err
			}
			return s.triggered(ctx, answer, wait)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "everything, not only what did not succeed")
	cmd.Flags().StringVar(&key, "key", "", "a repeat with the same key gives the same run")
	addWait(cmd, &wait)
	aboutRun(cmd)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func addWait(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "wait", false, "watch until the run has ended; exit with 3 if it did not succeed")
}

func withKey(ctx context.Context, key string) context.Context {
	if key == "" {
		return ctx
	}
	return client.WithIdempotencyKey(ctx, key)
}

// whoAmI says to people who has triggered a run.
func whoAmI() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "servo"
}

// triggered shows a new run, or watches it to its end.
func (s *session) triggered(ctx context.Context, answer *servov1.TriggerRunResponse, wait bool) error {
	r := answer.GetRun()
	if wait {
		if s.Form == outputTable {
			s.say("run %s%s", r.GetId(), repeatedText(answer))
		}
		return s.watch(ctx, r.GetTenant(), r.GetId(), s.Form == outputTable)
	}
	return s.show(answer, func(w io.Writer) {
		fmt.Fprintf(w, "run %s of %s: %s%s\nwatch it: servo runs watch %s%s\n", r.GetId(), pipelineName(r), count(int(r.GetTasks().GetTotal()), "task"),
			repeatedText(answer), r.GetId(), s.again())
	})
}

func repeatedText(answer *servov1.TriggerRunResponse) string {
	if answer.GetRepeatedRequest() {
		return " (made by an earlier request with the same key)"
	}
	return ""
}

// atMost demands no more than a number of positional arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return usageFault(cmd, fmt.Sprintf("takes at most %s, not %d", count(n, "argument"), len(args)))
	}
}
