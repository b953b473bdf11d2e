package cli

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newAudit is the group of commands about the audit log.
func newAudit() *cobra.Command {
	return group("audit", "List changes and refused changes", newAuditList())
}

func newAuditList() *cobra.Command {
	var (
		since, actor string
		from         *timestamppb.Timestamp
	)
	return newList(spec{
		short: "List calls that changed something, newest first", limit: "calls", platform: "calls about the installation",
		long: `List the calls that changed something or were refused, newest first: caller, address, method,
subject and result. Reports of workers are not included; the events of runs have them. With -o json
each call has its request, without secrets.`,
		example: `  servo audit list --since 24h
  servo audit list --actor key/ci --tenant acme`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&since, "since", "", "filter by time: a duration such as 24h, or 2026-01-31T12:00:00Z")
			cmd.Flags().StringVar(&actor, "actor", "", "filter by caller, such as key/ci")
		},
		check: func(*session) (err error) {
			from, err = sinceTime(since, time.Now())
			return err
		},
	}, "no changes recorded", func(ctx context.Context, s *session) ([]*servov1.AuditEntry, error) {
		req := &servov1.ListAuditRequest{Tenant: s.Tenant, Actor: actor, Since: from, PageSize: pageSize(s.limit)}
		return listed(s, client.AllAudit(ctx, s.client, req))
	}, columns([]string{"AT", "ACTOR", "ADDRESS", "CALL", "SUBJECT", "RESULT"}, func(_ view, e *servov1.AuditEntry) []string {
		result := cmp.Or(e.GetCode(), "done")
		if !e.GetAllowed() {
			result = "denied: " + result
		}
		return []string{e.GetAt().AsTime().UTC().Format(time.RFC3339), clean(e.GetActor()), orDash(e.GetAddress()), clean(e.GetMethod()), orDash(clip(e.GetSubject(), 80)), result}
	}))
}
