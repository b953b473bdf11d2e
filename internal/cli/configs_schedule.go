package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

func newConfigsReschedule() *cobra.Command {
	var (
		to   string
		slot time.Time
	)
	return newShow(ofConfig(spec{
		use: "reschedule CONFIG --to TIME", short: "Move the next slot of a config (later ones are kept)", version: "config", reason: true,
		example: "  servo configs reschedule acme-aws-cost --to 2026-01-31T06:00:00Z",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&to, "to", "", "new time of the slot, such as 2026-01-31T06:00:00Z")
		},
		check: func(s *session) (err error) {
			if to == "" {
				return usageFault(s.cmd, "--to is missing: give the new time of the slot")
			}
			slot, err = instantFlag("--to", to, time.Time{})
			return err
		},
	}), func(ctx context.Context, s *session) (*servov1.Config, error) {
		return s.client.Configs().RescheduleConfig(ctx, &servov1.RescheduleConfigRequest{
			Tenant: s.Tenant, Workspace: s.Workspace, Config: s.args[0], Slot: timestamppb.New(slot), Version: s.version, Reason: s.reason,
		})
	}, func(w io.Writer, _ *session, c *servov1.Config) {
		fmt.Fprintf(w, "slot of config %s moved; %s\n", configName(c), nextText(c))
	})
}

func newConfigsPreview() *cobra.Command {
	var (
		after string
		req   servov1.PreviewConfigRequest
	)
	return newShow(ofConfig(spec{
		use: "preview CONFIG", short: "Show the next slots of a config", example: "  servo configs preview acme-aws-cost --count 5",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&after, "after", "", "time before the first slot, such as 2026-01-31T06:00:00Z (default now)")
			cmd.Flags().Int32Var(&req.Count, "count", 10, "number of slots, 1 to 1000")
		},
		check: func(*session) error {
			if req.Count < 1 || req.Count > 1000 {
				return fault.New(fault.InvalidArgument, "must be 1 to 1000", fault.Field("--count"), fault.Remedy("write --count 10"))
			}
			if after == "" {
				return nil
			}
			at, err := instantFlag("--after", after, time.Time{})
			req.After = timestamppb.New(at)
			return err
		},
	}), func(ctx context.Context, s *session) (*servov1.PreviewConfigResponse, error) {
		req.Tenant, req.Workspace, req.Config = s.Tenant, s.Workspace, s.args[0]
		return s.client.Configs().PreviewConfig(ctx, &req)
	}, func(w io.Writer, s *session, answer *servov1.PreviewConfigResponse) {
		if len(answer.GetSlots()) == 0 {
			fmt.Fprintln(w, "no next slots: the config runs on external events, or when triggered")
			return
		}
		heads := []string{"SLOT", "LOCAL", "DUE", "NOTE"}
		templated := answer.GetSlots()[0].GetParameters() != nil
		if templated {
			heads = append(heads, "INTERVAL START", "PARAMETERS")
		}
		divided := slices.ContainsFunc(answer.GetSlots(), func(s *servov1.PreviewedSlot) bool { return len(s.GetPartitions()) > 0 || s.GetNoPartition() })
		if divided {
			heads = append(heads, "PARTITIONS")
		}
		columns(heads, func(_ view, slot *servov1.PreviewedSlot) []string {
			row := []string{instant(slot.GetSlot()), slot.GetLocal(), instant(slot.GetDueAt()), orDash(slot.GetNote())}
			if templated {
				row = append(row, instant(slot.GetIntervalStart()), compact(slot.GetParameters()))
			}
			switch {
			case slot.GetNoPartition():
				row = append(row, "none: skipped")
			case divided:
				row = append(row, orDash(strings.Join(slot.GetPartitions(), ", ")))
			}
			return row
		})(w, s.view(), answer.GetSlots())
	})
}

func newConfigsAudit() *cobra.Command {
	return newList(ofConfig(spec{
		use: "audit CONFIG", short: "List the changes of a config, newest first", limit: "entries", example: "  servo configs audit acme-aws-cost",
		long: "List the changes of a config with actor and reason, newest first. A deleted config is found by its id.",
	}), "no changes", func(ctx context.Context, s *session) ([]*servov1.ConfigAudit, error) {
		return listed(s, client.AllConfigAudit(ctx, s.client, &servov1.ListConfigAuditRequest{
			Tenant: s.Tenant, Workspace: s.Workspace, Config: s.args[0], PageSize: pageSize(s.limit),
		}))
	}, auditText)
}

func auditText(w io.Writer, _ view, entries []*servov1.ConfigAudit) {
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
