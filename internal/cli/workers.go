package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newWorkers looks at workers, wherever they run.
func newWorkers() *cobra.Command {
	return group("workers", "List the workers that are there", newWorkersList())
}

func newWorkersList() *cobra.Command {
	var (
		r    remote
		pool string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List workers by name, with what they can hold and what they hold",
		Long: `List the workers that have claimed or sent a heartbeat within two minutes, with how many
tasks they can hold and how many they hold. A worker that has missed heartbeats is silent: the
list shows when its leases end, after which other workers get its tasks. Servers that send the
tasks of push pools are listed as dispatchers.`,
		Example: `  servo workers list
  servo workers list --pool big`,
		Args: exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			workers, err := first(client.AllWorkers(ctx, s.client, &servov1.ListWorkersRequest{Pool: pool}), 0)
			if err != nil {
				return err
			}
			return showAll(s, workers, "no worker has been seen for two minutes; start one: servo worker for exec and http assets, your Go program for Go assets", func(w io.Writer) {
				var t table
				t.add("WORKER", "POOLS", "RUNS", "SLOTS", "HOLDS", "FIRST SEEN", "LAST SEEN", "REMARK")
				for _, worker := range workers {
					t.add(clean(worker.GetName()), clean(strings.Join(worker.GetPools(), ", ")), clean(runsText(worker.GetCapabilities())), fmt.Sprint(worker.GetSlots()), fmt.Sprint(worker.GetLeases()),
						age(time.Now(), worker.GetFirstSeenAt()), age(time.Now(), worker.GetLastSeenAt()), orDash(workerRemark(worker)))
				}
				t.print(w)
			})
		}),
	}
	cmd.Flags().StringVar(&pool, "pool", "", "only workers of this pool")
	addRemote(cmd, &r)
	return cmd
}

// runsText says what a worker can run: the kinds, and how many Go handlers.
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

// workerRemark says what is the matter with a worker.
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
		silent += "; its leases end at " + w.GetLeasesEndAt().AsTime().UTC().Format(time.RFC3339)
	}
	return clean(silent)
}
