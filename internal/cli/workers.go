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
tasks they can hold and how many they hold.`,
		Example: `  servo workers list
  servo workers list --pool big`,
		Args: exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			workers, err := first(client.AllWorkers(ctx, s.client, &servov1.ListWorkersRequest{Pool: pool}), 0)
			if err != nil {
				return err
			}
			return showAll(s, workers, "no worker has been seen for two minutes; servo worker", func(w io.Writer) {
				var t table
				t.add("WORKER", "POOLS", "SLOTS", "HOLDS", "FIRST SEEN", "LAST SEEN")
				for _, worker := range workers {
					t.add(clean(worker.GetName()), clean(strings.Join(worker.GetPools(), ", ")), fmt.Sprint(worker.GetSlots()), fmt.Sprint(worker.GetLeases()),
						age(time.Now(), worker.GetFirstSeenAt()), age(time.Now(), worker.GetLastSeenAt()))
				}
				t.print(w)
			})
		}),
	}
	cmd.Flags().StringVar(&pool, "pool", "", "only workers of this pool")
	addRemote(cmd, &r)
	return cmd
}
