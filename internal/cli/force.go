package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newTasksForceCancel ends a task whose worker does not.
func newTasksForceCancel() *cobra.Command {
	var (
		r      remote
		reason string
	)
	cmd := &cobra.Command{
		Use:   "force-cancel RUN TASK|ASSET",
		Short: "End a task of a cancelled run whose worker has fallen silent",
		Long: `End a task of a run that is being cancelled, if nothing was heard of its worker for five
minutes; until then it is refused, with the time from which on it is possible. The worker can
change nothing any more, should it come back.`,
		Example: `  servo runs cancel latest
  servo tasks force-cancel latest gold/revenue --reason "its machine is gone"`,
		Args: exactly(2),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, name, err := s.runArgument(ctx, args[0])
			if err != nil {
				return err
			}
			task, err := s.findTask(ctx, tenant, name, args[1])
			if err != nil {
				return err
			}
			ended, err := s.client.Tasks().ForceCancelTask(ctx, &servov1.ForceCancelTaskRequest{Tenant: tenant, Run: name, Task: task, Reason: reason})
			if err != nil {
				return err
			}
			return s.show(ended, func(w io.Writer) {
				fmt.Fprintf(w, "task %s is %s\n", taskName(ended.GetAsset(), ended.GetPartition()), s.paint.state(ended.GetState().String()))
			})
		}),
	}
	addReason(cmd, &reason)
	aboutRun(cmd)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}
