package cli

import (
	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/edge/ratelimit"
)

// addRates gives a command the rate limits of tenants.
func addRates(cmd *cobra.Command, to *ratelimit.Limits) {
	usual, flags := ratelimit.Defaults(), cmd.Flags()
	flags.IntVar(&to.Trigger, "rate-trigger", usual.Trigger, "runs that a tenant may trigger per minute, on all servers together (0: no limit)")
	flags.IntVar(&to.List, "rate-list", usual.List, "lists that a tenant may read per minute (0: no limit)")
	flags.IntVar(&to.Deploy, "rate-deploy", usual.Deploy, "deployments to a workspace per minute (0: no limit)")
	flags.IntVar(&to.Streams, "max-streams", usual.Streams, "open streams of run events of a tenant (0: no limit)")
}
