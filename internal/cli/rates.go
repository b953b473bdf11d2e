package cli

import (
	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/edge/ratelimit"
)

// addRates gives a command the flags of what each tenant may do.
func addRates(cmd *cobra.Command, to *ratelimit.Limits) {
	usual, flags := ratelimit.Defaults(), cmd.Flags()
	flags.IntVar(&to.Trigger, "rate-trigger", usual.Trigger, "how many runs a tenant may trigger in a minute, on all servers together; 0 is no limit")
	flags.IntVar(&to.List, "rate-list", usual.List, "how many lists a tenant may read in a minute; 0 is no limit")
	flags.IntVar(&to.Deploy, "rate-deploy", usual.Deploy, "how often a workspace may be deployed to in a minute; 0 is no limit")
	flags.IntVar(&to.Streams, "max-streams", usual.Streams, "how many streams of run events a tenant may have open at a time; 0 is no limit")
}
