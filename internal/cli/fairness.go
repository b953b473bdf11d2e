package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newFairness shows how tenants share the pools.
func newFairness() *cobra.Command {
	var (
		r    remote
		pool string
	)
	cmd := &cobra.Command{
		Use:   "fairness [TENANT]",
		Short: "Show how tenants share the pools: share, deficit, what waits, quotas",
		Long: `Show what each tenant has of each pool.

ENTITLED is the part of the pool that a tenant's weight gives it now, SHARE the part that it
has of the tasks in flight. DEFICIT is what it is owed in worker-seconds; a tenant that owes
(below 0) comes after those that owe less. WAITING are ready tasks that wait for admission,
IN FLIGHT those that are queued or at work, beside the quota max_concurrent_tasks.`,
		Example: "  servo fairness\n  servo fairness acme --pool default",
		Args:    atMost(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			req := &servov1.ListSharesRequest{Pool: pool}
			if len(args) == 1 {
				req.Tenant = args[0]
			}
			answer, err := s.client.Fairness().ListShares(ctx, req)
			if err != nil {
				return err
			}
			if answer.GetTruncated() {
				s.say("not all tenants are listed; name a tenant or a pool to see its shares")
			}
			return showAll(s, answer.GetShares(), "nobody waits, and nothing is in flight", func(w io.Writer) {
				var t table
				t.add("POOL", "TENANT", "WEIGHT", "ENTITLED", "SHARE", "DEFICIT", "WAITING", "IN FLIGHT", "QUOTA", "SERVED", "ATTEMPTS")
				for _, share := range answer.GetShares() {
					t.add(clean(share.GetPool()), clean(share.GetTenant()), strconv.FormatFloat(share.GetWeight(), 'g', 4, 64),
						percent(share.GetEntitled()), percent(share.GetShare()), seconds(share.GetDeficit()), waitingOf(share),
						strconv.Itoa(int(share.GetInFlight())), quotaOf(share), seconds(share.GetServedSeconds()), strconv.FormatInt(share.GetAttempts(), 10))
				}
				t.print(w)
			})
		}),
	}
	cmd.Flags().StringVar(&pool, "pool", "", "only this pool")
	addRemote(cmd, &r)
	return cmd
}

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

func seconds(s float64) string { return strconv.FormatFloat(s, 'f', 1, 64) + "s" }

func waitingOf(s *servov1.Share) string {
	text := strconv.Itoa(int(s.GetWaiting()))
	if s.GetWaitingAtLeast() {
		text += "+"
	}
	return text
}

// quotaOf is what is used of max_concurrent_tasks, over all pools.
func quotaOf(s *servov1.Share) string {
	if s.GetMaxConcurrentTasks() < 0 {
		return "none"
	}
	return fmt.Sprintf("%d/%d", s.GetTenantInFlight(), s.GetMaxConcurrentTasks())
}
