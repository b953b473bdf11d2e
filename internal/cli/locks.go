package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newLocks is the group of commands about locks.
func newLocks() *cobra.Command {
	return group("locks", "List and release the locks of runs",
		newList(spec{short: "List locks and the runs that hold them", tenant: true, limit: "locks"}, "no run holds a lock",
			func(ctx context.Context, s *session) ([]*servov1.Lock, error) {
				return listed(s, client.AllLocks(ctx, s.client, &servov1.ListLocksRequest{Tenant: s.Tenant, PageSize: pageSize(s.limit)}))
			},
			columns([]string{"KEY", "RUN", "PIPELINE", "LOCKED BY", "AGE", "DUE"}, func(v view, l *servov1.Lock) []string {
				due := "-"
				switch {
				case l.GetPending():
					due = "waits for its start"
				case l.GetDueAt() != nil:
					due = "in " + short(l.GetDueAt().AsTime().Sub(v.now))
				}
				return []string{clean(l.GetKey()), l.GetRun(), clean(l.GetPipeline()), orDash(clip(l.GetLockedBy(), 40)), short(v.now.Sub(l.GetLockedAt().AsTime())), due}
			})),
		newShow(spec{
			use: "release KEY", short: "Cancel the run that holds a lock", tenant: true, reason: true,
			long: `Cancel the run that holds a lock. The lock is free when that run has ended: a live run never
loses its lock, so that nothing runs twice. The caller and the reason are recorded with the
cancellation of the run.`,
			example: `  servo locks release default/daily --reason "stuck since the outage"`,
		}, func(ctx context.Context, s *session) (*servov1.ReleaseLockResponse, error) {
			reason := cmp.Or(s.reason, "lock "+s.args[0]+" released")
			return s.client.Locks().ReleaseLock(ctx, &servov1.ReleaseLockRequest{Tenant: s.Tenant, Key: s.args[0], Reason: reason})
		}, releasedText))
}

func releasedText(w io.Writer, s *session, answer *servov1.ReleaseLockResponse) {
	held := answer.GetRun()
	state := s.paint.state(held.GetState().String())
	if ended(held.GetState()) {
		fmt.Fprintf(w, "lock %s is free: run %s is %s\n", clean(s.args[0]), held.GetId(), state)
		return
	}
	fmt.Fprintf(w, "lock %s is free when run %s has ended: it is %s, %s to stop\nwatch it: servo runs watch %s%s\n", clean(s.args[0]), held.GetId(),
		state, count(int(held.GetTasks().GetRemaining()), "task"), held.GetId(), s.again())
}
