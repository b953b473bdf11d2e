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

// newStatus shows the state of the installation.
func newStatus() *cobra.Command {
	return newShow(spec{use: "status", short: "Show the state of the installation"}, func(ctx context.Context, s *session) (*servov1.Status, error) {
		return s.client.Status().GetStatus(ctx, &servov1.GetStatusRequest{})
	}, func(w io.Writer, s *session, status *servov1.Status) { statusText(w, s.paint, status, s.again()) })
}

func statusText(w io.Writer, p palette, status *servov1.Status, again string) {
	now := status.GetNow().AsTime() // the server's clock, so that the local one does not matter
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
		fmt.Fprintln(w, "no tasks waiting or running")
	} else {
		fmt.Fprintln(w)
		tasks.print(w)
	}
	if len(status.GetPools()) > 0 {
		var pools table
		pools.add("POOL", "QUEUED", "LEASED", "WORKERS", "CAPACITY", "REMARK")
		for _, pool := range status.GetPools() {
			pools.add(clean(pool.GetPool()), fmt.Sprint(pool.GetQueued()), fmt.Sprint(pool.GetLeased()),
				fmt.Sprint(pool.GetWorkers()), fmt.Sprint(pool.GetSlots()), orDash(poolRemark(pool, again)))
		}
		fmt.Fprintln(w)
		pools.print(w)
	}
	if len(status.GetServers()) > 1 { // the answering one is shown above
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

// poolRemark lists the capabilities that tasks of a pool need and none of its live workers has.
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

// todayText counts the runs of today by state.
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
