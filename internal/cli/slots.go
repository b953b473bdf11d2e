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

// newSlots is the group of commands about slots.
func newSlots() *cobra.Command {
	return group("slots", "Show the outcomes of the slots of configs", newSlotsList(), newSlotsOutcomes(), newSlotsHoles())
}

func newSlotsList() *cobra.Command {
	var (
		from, to string
		req      servov1.ListSlotsRequest
	)
	return newList(ofConfig(spec{
		use: "list CONFIG", short: "List the slots of a config, newest first", limit: "lines",
		long: `List the slots of a config, newest first. A slot that fired has a line with its run; consecutive
slots that did not fire for the same reason share one line.`,
		example: `  servo slots list acme-aws-cost --from 24h
  servo slots list acme-aws-cost --from 2026-01-31T00:00:00Z --to 2026-02-01T00:00:00Z`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&from, "from", "", "earliest slot: a duration such as 24h, or 2026-01-31T00:00:00Z")
			cmd.Flags().StringVar(&to, "to", "", "end of the slots: a duration such as 24h, or 2026-01-31T00:00:00Z")
		},
		check: func(*session) (err error) {
			if req.From, err = timeFlag("--from", from); err != nil {
				return err
			}
			req.To, err = timeFlag("--to", to)
			return err
		},
	}), "no slots yet", func(ctx context.Context, s *session) ([]*servov1.Slots, error) {
		req.Tenant, req.Workspace, req.Config, req.PageSize = s.Tenant, s.Workspace, s.args[0], pageSize(s.limit)
		return listed(s, client.AllSlots(ctx, s.client, &req))
	}, columns([]string{"SLOT", "UNTIL", "SLOTS", "OUTCOME", "RUN", "PARTITIONS", "REASON"}, func(v view, s *servov1.Slots) []string {
		until := "-"
		if s.GetCount() > 1 {
			until = instant(s.GetTo())
		}
		return []string{instant(s.GetFrom()), until, fmt.Sprint(s.GetCount()), v.paint.state(s.GetOutcome().String()), orDash(s.GetRun()), orDash(clip(strings.Join(s.GetPartitions(), ", "), 60)), orDash(clip(s.GetReason(), 100))}
	}))
}

func newSlotsOutcomes() *cobra.Command {
	var from, to, zone string
	return newShow(ofConfig(spec{
		use: "outcomes CONFIG", short: "Count the outcomes of a config's slots by day",
		long: `Count the outcomes of a config's slots by day, in the time zone of the config: how many runs have
succeeded, failed, are running or wait, how many breached their SLA, how many slots did not fire
and why, and how many are in the future. A + marks a line of servo slots list that spans several days.`,
		example: `  servo slots outcomes acme-aws-cost
  servo slots outcomes acme-aws-cost --from 2026-01-01 --to 2026-01-31 --timezone UTC`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&from, "from", "", "first day, such as 2026-01-31 (default: 29 days before the last)")
			cmd.Flags().StringVar(&to, "to", "", "last day, such as 2026-01-31 (default: today)")
			cmd.Flags().StringVar(&zone, "timezone", "", "time zone of the days, such as Europe/Berlin (default: that of the config)")
		},
	}), func(ctx context.Context, s *session) (*servov1.ConfigOutcomes, error) {
		return s.client.Configs().GetOutcomes(ctx, &servov1.GetOutcomesRequest{
			Tenant: s.Tenant, Workspace: s.Workspace, Config: s.args[0], From: from, To: to, Timezone: zone,
		})
	}, outcomesText)
}

func outcomesText(w io.Writer, _ *session, answer *servov1.ConfigOutcomes) {
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
			skipped = append(skipped, fmt.Sprintf("(%d fired; their runs were deleted)", n))
		}
		t.add(d.GetDay(), fmt.Sprint(d.GetSucceeded()), fmt.Sprint(d.GetFailed()+d.GetTimedOut()), fmt.Sprint(d.GetCancelled()), fmt.Sprint(d.GetRunning()),
			fmt.Sprint(d.GetWaiting()), fmt.Sprint(d.GetSlaMissed()), fmt.Sprint(d.GetNext()), orDash(strings.Join(skipped, ", ")))
	}
	t.print(w)
	if answer.GetCountedFrom() != nil {
		fmt.Fprintf(w, "too many slots to count: days up to %s are incomplete\n", instant(answer.GetCountedFrom()))
	}
}

func newSlotsHoles() *cobra.Command {
	return newCall(ofConfig(spec{
		use: "holes CONFIG", short: "Check that every slot has exactly one outcome", example: "  servo slots holes acme-aws-cost",
		long: `Compare the recorded slots of a config with its history: each slot of the schedules that it has
had must have exactly one outcome. Exits with 1 if one has none or two.`,
	}), func(ctx context.Context, s *session) error {
		answer, err := s.client.Configs().FindHoles(ctx, &servov1.FindHolesRequest{Tenant: s.Tenant, Workspace: s.Workspace, Config: s.args[0]})
		if err != nil {
			return err
		}
		if err := s.show(answer, func(w io.Writer) { holesText(w, answer) }); err != nil || len(answer.GetHoles()) == 0 {
			return err
		}
		return withExit(exitFailed, fmt.Errorf("found %s", count(len(answer.GetHoles()), "hole")))
	})
}

func holesText(w io.Writer, answer *servov1.FindHolesResponse) {
	if len(answer.GetHoles()) == 0 {
		fmt.Fprintf(w, "no holes: %s fired and %d did not, up to %s\n", count(int(answer.GetFired()), "slot"), answer.GetSkipped(), instant(answer.GetDecidedUntil()))
		return
	}
	var t table
	t.add("PROBLEM", "FROM", "TO", "SLOTS")
	for _, h := range answer.GetHoles() {
		t.add(h.GetProblem(), instant(h.GetFrom()), instant(h.GetTo()), fmt.Sprint(h.GetSlots()))
	}
	t.print(w)
}

// timeFlag reads a time, or a duration before now.
func timeFlag(flag, given string) (*timestamppb.Timestamp, error) {
	at, err := sinceTime(given, time.Now())
	if err != nil {
		_, err = instantFlag(flag, given, time.Time{})
	}
	return at, err
}
