package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

func newConfigsReschedule() *cobra.Command {
	var (
		r       remote
		to      string
		reason  string
		version int32
	)
	cmd := aboutConfig(&cobra.Command{
		Use:     "reschedule CONFIG --to TIME",
		Short:   "Put the next slot of a config elsewhere; those after it stay",
		Example: "  servo configs reschedule acme-aws-cost --to 2026-01-31T06:00:00Z",
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			if to == "" {
				return usageFault(s.cmd, "--to is needed: when the next slot is to be")
			}
			slot, err := instantFlag("--to", to, time.Time{})
			if err != nil {
				return err
			}
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			c, err := s.client.Configs().RescheduleConfig(ctx, &servov1.RescheduleConfigRequest{
				Tenant: tenant, Workspace: s.Workspace, Config: args[0], Slot: timestamppb.New(slot), Version: version, Reason: reason,
			})
			if err != nil {
				return err
			}
			return s.show(c, func(w io.Writer) {
				fmt.Fprintf(w, "the slot of config %s is moved; %s\n", configName(c), nextText(c))
			})
		}),
	}, &r)
	cmd.Flags().StringVar(&to, "to", "", "when, as 2026-01-31T06:00:00Z")
	cmd.Flags().Int32Var(&version, "version", 0, "only if the config is still at this version (0: whatever is there)")
	addReason(cmd, &reason)
	return cmd
}

func newConfigsPreview() *cobra.Command {
	var (
		r     remote
		after string
		count int32
	)
	cmd := aboutConfig(&cobra.Command{
		Use:     "preview CONFIG",
		Short:   "Show which slots of a config come next",
		Example: "  servo configs preview acme-aws-cost --count 5",
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			req := &servov1.PreviewConfigRequest{Workspace: s.Workspace, Config: args[0], Count: count}
			if count < 1 || count > 1000 {
				return fault.New(fault.InvalidArgument, "must be 1 to 1000", fault.Field("--count"), fault.Remedy("write --count 10"))
			}
			if after != "" {
				at, err := instantFlag("--after", after, time.Time{})
				if err != nil {
					return err
				}
				req.After = timestamppb.New(at)
			}
			var err error
			if req.Tenant, err = s.requireTenant(ctx); err != nil {
				return err
			}
			answer, err := s.client.Configs().PreviewConfig(ctx, req)
			if err != nil {
				return err
			}
			return s.show(answer, func(w io.Writer) {
				if len(answer.GetSlots()) == 0 {
					fmt.Fprintln(w, "no slots are to come: it runs on events, or when triggered")
					return
				}
				var t table
				templated := answer.GetSlots()[0].GetParameters() != nil
				head := []string{"SLOT", "LOCAL", "DUE", "NOTE"}
				if templated {
					head = append(head, "INTERVAL START", "PARAMETERS")
				}
				t.add(head...)
				for _, slot := range answer.GetSlots() {
					row := []string{instant(slot.GetSlot()), slot.GetLocal(), instant(slot.GetDueAt()), orDash(slot.GetNote())}
					if templated {
						row = append(row, instant(slot.GetIntervalStart()), compact(slot.GetParameters()))
					}
					t.add(row...)
				}
				t.print(w)
			})
		}),
	}, &r)
	cmd.Flags().StringVar(&after, "after", "", "slots after this instant, as 2026-01-31T06:00:00Z (default: those that come next)")
	cmd.Flags().Int32Var(&count, "count", 10, "how many, at most 1000")
	return cmd
}

func newConfigsAudit() *cobra.Command {
	var (
		r     remote
		limit int
	)
	cmd := aboutConfig(&cobra.Command{
		Use:     "audit CONFIG",
		Short:   "Show what was done to a config, by whom and why, the newest first",
		Long:    "Show what was done to a config, by whom and why, the newest first. A deleted config is found by its id.",
		Example: "  servo configs audit acme-aws-cost",
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			entries, err := listed(s, client.AllConfigAudit(ctx, s.client, &servov1.ListConfigAuditRequest{
				Tenant: tenant, Workspace: s.Workspace, Config: args[0], PageSize: pageSize(limit),
			}), limit)
			if err != nil {
				return err
			}
			return showAll(s, entries, "nothing was done", func(w io.Writer) { auditText(w, entries) })
		}),
	}, &r)
	addLimit(cmd, &limit, "entries")
	return cmd
}

func auditText(w io.Writer, entries []*servov1.ConfigAudit) {
	for _, e := range entries {
		line := fmt.Sprintf("%s  v%d %s by %s", instant(e.GetAt()), e.GetVersion(), clean(e.GetAction()), clip(e.GetActor(), 40))
		if e.GetReason() != "" {
			line += ": " + clip(e.GetReason(), 200)
		}
		fmt.Fprintln(w, line)
		if e.GetBefore() == nil || e.GetAfter() == nil {
			continue
		}
		for _, change := range fieldChanges(e.GetBefore(), e.GetAfter()) {
			fmt.Fprintln(w, "    "+change)
		}
	}
}
