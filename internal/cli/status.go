package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newStatus says how an installation is doing.
func newStatus() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the installation is doing",
		Args:  exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			status, err := s.client.Status().GetStatus(ctx, &servov1.GetStatusRequest{})
			if err != nil {
				return err
			}
			return s.show(status, func(w io.Writer) { statusText(w, s.paint, status, s.again()) })
		}),
	}
	addRemote(cmd, &r)
	return cmd
}

func statusText(w io.Writer, p palette, status *servov1.Status, again string) {
	now := status.GetNow().AsTime() // the server's clock, so that ours does not matter
	fmt.Fprintf(w, "server %s, version %s, up %s\n", clean(status.GetServer()), clean(status.GetVersion()), elapsed(now, status.GetStartedAt(), nil))
	if d := status.GetDispatch(); d.GetPaused() {
		fmt.Fprintln(w, "dispatch "+dispatchState(d, now))
	}
	if today := status.GetToday(); today != nil {
		fmt.Fprintln(w, "runs today: "+todayText(today))
	}
	var tasks table
	tasks.add("TASKS", "COUNT")
	total := int64(0)
	for _, c := range status.GetTasks() {
		if c.GetCount() == 0 {
			continue
		}
		total += c.GetCount()
		number := fmt.Sprint(c.GetCount())
		if c.GetAtLeast() {
			number = "at least " + number
		}
		tasks.add(p.state(c.GetState()), number)
	}
	if total == 0 {
		fmt.Fprintln(w, "no task waits or runs")
	} else {
		fmt.Fprintln(w)
		tasks.print(w)
	}
	if len(status.GetPools()) > 0 {
		var pools table
		pools.add("POOL", "QUEUED", "LEASED", "WORKERS", "SLOTS", "REMARK")
		for _, pool := range status.GetPools() {
			pools.add(clean(pool.GetPool()), fmt.Sprint(pool.GetQueued()), fmt.Sprint(pool.GetLeased()),
				fmt.Sprint(pool.GetWorkers()), fmt.Sprint(pool.GetSlots()), orDash(poolRemark(pool, again)))
		}
		fmt.Fprintln(w)
		pools.print(w)
	}
	if len(status.GetServers()) > 1 { // who answers stands above
		var servers table
		servers.add("SERVER", "VERSION", "UP")
		for _, server := range status.GetServers() {
			servers.add(clean(server.GetName()), clean(server.GetVersion()), elapsed(now, server.GetStartedAt(), nil))
		}
		fmt.Fprintln(w)
		servers.print(w)
	}
	if len(status.GetDuties()) > 0 {
		var duties table
		duties.add("DUTY", "SERVER", "EPOCH", "UNTIL")
		for _, d := range status.GetDuties() {
			duties.add(clean(d.GetName()), orDash(d.GetHolder()), fmt.Sprint(d.GetEpoch()), d.GetExpiresAt().AsTime().UTC().Format(time.TimeOnly))
		}
		fmt.Fprintln(w)
		duties.print(w)
	}
}

// poolRemark says what tasks of a pool need that no live worker of it has.
func poolRemark(pool *servov1.PoolStatus, again string) string {
	var remarks []string
	for _, need := range pool.GetUnserved() {
		remedy := need.GetRemedy()
		if !strings.HasPrefix(need.GetCapability(), "go:") { // its command
			remedy += again
		}
		remarks = append(remarks, clean(fmt.Sprintf("%s for %s: %s", count(int(need.GetTasks()), "task"), need.GetCapability(), remedy)))
	}
	return strings.Join(remarks, "; ")
}

// todayText is what has become of runs today.
func todayText(today *servov1.Today) string {
	number := func(n int64, more bool) string {
		if more {
			return fmt.Sprintf("at least %d", n)
		}
		return fmt.Sprint(n)
	}
	text := fmt.Sprintf("%s pending, %s running, %d ended, %d failed, %d SLA breaches",
		number(today.GetPendingRuns(), today.GetPendingAtLeast()), number(today.GetRunningRuns(), today.GetRunningAtLeast()),
		today.GetCompletedRuns(), today.GetFailedRuns(), today.GetSlaBreaches())
	if today.GetAverageDuration() != nil {
		text += ", " + averageOf(today.GetAverageDuration()) + " on average"
	}
	return text
}
