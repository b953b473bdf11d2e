package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newFairness shows the shares of tenants in the pools.
func newFairness() *cobra.Command {
	var pool string
	cmd := newList(spec{
		use: "fairness [TENANT]", short: "Show the shares of tenants in the pools",
		long: `Show the share of each tenant in each pool.

ENTITLED is the part of the pool that a tenant's weight entitles it to now, SHARE its part of the
tasks in flight. DEFICIT is what the pool owes it in worker-seconds; tenants with a lower deficit
come later. WAITING are ready tasks that wait for admission, IN FLIGHT those that are queued,
dispatched or running, beside the quota max_concurrent_tasks.`,
		example: "  servo fairness\n  servo fairness acme --pool default",
		flags:   func(cmd *cobra.Command) { cmd.Flags().StringVar(&pool, "pool", "", "filter by pool") },
	}, "no tasks wait or are in flight", func(ctx context.Context, s *session) ([]*servov1.Share, error) {
		answer, err := s.client.Fairness().ListShares(ctx, &servov1.ListSharesRequest{Pool: pool, Tenant: cmp.Or(s.args...)})
		if answer.GetTruncated() {
			s.report("the list is truncated; name a tenant or a pool to see its shares")
		}
		return answer.GetShares(), err
	}, columns([]string{"POOL", "TENANT", "WEIGHT", "ENTITLED", "SHARE", "DEFICIT", "WAITING", "IN FLIGHT", "QUOTA", "SERVED", "ATTEMPTS"}, func(_ view, s *servov1.Share) []string {
		return []string{
			clean(s.GetPool()), clean(s.GetTenant()), strconv.FormatFloat(s.GetWeight(), 'g', 4, 64),
			percent(s.GetEntitled()), percent(s.GetShare()), seconds(s.GetDeficit()), waitingOf(s),
			strconv.Itoa(int(s.GetInFlight())), quotaOf(s), seconds(s.GetServedSeconds()), strconv.FormatInt(s.GetAttempts(), 10),
		}
	}))
	cmd.Args = atMost(1)
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

// quotaOf is the use of max_concurrent_tasks over all pools.
func quotaOf(s *servov1.Share) string {
	if s.GetMaxConcurrentTasks() < 0 {
		return "none"
	}
	return fmt.Sprintf("%d/%d", s.GetTenantInFlight(), s.GetMaxConcurrentTasks())
}
