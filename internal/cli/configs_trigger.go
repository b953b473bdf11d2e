package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func newConfigsTrigger() *cobra.Command {
	var (
		f        triggerFlags
		waitLock time.Duration
		values   parameters
		divided  []string
	)
	return newCall(ofConfig(spec{
		use: "trigger CONFIG", short: "Run a config now (its slots are kept)",
		long: `Run a config now. Its slots are kept. --param overrides a parameter of the config for this
run. While another run of the config has not ended, its overlap policy decides: buffer_one and
buffer_all create a run that waits, cancel_running cancels the other run, and skip returns it,
or refuses a run with other parameters. --queue creates a run that waits in any case.

A pipeline with partitions runs the last completed one; --partition names others, as
servo runs trigger does.`,
		example: `  servo configs trigger acme-aws-cost --wait
  servo configs trigger acme-aws-cost --param day=2026-01-31`,
		flags: func(cmd *cobra.Command) {
			f.add(cmd)
			values.add(cmd)
			addPartitions(cmd, &divided)
			addWaitLock(cmd, &waitLock)
		},
	}), func(ctx context.Context, s *session) error {
		req := &servov1.TriggerConfigRequest{
			Tenant: s.Tenant, Workspace: s.Workspace, Config: s.args[0], Note: f.note, WaitForLock: waitOf(waitLock), WaitForQuota: f.queue, Queue: f.queue,
			Partitions: divided,
		}
		if values.given() {
			c, err := getConfig(ctx, s)
			if err != nil {
				return err
			}
			like := &servov1.TriggerRunRequest{Tenant: s.Tenant, Workspace: c.GetWorkspace(), Pipeline: c.GetSpec().GetPipeline()}
			if req.Parameters, err = values.ofServer(ctx, s, like); err != nil {
				return err
			}
		}
		return s.trigger(ctx, f, func(ctx context.Context) (*servov1.TriggerRunResponse, error) {
			return s.client.Configs().TriggerConfig(ctx, req)
		})
	})
}
