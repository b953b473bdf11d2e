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

// newAudit shows who has asked for what.
func newAudit() *cobra.Command {
	return group("audit", "See who has changed what, and who has tried to", newAuditList())
}

func newAuditList() *cobra.Command {
	var (
		w            whose
		limit        int
		since, actor string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the calls that have changed something or tried to, the newest first",
		Long: `List the calls that have changed something or tried to, the newest first: who, from where, what,
and what came of it. What workers report is not in it; the events of runs tell that. With -o json
each call has its request, without secrets.`,
		Example: `  servo audit list --since 24h
  servo audit list --actor key/ci --tenant acme`,
		Args: exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			req := &servov1.ListAuditRequest{Actor: actor, PageSize: pageSize(limit)}
			if since != "" {
				at, err := sinceFlag(since, time.Now())
				if err != nil {
					return err
				}
				req.Since = timestamppb.New(at)
			}
			var err error
			if req.Tenant, err = w.tenantOf(ctx, s); err != nil {
				return err
			}
			entries, err := listed(s, client.AllAudit(ctx, s.client, req), limit)
			if err != nil {
				return err
			}
			return showAll(s, entries, "nobody has changed anything", func(w io.Writer) { auditTable(w, entries) })
		}),
	}
	cmd.Flags().StringVar(&since, "since", "", "only calls of the last time, such as 24h, or since a time such as 2026-01-31T12:00:00Z")
	cmd.Flags().StringVar(&actor, "actor", "", "only calls of this one, such as key/ci")
	addLimit(cmd, &limit, "calls")
	addWhose(cmd, &w, "calls about the installation itself")
	return cmd
}

// sinceFlag reads a duration before now, or a time.
func sinceFlag(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	return time.Time{}, fault.New(fault.InvalidArgument, fmt.Sprintf("%.100q is neither a duration nor a time", text), fault.Field("--since"),
		fault.Remedy("use 24h, or 2026-01-31T12:00:00Z"))
}

func auditTable(w io.Writer, entries []*servov1.AuditEntry) {
	var t table
	t.add("AT", "ACTOR", "ADDRESS", "CALL", "SUBJECT", "RESULT")
	for _, e := range entries {
		result := firstText(e.GetCode(), "done")
		if !e.GetAllowed() {
			result = "denied: " + result
		}
		t.add(e.GetAt().AsTime().UTC().Format(time.RFC3339), clean(e.GetActor()), orDash(clean(e.GetAddress())), clean(e.GetMethod()), orDash(clip(e.GetSubject(), 80)), result)
	}
	t.print(w)
}
