package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// newDispatch is the group of commands that pause and resume dispatch.
func newDispatch() *cobra.Command {
	return group("dispatch", "Pause and resume the dispatch of tasks",
		newShow(spec{use: "get", short: "Show whether dispatch is paused, and leased tasks"},
			func(ctx context.Context, s *session) (*servov1.DispatchStatus, error) {
				return s.client.Admin().GetDispatch(ctx, &servov1.GetDispatchRequest{})
			},
			func(w io.Writer, s *session, answer *servov1.DispatchStatus) {
				dispatchText(w, s, answer)
				leasedTable(w, answer, time.Now())
			}),
		newShow(spec{
			use: "pause", short: "Pause dispatch for all tenants and pools", reason: true,
			long: `Pause dispatch for all tenants and pools. Once the command returns, no task is leased. Leased
tasks continue, and runs can still be triggered: their tasks wait.`,
			example: `  servo admin dispatch pause --reason "database upgrade"`,
		}, func(ctx context.Context, s *session) (*servov1.DispatchStatus, error) {
			return s.client.Admin().PauseDispatch(ctx, &servov1.PauseDispatchRequest{Reason: s.reason})
		}, dispatchText),
		newShow(spec{use: "resume", short: "Resume dispatch", example: `  servo admin dispatch resume`, reason: true},
			func(ctx context.Context, s *session) (*servov1.DispatchStatus, error) {
				return s.client.Admin().ResumeDispatch(ctx, &servov1.ResumeDispatchRequest{Reason: s.reason})
			}, dispatchText))
}

func dispatchText(w io.Writer, _ *session, answer *servov1.DispatchStatus) {
	fmt.Fprintf(w, "dispatch %s; leased: %s\n", dispatchState(answer.GetDispatch(), time.Now()), leasedText(answer))
	if answer.GetDispatch().GetPaused() {
		fmt.Fprintln(w, "resume: servo admin dispatch resume")
	}
}

// dispatchState is "is on", or since when, by whom and why it is paused.
func dispatchState(d *servov1.Dispatch, now time.Time) string {
	if !d.GetPaused() {
		return "is on"
	}
	text := "is paused since " + when(now, d.GetChangedAt()) + " by " + clip(d.GetChangedBy(), 40)
	if d.GetReason() != "" {
		text += ": " + clip(d.GetReason(), 200)
	}
	return text
}

func leasedText(answer *servov1.DispatchStatus) string {
	text := count(int(answer.GetHeld()), "task")
	if answer.GetAtLeast() {
		return "at least " + text
	}
	return text
}

func leasedTable(w io.Writer, answer *servov1.DispatchStatus, now time.Time) {
	if len(answer.GetOldest()) == 0 {
		return
	}
	fmt.Fprintln(w)
	columns([]string{"TENANT", "RUN", "ASSET", "POOL", "WORKER", "SINCE", "REMARK"}, func(v view, h *servov1.HeldTask) []string {
		remark := ""
		if h.GetCancelRequested() {
			remark = "asked to stop"
		}
		return []string{clean(h.GetTenant()), h.GetRun(), clean(h.GetAsset()), clean(h.GetPool()), clean(h.GetWorker()), age(v.now, h.GetSince()), orDash(remark)}
	})(w, view{now: now}, answer.GetOldest())
	if more := answer.GetHeld() - int64(len(answer.GetOldest())); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}

// drainEvery is the interval at which a drain counts leased tasks.
const drainEvery = 500 * time.Millisecond

func newDrain() *cobra.Command {
	var timeout time.Duration
	return newCall(spec{
		use: "drain", short: "Pause dispatch and wait until no task is leased", reason: true,
		long: `Pause dispatch and wait until no task is leased: then servers, workers and the database can
be stopped without interrupting a task.

Exits with 1 and lists the tasks if some are still leased after --timeout. Dispatch stays paused
in both cases: servo admin dispatch resume resumes it.`,
		example: `  servo admin drain --timeout 10m --reason "database upgrade"`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "maximum time to wait")
		},
	}, func(ctx context.Context, s *session) error {
		if timeout < 0 {
			return fault.New(fault.InvalidArgument, "is negative", fault.Field("--timeout"), fault.Remedy("write 5m, or 0 to check once"))
		}
		answer, err := s.drain(ctx, timeout)
		if err != nil {
			return err
		}
		if answer.GetHeld() == 0 {
			return s.show(answer, func(w io.Writer) {
				fmt.Fprintln(w, "drained: dispatch is paused and no task is leased\nresume: servo admin dispatch resume"+s.again())
			})
		}
		if err := s.show(answer, func(w io.Writer) { leasedTable(w, answer, time.Now()) }); err != nil {
			return err
		}
		return fault.New(fault.Conflict, leasedText(answer)+" still leased after "+timeout.String(), fault.Field("--timeout"),
			fault.Remedy("wait longer, or cancel their runs; dispatch stays paused"))
	})
}

// drain pauses dispatch and waits until no task is leased or the time is over. It reports how
// many are left whenever that changes.
func (s *session) drain(ctx context.Context, timeout time.Duration) (*servov1.DispatchStatus, error) {
	answer, err := s.client.Admin().PauseDispatch(ctx, &servov1.PauseDispatchRequest{Reason: s.reason})
	if err != nil {
		return nil, err
	}
	over := time.NewTimer(timeout)
	defer over.Stop()
	look := time.NewTicker(drainEvery)
	defer look.Stop()
	for shown := int64(0); answer.GetHeld() > 0; {
		if s.Form.forPeople() && answer.GetHeld() != shown {
			shown = answer.GetHeld()
			s.report("%s left", leasedText(answer))
		}
		select {
		case <-look.C:
		case <-over.C:
			return answer, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if answer, err = s.client.Admin().GetDispatch(ctx, &servov1.GetDispatchRequest{}); err != nil {
			return nil, err
		}
	}
	return answer, nil
}
