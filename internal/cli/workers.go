package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newWorkers is the group of commands about workers.
func newWorkers() *cobra.Command {
	var pool string
	return group("workers", "List live workers", newList(spec{
		short: "List workers with their capacity and leases",
		long: `List the workers that have claimed or sent a heartbeat within two minutes, with their capacity
and the number of their leases. A worker that has missed heartbeats is silent: the list shows when
its leases expire, after which other workers get its tasks. Servers that send the tasks of push
pools are listed as dispatchers.`,
		example: `  servo workers list
  servo workers list --pool big`,
		flags: func(cmd *cobra.Command) { cmd.Flags().StringVar(&pool, "pool", "", "filter by pool") },
	}, "no worker has been seen for two minutes; start one: servo worker for exec and http assets, your Go program for Go assets",
		func(ctx context.Context, s *session) ([]*servov1.Worker, error) {
			return first(client.AllWorkers(ctx, s.client, &servov1.ListWorkersRequest{Pool: pool}), 0)
		},
		columns([]string{"WORKER", "POOLS", "RUNS", "CAPACITY", "LEASES", "FIRST SEEN", "LAST SEEN", "REMARK"}, func(v view, w *servov1.Worker) []string {
			return []string{
				clean(w.GetName()), clean(strings.Join(w.GetPools(), ", ")), clean(runsText(w.GetCapabilities())), fmt.Sprint(w.GetSlots()), fmt.Sprint(w.GetLeases()),
				age(v.now, w.GetFirstSeenAt()), age(v.now, w.GetLastSeenAt()), orDash(workerRemark(w)),
			}
		})))
}

// runsText lists what a worker can run: the kinds, and the number of Go handlers.
func runsText(capabilities []string) string {
	if len(capabilities) == 0 {
		return "everything"
	}
	var kinds []string
	handlers := 0
	for _, capability := range capabilities {
		if strings.HasPrefix(capability, "go:") {
			handlers++
		} else {
			kinds = append(kinds, capability)
		}
	}
	if handlers > 0 {
		kinds = append(kinds, count(handlers, "Go handler"))
	}
	return strings.Join(kinds, ", ")
}

// workerRemark states what an operator should know about a worker.
func workerRemark(w *servov1.Worker) string {
	who := ""
	if server := w.GetDispatcherOf(); server != "" {
		who = "dispatcher of server " + server
	}
	if !w.GetSilent() {
		return clean(who)
	}
	silent := "silent"
	if who != "" {
		silent = who + " is silent"
	}
	if w.GetLeasesEndAt() != nil {
		silent += "; its leases expire at " + w.GetLeasesEndAt().AsTime().UTC().Format(time.RFC3339)
	}
	return clean(silent)
}
