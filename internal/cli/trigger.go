package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

func newRunsTrigger() *cobra.Command {
	var (
		r         remote
		values    parameters
		selection []string
		priority  int32
		key       string
		note      string
		wait      bool
		waitLock  time.Duration
		queue     bool
	)
	cmd := &cobra.Command{
		Use:   "trigger [PIPELINE]",
		Short: "Run a pipeline, or a selection of assets",
		Long: `Run a pipeline, or a selection of assets, of the workspace's active deployment.

--param day=2026-01-31 is read as the type that the pipeline declares: a string as it is,
an integer, number or boolean as such, an object or array as JSON. --params takes a JSON
object, or @FILE; a --param is stronger.

Runs of a pipeline exclude each other unless its manifest says otherwise. While a run with the
same parameters holds the lock, that run is the answer. A run with other parameters is refused
with the id of the holder, at once or after --wait-lock. With --queue it is created and waits
for the lock, first come, first served; so does a run that the tenant's quotas would refuse.

With --key the same command again gives the same run. --wait watches until the run has
ended, and exits with 3 if it did not succeed.`,
		Example: `  servo runs trigger daily --param day=2026-01-31 --wait
  servo runs trigger daily --params @day.json --key daily-2026-01-31
  servo runs trigger daily --wait-lock 30s --queue
  servo runs trigger --select +gold/revenue`,
		Args:              atMost(1),
		ValidArgsFunction: completion((*session).pipelineNames),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			req := &servov1.TriggerRunRequest{Workspace: s.Workspace, Select: selection, Priority: priority, Note: note}
			if len(args) > 0 {
				req.Pipeline = args[0]
			}
			if req.Pipeline == "" && len(selection) == 0 {
				return usageFault(s.cmd, "nothing to run: name a PIPELINE or --select assets")
			}
			if waitLock != 0 {
				req.WaitForLock = durationpb.New(waitLock)
			}
			req.WaitForQuota, req.Queue = queue, queue
			var err error
			if req.Tenant, err = s.requireTenant(ctx); err != nil {
				return err
			}
			if req.Parameters, err = values.ofServer(ctx, s, req); err != nil {
				return err
			}
			var answer *servov1.TriggerRunResponse
			err = s.withinRate(ctx, func() (err error) {
				answer, err = s.client.Runs().TriggerRun(withKey(ctx, key), req)
				return err
			})
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
	cmd.Flags().DurationVar(&waitLock, "wait-lock", 0, "how long to wait for a run that holds the pipeline's lock, at most 60s")
	cmd.Flags().BoolVar(&queue, "queue", false, "create a run that waits for the lock or for quotas")
	completeFlag(cmd, "select", (*session).assetNames)
	addNote(cmd, &note)
	addWait(cmd, &wait)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func newRunsRetry() *cobra.Command {
	var (
		r     remote
		all   bool
		from  string
		key   string
		note  string
		queue bool
		wait  bool
		again bool
	)
	cmd := &cobra.Command{
		Use:   "retry RUN",
		Short: "Run again what did not succeed in a run that is over",
		Long: `Run again what did not succeed in a run that is over, as a new run of the deployment that is
active now: correct the code, deploy, retry.

A run that was retried already is refused, and its newest retry is named: what succeeded there
would run once more. Retry that one, or say --again. --all and --from say what to repeat, and are
not refused.

--from does one task and everything downstream of it again, whatever became of it; the results
of all others are taken over.`,
		Example: `  servo runs retry latest --wait
  servo runs retry latest --from gold/revenue
  servo runs retry 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 --all`,
		Args: exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, name, err := s.runArgument(ctx, args[0])
			if err != nil {
				return err
			}
			req := &servov1.RetryRunRequest{Tenant: tenant, Run: name, Mode: servov1.RetryRunRequest_FAILED, Note: note, WaitForQuota: queue, Queue: queue}
			switch {
			case all && from != "":
				return usageFault(s.cmd, "--all and --from exclude each other")
			case all:
				req.Mode = servov1.RetryRunRequest_ALL
			case from != "":
				req.Mode, req.From = servov1.RetryRunRequest_FROM, from
			}
			if !again && key == "" && req.GetMode() == servov1.RetryRunRequest_FAILED { // a key makes a repeat harmless
				if err := s.notRetried(ctx, tenant, name); err != nil {
					return err
				}
			}
			answer, err := s.client.Runs().RetryRun(withKey(ctx, key), req)
			if err != nil {
				return err
			}
			return s.triggered(ctx, answer, wait)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "everything, not only what did not succeed")
	cmd.Flags().StringVar(&from, "from", "", "this asset or task, and everything downstream of it")
	cmd.Flags().BoolVar(&queue, "queue", false, "create a run that waits for the lock or for quotas")
	completeFlag(cmd, "from", (*session).assetNames)
	cmd.Flags().BoolVar(&again, "again", false, "retry a run that was retried already")
	cmd.Flags().StringVar(&key, "key", "", "a repeat with the same key gives the same run")
	addNote(cmd, &note)
	addWait(cmd, &wait)
	aboutRun(cmd)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

// notRetried refuses a run that has a retry.
func (s *session) notRetried(ctx context.Context, tenant, run string) error {
	answer, err := s.client.Runs().ListRuns(ctx, &servov1.ListRunsRequest{Tenant: tenant, ParentRun: run, PageSize: 1})
	if err != nil || len(answer.GetRuns()) == 0 {
		return err
	}
	newer := answer.GetRuns()[0]
	return fault.New(fault.Conflict, fmt.Sprintf("run %s was retried already: run %s is %s", run, newer.GetId(), newer.GetState()), fault.Field("RUN"),
		fault.Remedy("see or retry run "+newer.GetId()+"; --again retries this one once more"))
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

// addNote takes a note for people; who triggers a run is known from the key.
func addNote(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "note", "", "note for people, recorded with the run")
}

// maxRateWait is how long a command waits for a rate limit: what it counts is a minute's.
const maxRateWait = 90 * time.Second

// withinRate makes a call, and where the tenant's rate limit refuses it waits and makes it again:
// a script that triggers a thousand runs takes longer and does not fail.
func (s *session) withinRate(ctx context.Context, call func() error) error {
	for {
		err := call()
		p, ok := errors.AsType[*client.Problem](err)
		if !ok || p.Code != client.LimitExceeded || p.RetryAfter <= 0 || p.RetryAfter > maxRateWait {
			return err
		}
		if _, ok := p.Values["class"]; !ok {
			return err // a quota, which no minute brings back
		}
		s.say("%s; continuing in %s", clean(p.Message), short(p.RetryAfter))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(p.RetryAfter):
		}
	}
}

// triggered shows a new run, or watches it to its end.
func (s *session) triggered(ctx context.Context, answer *servov1.TriggerRunResponse, wait bool) error {
	r := answer.GetRun()
	if wait {
		if s.Form.forPeople() {
			s.say("run %s%s", r.GetId(), repeatedText(answer))
		}
		return s.watch(ctx, r.GetTenant(), r.GetId(), s.Form.forPeople())
	}
	return s.show(answer, func(w io.Writer) {
		if answer.GetAlreadyRunning() {
			fmt.Fprintf(w, "already running: %s of %s\nwatch it: servo runs watch %s%s\n", r.GetId(), pipelineName(r), r.GetId(), s.again())
			return
		}
		fmt.Fprintf(w, "run %s of %s: %s%s\nwatch it: servo runs watch %s%s\n", r.GetId(), pipelineName(r), count(int(r.GetTasks().GetTotal()), "task"),
			repeatedText(answer), r.GetId(), s.again())
	})
}

func repeatedText(answer *servov1.TriggerRunResponse) string {
	if answer.GetRepeatedRequest() {
		return " (made by an earlier request with the same key)"
	}
	if answer.GetAlreadyRunning() {
		return " (already running: it holds the lock)"
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
