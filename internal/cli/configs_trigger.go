package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func newConfigsTrigger() *cobra.Command {
	var (
		r           remote
		key, note   string
		waitLock    time.Duration
		queue, wait bool
		values      parameters
	)
	cmd := aboutConfig(&cobra.Command{
		Use:   "trigger CONFIG",
		Short: "Run a config now (its slots are kept)",
		Long: `Run a config now. Its slots are kept. --param overrides a parameter of the config for this
run. While another run of the config has not ended, its overlap policy decides: buffer_one and
buffer_all create a run that waits, cancel_running cancels the other run, and skip returns it,
or refuses a run with other parameters. --queue creates a run that waits in any case.`,
		Example: `  servo configs trigger acme-aws-cost --wait
  servo configs trigger acme-aws-cost --param day=2026-01-31`,
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			req := &servov1.TriggerConfigRequest{Tenant: tenant, Workspace: s.Workspace, Config: args[0], Note: note, WaitForQuota: queue, Queue: queue}
			if waitLock != 0 {
				req.WaitForLock = durationpb.New(waitLock)
			}
			if values.given() {
				c, err := s.client.Configs().GetConfig(ctx, &servov1.GetConfigRequest{Tenant: tenant, Workspace: s.Workspace, Config: args[0]})
				if err != nil {
					return err
				}
				like := &servov1.TriggerRunRequest{Tenant: tenant, Workspace: c.GetWorkspace(), Pipeline: c.GetSpec().GetPipeline()}
				if req.Parameters, err = values.ofServer(ctx, s, like); err != nil {
					return err
				}
			}
			var answer *servov1.TriggerRunResponse
			err = s.withinRate(ctx, func() (err error) {
				answer, err = s.client.Configs().TriggerConfig(withKey(ctx, key), req)
				return err
			})
			if err != nil {
				return err
			}
			return s.triggered(ctx, answer, wait)
		}),
	}, &r)
	cmd.Flags().StringVar(&key, "key", "", "a repeat with the same key gives the same run")
	cmd.Flags().DurationVar(&waitLock, "wait-lock", 0, "how long to wait for a run that holds the lock, at most 60s")
	cmd.Flags().BoolVar(&queue, "queue", false, "create a run that waits for the lock or for quotas")
	values.add(cmd)
	addNote(cmd, &note)
	addWait(cmd, &wait)
	return cmd
}
