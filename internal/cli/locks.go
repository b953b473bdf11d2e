package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newLocks shows which runs keep others out.
func newLocks() *cobra.Command {
	return group("locks", "See which runs keep others out, and end them", newLocksList(), newLocksRelease())
}

func newLocksList() *cobra.Command {
	var (
		r     remote
		limit int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the locks of a tenant and the runs that hold them",
		Args:  exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			locks, err := listed(s, client.AllLocks(ctx, s.client, &servov1.ListLocksRequest{Tenant: tenant, PageSize: pageSize(limit)}), limit)
			if err != nil {
				return err
			}
			return showAll(s, locks, "no run holds a lock", func(w io.Writer) { locksTable(w, locks, time.Now()) })
		}),
	}
	addLimit(cmd, &limit, "locks")
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func locksTable(w io.Writer, locks []*servov1.Lock, now time.Time) {
	var t table
	t.add("KEY", "RUN", "PIPELINE", "LOCKED BY", "AGE", "DUE")
	for _, l := range locks {
		due := "-"
		switch {
		case l.GetPending():
			due = "waits for its start"
		case l.GetDueAt() != nil:
			due = "in " + short(l.GetDueAt().AsTime().Sub(now))
		}
		t.add(clean(l.GetKey()), l.GetRun(), clean(l.GetPipeline()), orDash(clip(l.GetLockedBy(), 40)), short(now.Sub(l.GetLockedAt().AsTime())), due)
	}
	t.print(w)
}

func newLocksRelease() *cobra.Command {
	var (
		r      remote
		reason string
	)
	cmd := &cobra.Command{
		Use:   "release KEY",
		Short: "Cancel the run that holds a lock",
		Long: `Cancel the run that holds a lock. The lock is free when that run has ended: it is never taken
away from a run that lives, so that nothing runs twice. Who has released it and why is recorded
with the run's cancel.`,
		Example: `  servo locks release default/daily --reason "hangs since the outage"`,
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			if reason == "" {
				reason = "lock " + args[0] + " released"
			}
			answer, err := s.client.Locks().ReleaseLock(ctx, &servov1.ReleaseLockRequest{Tenant: tenant, Key: args[0], Reason: reason})
			if err != nil {
				return err
			}
			return s.show(answer, func(w io.Writer) {
				held := answer.GetRun()
				if ended(held.GetState()) {
					fmt.Fprintf(w, "lock %s is free: run %s is %s\n", clean(args[0]), held.GetId(), s.paint.state(held.GetState().String()))
					return
				}
				fmt.Fprintf(w, "lock %s is free when run %s has ended: it is %s, %s to stop\nwatch it: servo runs watch %s%s\n", clean(args[0]), held.GetId(),
					s.paint.state(held.GetState().String()), count(int(held.GetTasks().GetRemaining()), "task"), held.GetId(), s.again())
			})
		}),
	}
	addReason(cmd, &reason)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}
