package client

import (
	"context"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// MaxTriggers is how many runs one call of TriggerRuns creates at most.
const MaxTriggers = 1000

// TriggerMany creates any number of runs of a workspace ("" is the default one), MaxTriggers in a call,
// and returns an answer for each, in their order. A refused run has an error in its answer. After an
// error of a call the answers end before the first run of that call. Give the runs idempotency keys to
// continue after an error without creating runs twice.
func (c *Client) TriggerMany(ctx context.Context, tenant, workspace string, runs []*servov1.RunTrigger) ([]*servov1.TriggeredRun, error) {
	answers := make([]*servov1.TriggeredRun, 0, len(runs))
	for len(answers) < len(runs) {
		next := runs[len(answers):min(len(answers)+MaxTriggers, len(runs))]
		answer, err := c.Runs().TriggerRuns(ctx, &servov1.TriggerRunsRequest{Tenant: tenant, Workspace: workspace, Runs: next})
		if err != nil {
			return answers, err
		}
		answers = append(answers, answer.GetRuns()...)
	}
	return answers, nil
}
