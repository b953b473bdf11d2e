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

// newDispatch turns dispatch off and on.
func newDispatch() *cobra.Command {
	return group("dispatch", "Stop giving tasks to workers, and go on", newDispatchGet(), newDispatchPause(), newDispatchResume())
}

func newDispatchPause() *cobra.Command {
	var (
		r      remote
		reason string
	)
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Stop giving tasks to workers, of all tenants and pools",
		Long: `Stop giving tasks to workers, of all tenants and pools. When it answers, nothing new is
given to anybody; what runs goes on, and runs can still be triggered: their tasks wait.`,
		Example: `  servo admin dispatch pause --reason "database upgrade"`,
		Args:    exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			answer, err := s.client.Admin().PauseDispatch(ctx, &servov1.PauseDispatchRequest{Reason: reason})
			if err != nil {
				return err
			}
			return s.show(answer, func(w io.Writer) { dispatchText(w, answer, time.Now()) })
		}),
	}
	addReason(cmd, &reason)
	addRemote(cmd, &r)
	return cmd
}

func newDispatchResume() *cobra.Command {
	var (
		r      remote
		reason string
	)
	cmd := &cobra.Command{
		Use:     "resume",
		Short:   "Let workers have tasks again",
		Example: `  servo admin dispatch resume`,
		Args:    exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			answer, err := s.client.Admin().ResumeDispatch(ctx, &servov1.ResumeDispatchRequest{Reason: reason})
			if err != nil {
				return err
			}
			return s.show(answer, func(w io.Writer) { dispatchText(w, answer, time.Now()) })
		}),
	}
	addReason(cmd, &reason)
	addRemote(cmd, &r)
	return cmd
}

func newDispatchGet() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show whether workers are given tasks, and what they hold",
		Args:  exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			answer, err := s.client.Admin().GetDispatch(ctx, &servov1.GetDispatchRequest{})
			if err != nil {
				return err
			}
			return s.show(answer, func(w io.Writer) {
				dispatchText(w, answer, time.Now())
				heldTable(w, answer, time.Now())
			})
		}),
	}
	addRemote(cmd, &r)
	return cmd
}

func addReason(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "reason", "", "why, for the people who read about it")
}

func dispatchText(w io.Writer, answer *servov1.DispatchStatus, now time.Time) {
	fmt.Fprintf(w, "dispatch %s; workers hold %s\n", dispatchState(answer.GetDispatch(), now), heldText(answer))
	if answer.GetDispatch().GetPaused() {
		fmt.Fprintln(w, "go on: servo admin dispatch resume")
	}
}

// dispatchState is "is on", or since when and why it is not.
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

func heldText(answer *servov1.DispatchStatus) string {
	if answer.GetHeld() == 0 {
		return "nothing"
	}
	text := count(int(answer.GetHeld()), "task")
	if answer.GetAtLeast() {
		return "at least " + text
	}
	return text
}

func heldTable(w io.Writer, answer *servov1.DispatchStatus, now time.Time) {
	if len(answer.GetOldest()) == 0 {
		return
	}
	var t table
	t.add("TENANT", "RUN", "ASSET", "POOL", "WORKER", "SINCE", "REMARK")
	for _, h := range answer.GetOldest() {
		remark := ""
		if h.GetCancelRequested() {
			remark = "asked to stop"
		}
		t.add(clean(h.GetTenant()), h.GetRun(), clean(h.GetAsset()), clean(h.GetPool()), clean(h.GetWorker()), age(now, h.GetSince()), orDash(remark))
	}
	fmt.Fprintln(w)
	t.print(w)
	if more := answer.GetHeld() - int64(len(answer.GetOldest())); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}

// drainEvery is how often a drain looks what is left.
const drainEvery = 500 * time.Millisecond

func newDrain() *cobra.Command {
	var (
		r       remote
		reason  string
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Pause dispatch and wait until nothing runs any more",
		Long: `Pause dispatch and wait until workers hold no task any more: then servers, workers and the
database can be stopped without ending anything halfway.

Exits with 1 if tasks still run when the time is over, and says which. Dispatch stays paused in
both cases: servo admin dispatch resume lets it go on.`,
		Example: `  servo admin drain --timeout 10m --reason "database upgrade"`,
		Args:    exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			if timeout < 0 {
				return fault.New(fault.InvalidArgument, "is negative", fault.Field("--timeout"), fault.Remedy("write 5m, or 0 to look once"))
			}
			answer, err := s.drain(ctx, reason, timeout)
			if err != nil {
				return err
			}
			if answer.GetHeld() == 0 {
				return s.show(answer, func(w io.Writer) {
					fmt.Fprintln(w, "drained: dispatch is paused and nothing runs\ngo on: servo admin dispatch resume"+s.again())
				})
			}
			if err := s.show(answer, func(w io.Writer) { heldTable(w, answer, time.Now()) }); err != nil {
				return err
			}
			return fault.New(fault.Conflict, heldText(answer)+" still held after "+timeout.String(), fault.Field("--timeout"),
				fault.Remedy("wait longer, or cancel their runs; dispatch stays paused"))
		}),
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait at most")
	addReason(cmd, &reason)
	addRemote(cmd, &r)
	return cmd
}

// drain pauses dispatch and waits until nothing is held or the time is over. It says how many
// are left whenever that changes.
func (s *session) drain(ctx context.Context, reason string, timeout time.Duration) (*servov1.DispatchStatus, error) {
	answer, err := s.client.Admin().PauseDispatch(ctx, &servov1.PauseDispatchRequest{Reason: reason})
	if err != nil {
		return nil, err
	}
	over := time.NewTimer(timeout)
	defer over.Stop()
	look := time.NewTicker(drainEvery)
	defer look.Stop()
	for said := int64(0); answer.GetHeld() > 0; {
		if s.Form.forPeople() && answer.GetHeld() != said {
			said = answer.GetHeld()
			s.say("%s left", heldText(answer))
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
