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
)

// newSlots reads what became of slots.
func newSlots() *cobra.Command {
	return group("slots", "Read what became of the slots of configs", newSlotsList(), newSlotsOutcomes(), newSlotsHoles())
}

func newSlotsList() *cobra.Command {
	var (
		r        remote
		from, to string
		limit    int
	)
	cmd := aboutConfig(&cobra.Command{
		Use:   "list CONFIG",
		Short: "List what became of the slots of a config, the newest first",
		Long: `List what became of the slots of a config, the newest first. A slot that fired has a line with its
run; slots that did not, one after the other for the same cause, have one line together.`,
		Example: `  servo slots list acme-aws-cost --from 24h
  servo slots list acme-aws-cost --from 2026-01-31T00:00:00Z --to 2026-02-01T00:00:00Z`,
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			req := &servov1.ListSlotsRequest{Workspace: s.Workspace, Config: args[0], PageSize: pageSize(limit)}
			var err error
			if req.From, err = timeFlag("--from", from); err != nil {
				return err
			}
			if req.To, err = timeFlag("--to", to); err != nil {
				return err
			}
			if req.Tenant, err = s.requireTenant(ctx); err != nil {
				return err
			}
			slots, err := listed(s, client.AllSlots(ctx, s.client, req), limit)
			if err != nil {
				return err
			}
			return showAll(s, slots, "no slot was decided yet", func(w io.Writer) { slotsTable(w, s.paint, slots) })
		}),
	}, &r)
	cmd.Flags().StringVar(&from, "from", "", "slots at or after: 24h ago, or 2026-01-31T00:00:00Z")
	cmd.Flags().StringVar(&to, "to", "", "slots before, likewise")
	addLimit(cmd, &limit, "lines")
	return cmd
}

func newSlotsOutcomes() *cobra.Command {
	var (
		r              remote
		from, to, zone string
	)
	cmd := aboutConfig(&cobra.Command{
		Use:   "outcomes CONFIG",
		Short: "Count what became of the slots of a config, day by day",
		Long: `Count what became of the slots of a config, day by day, in the time zone of the config: how many
of their runs have succeeded, failed, go on or wait, how many broke what was promised, how many
slots did not fire and why, and how many are to come. A + says that a line of servo slots list
over several days has more.`,
		Example: `  servo slots outcomes acme-aws-cost
  servo slots outcomes acme-aws-cost --from 2026-01-01 --to 2026-01-31 --timezone UTC`,
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			answer, err := s.client.Configs().GetOutcomes(ctx, &servov1.GetOutcomesRequest{
				Tenant: tenant, Workspace: s.Workspace, Config: args[0], From: from, To: to, Timezone: zone,
			})
			if err != nil {
				return err
			}
			return s.show(answer, func(w io.Writer) { outcomesText(w, answer) })
		}),
	}, &r)
	cmd.Flags().StringVar(&from, "from", "", "first day, such as 2026-01-31; 29 days before the last one if not said")
	cmd.Flags().StringVar(&to, "to", "", "last day; today if not said")
	cmd.Flags().StringVar(&zone, "timezone", "", "whose days, such as Europe/Berlin; those of the config if not said")
	return cmd
}

func outcomesText(w io.Writer, answer *servov1.ConfigOutcomes) {
	if len(answer.GetDays()) == 0 {
		fmt.Fprintf(w, "no slots from %s to %s\n", answer.GetFrom(), answer.GetTo())
		return
	}
	var t table
	t.add("DAY", "SUCCEEDED", "FAILED", "CANCELLED", "RUNNING", "WAITING", "LATE", "NEXT", "SKIPPED")
	for _, d := range answer.GetDays() {
		var skipped []string
		for _, s := range d.GetSkipped() {
			text := fmt.Sprint(s.GetSlots())
			if s.GetMore() {
				text += "+"
			}
			skipped = append(skipped, text+" "+strings.TrimPrefix(s.GetOutcome().String(), "SKIPPED_"))
		}
		if n := d.GetUnknown(); n > 0 {
			skipped = append(skipped, fmt.Sprintf("(%d fired whose runs are not kept)", n))
		}
		t.add(d.GetDay(), fmt.Sprint(d.GetSucceeded()), fmt.Sprint(d.GetFailed()+d.GetTimedOut()), fmt.Sprint(d.GetCancelled()), fmt.Sprint(d.GetRunning()),
			fmt.Sprint(d.GetWaiting()), fmt.Sprint(d.GetSlaMissed()), fmt.Sprint(d.GetNext()), orDash(strings.Join(skipped, ", ")))
	}
	t.print(w)
	if answer.GetCountedFrom() != nil {
		fmt.Fprintf(w, "there are more slots than are counted: days up to the one of %s are not complete\n", instant(answer.GetCountedFrom()))
	}
}

func newSlotsHoles() *cobra.Command {
	var r remote
	return aboutConfig(&cobra.Command{
		Use:   "holes CONFIG",
		Short: "Show that every slot of a config has one outcome, or which do not",
		Long: `Hold the ledger of a config against its history: each slot that it should have had, by the
schedules that it has had, must have exactly one outcome. Exits with 1 if one has none or two.`,
		Example: "  servo slots holes acme-aws-cost",
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			answer, err := s.client.Configs().FindHoles(ctx, &servov1.FindHolesRequest{Tenant: tenant, Workspace: s.Workspace, Config: args[0]})
			if err != nil {
				return err
			}
			if err := s.show(answer, func(w io.Writer) { holesText(w, answer) }); err != nil || len(answer.GetHoles()) == 0 {
				return err
			}
			return withExit(exitFailed, fmt.Errorf("the ledger has %s", count(len(answer.GetHoles()), "hole")))
		}),
	}, &r)
}

func holesText(w io.Writer, answer *servov1.FindHolesResponse) {
	if len(answer.GetHoles()) == 0 {
		fmt.Fprintf(w, "no holes: %d slots fired and %d did not, up to %s\n", answer.GetFired(), answer.GetSkipped(), instant(answer.GetDecidedUntil()))
		return
	}
	var t table
	t.add("PROBLEM", "FROM", "TO", "SLOTS")
	for _, h := range answer.GetHoles() {
		t.add(h.GetProblem(), instant(h.GetFrom()), instant(h.GetTo()), fmt.Sprint(h.GetSlots()))
	}
	t.print(w)
}

// timeFlag is a time, or so long ago.
func timeFlag(flag, given string) (*timestamppb.Timestamp, error) {
	at, err := sinceTime(given, time.Now())
	if err != nil {
		_, err = instantFlag(flag, given, time.Time{})
	}
	return at, err
}

func slotsTable(w io.Writer, p palette, slots []*servov1.Slots) {
	var t table
	t.add("SLOT", "UNTIL", "SLOTS", "OUTCOME", "RUN", "REASON")
	for _, s := range slots {
		until := "-"
		if s.GetCount() > 1 {
			until = instant(s.GetTo())
		}
		t.add(instant(s.GetFrom()), until, fmt.Sprint(s.GetCount()), p.state(s.GetOutcome().String()), orDash(s.GetRun()), orDash(clip(s.GetReason(), 100)))
	}
	t.print(w)
}
