package cli

import (
	"cmp"
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

// triggerFlags are the flags of the commands that create a run.
type triggerFlags struct {
	key, note   string
	queue, wait bool
}

func (f *triggerFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.key, "key", "", "idempotency key: a repeated call returns the same run")
	cmd.Flags().BoolVar(&f.queue, "queue", false, "create a run that waits for the lock or for quotas")
	cmd.Flags().StringVar(&f.note, "note", "", "note for people, recorded with the run")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "watch until the run has ended; exit with 3 if it did not succeed")
}

// context adds the idempotency key to calls.
func (f *triggerFlags) context(ctx context.Context) context.Context {
	if f.key == "" {
		return ctx
	}
	return client.WithIdempotencyKey(ctx, f.key)
}

// addPartitions gives a command --partition.
func addPartitions(cmd *cobra.Command, to *[]string) {
	cmd.Flags().StringArrayVar(to, "partition", nil, "partitions, such as date=2026-01-01..2026-01-31, repeatable")
}

// addWaitLock gives a command --wait-lock.
func addWaitLock(cmd *cobra.Command, to *time.Duration) {
	cmd.Flags().DurationVar(to, "wait-lock", 0, "maximum time to wait for the lock, at most 60s")
}

// waitOf is a duration of a request; 0 is not set.
func waitOf(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func newRunsTrigger() *cobra.Command {
	var (
		f         triggerFlags
		values    parameters
		selection []string
		divided   []string
		priority  int32
		waitLock  time.Duration
		file      string
	)
	cmd := newCall(spec{
		use: "trigger [PIPELINE]", short: "Run a pipeline, or a selection of assets",
		long: `Run a pipeline, or a selection of assets, of the workspace's active deployment.

--param day=2026-01-31 is read as the type that the pipeline declares: a string as it is,
an integer, number or boolean as such, an object or array as JSON. --params takes a JSON
object, or @FILE; --param overrides it.

Runs of a pipeline exclude each other unless its manifest permits more. While a run with the
same parameters holds the lock, that run is the answer. A run with other parameters is refused
with the id of the holder, at once or after --wait-lock. With --queue it is created and waits
for the lock, first come, first served; so does a run that the tenant's quotas would refuse.

--partition names the partitions of the assets: date=2026-01-01, a range
date=2026-01-01..2026-03-31, all completed ones date=*, or several dimensions
date=2026-01-01,region=eu. It is repeatable. A dimension of time must be named; of another
dimension, all values are meant if it is not. With one dimension its name may be left out.

With --key a repeated command returns the same run. --wait watches until the run has
ended, and exits with 3 if it did not succeed.

--file creates many runs, a thousand in a call. Each line of the file is a JSON object with the
fields pipeline, select, partitions, parameters, priority, note, wait_for_quota, queue and
idempotency_key. A refused line does not stop the others. --key, --note and --queue apply to
lines without their own; the key of a line is then KEY/NUMBER, counted from 0. A repeated
command with the same keys creates no run twice.`,
		example: `  servo runs trigger daily --param day=2026-01-31 --wait
  servo runs trigger daily --params @day.json --key daily-2026-01-31
  servo runs trigger daily --wait-lock 30s --queue
  servo runs trigger --select +gold/revenue
  servo runs trigger daily --partition date=2026-01-01..2026-01-31,region=eu
  servo runs trigger --file runs.jsonl --key import-2026-01-31`,
		tenant: true, names: []nameSource{(*session).pipelineNames},
		flags: func(cmd *cobra.Command) {
			f.add(cmd)
			values.add(cmd)
			addSelect(cmd, &selection)
			addPartitions(cmd, &divided)
			addWaitLock(cmd, &waitLock)
			cmd.Flags().StringVar(&file, "file", "", "file of runs, one JSON object per line; - for standard input")
			cmd.Flags().Int32Var(&priority, "priority", 0, "priority, 1 (last) to 10 (first) (default: that of the pipeline)")
		},
		check: func(s *session) error {
			return checkTrigger(s, file, selection)
		},
	}, func(ctx context.Context, s *session) (err error) {
		if file != "" {
			return s.triggerFile(ctx, f, file)
		}
		req := &servov1.TriggerRunRequest{
			Tenant: s.Tenant, Workspace: s.Workspace, Pipeline: cmp.Or(s.args...), Select: selection, Priority: priority, Note: f.note,
			WaitForLock: waitOf(waitLock), WaitForQuota: f.queue, Queue: f.queue, Partitions: divided,
		}
		if req.Parameters, err = values.ofServer(ctx, s, req); err != nil {
			return err
		}
		return s.trigger(ctx, f, func(ctx context.Context) (*servov1.TriggerRunResponse, error) {
			return s.client.Runs().TriggerRun(ctx, req)
		})
	})
	cmd.Args = atMost(1)
	return cmd
}

// checkTrigger reports flags that do not fit together.
func checkTrigger(s *session, file string, selection []string) error {
	if file == "" && len(s.args) == 0 && len(selection) == 0 {
		return usageFault(s.cmd, "nothing to run: name a PIPELINE or --select assets")
	}
	if file == "" {
		return nil
	}
	for _, other := range []string{"select", "param", "params", "partition", "wait-lock", "priority", "wait"} {
		if s.cmd.Flags().Changed(other) {
			return usageFault(s.cmd, "--"+other+" cannot be used with --file: set it in the lines of the file")
		}
	}
	if len(s.args) > 0 {
		return usageFault(s.cmd, "PIPELINE cannot be used with --file: set it in the lines of the file")
	}
	return nil
}

func newRunsRetry() *cobra.Command {
	var (
		f          triggerFlags
		all, again bool
		from       string
	)
	return newCall(ofRun(spec{
		use: "retry RUN", short: "Retry the failed tasks of a run that has ended",
		long: `Retry the tasks of an ended run that did not succeed, as a new run of the deployment that is
active now: correct the code, deploy, retry.

A run that was retried already is refused, and its newest retry is named: tasks that succeeded
there would run once more. Retry that one, or pass --again. --all and --from select what to
repeat, and are not refused.

--from runs one task and everything downstream of it again, whatever its outcome; the results of
all other tasks are reused.`,
		example: `  servo runs retry latest --wait
  servo runs retry latest --from gold/revenue
  servo runs retry 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 --all`,
		flags: func(cmd *cobra.Command) {
			f.add(cmd)
			cmd.Flags().BoolVar(&all, "all", false, "retry all tasks")
			cmd.Flags().StringVar(&from, "from", "", "asset or task to retry, with everything downstream")
			completeFlag(cmd, "from", (*session).assetNames)
			cmd.Flags().BoolVar(&again, "again", false, "retry a run that was retried already")
		},
	}), func(ctx context.Context, s *session) error {
		run, err := s.findRun(ctx, s.args[0])
		if err != nil {
			return err
		}
		req := &servov1.RetryRunRequest{Tenant: s.Tenant, Run: run, Mode: servov1.RetryRunRequest_FAILED, Note: f.note, WaitForQuota: f.queue, Queue: f.queue}
		switch {
		case all && from != "":
			return usageFault(s.cmd, "--all and --from exclude each other")
		case all:
			req.Mode = servov1.RetryRunRequest_ALL
		case from != "":
			req.Mode, req.From = servov1.RetryRunRequest_FROM, from
		}
		if !again && f.key == "" && req.GetMode() == servov1.RetryRunRequest_FAILED { // a key makes a repeat harmless
			if err := s.notRetried(ctx, run); err != nil {
				return err
			}
		}
		answer, err := s.client.Runs().RetryRun(f.context(ctx), req)
		if err != nil {
			return err
		}
		return s.triggered(ctx, answer, f.wait)
	})
}

// notRetried refuses a run that already has a retry.
func (s *session) notRetried(ctx context.Context, run string) error {
	answer, err := s.client.Runs().ListRuns(ctx, &servov1.ListRunsRequest{Tenant: s.Tenant, ParentRun: run, PageSize: 1})
	if err != nil || len(answer.GetRuns()) == 0 {
		return err
	}
	newer := answer.GetRuns()[0]
	return fault.New(fault.Conflict, fmt.Sprintf("run %s was retried already: run %s is %s", run, newer.GetId(), newer.GetState()), fault.Field("RUN"),
		fault.Remedy("see or retry run "+newer.GetId()+"; --again retries this one once more"))
}

// maxRateWait is the longest wait for a rate limit, which counts calls per minute.
const maxRateWait = 90 * time.Second

// trigger creates a run and shows or watches it. Where the tenant's rate limit refuses the call it
// waits and repeats it: a script that triggers a thousand runs takes longer and does not fail.
func (s *session) trigger(ctx context.Context, f triggerFlags, call func(ctx context.Context) (*servov1.TriggerRunResponse, error)) error {
	var answer *servov1.TriggerRunResponse
	err := s.withinRate(ctx, func() (err error) {
		answer, err = call(f.context(ctx))
		return err
	})
	if err != nil {
		return err
	}
	return s.triggered(ctx, answer, f.wait)
}

// withinRate makes a call and repeats it while the rate limit refuses it.
func (s *session) withinRate(ctx context.Context, call func() error) error {
	for {
		err := call()
		p, ok := errors.AsType[*client.Problem](err)
		if !ok || p.Code != client.LimitExceeded || p.RetryAfter <= 0 || p.RetryAfter > maxRateWait {
			return err
		}
		if _, ok := p.Values["class"]; !ok {
			return err // a quota, which waiting does not free
		}
		s.report("%s; continuing in %s", clean(p.Message), short(p.RetryAfter))
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
			s.report("run %s%s", r.GetId(), repeatedText(answer))
		}
		return s.watch(ctx, r.GetId(), s.Form.forPeople())
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
		return " (created by an earlier call with the same key)"
	}
	if answer.GetAlreadyRunning() {
		return " (already running: it holds the lock)"
	}
	return ""
}

// atMost limits the number of positional arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return usageFault(cmd, fmt.Sprintf("takes at most %s, not %d", count(n, "argument"), len(args)))
	}
}
