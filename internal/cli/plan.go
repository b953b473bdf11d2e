package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/engine"
)

// newPlan shows the plan of a manifest, without a server.
func newPlan() *cobra.Command {
	var (
		source  manifestSource
		request plan.Request
		params  parameters
		divided []string
	)
	return newLocal(spec{
		use: "plan", short: "Check a manifest and show its plan",
		long: `Check a manifest and show its plan: its tasks in order. No server is needed.

Without --pipeline and --select everything is planned. --select is repeatable and takes ns/name,
+ns/name (with upstreams), ns/name+ (with downstreams), ns/*, tag:x, owner:y and *.

--param day=2026-01-31 is read as the type that the pipeline declares, as by servo runs
trigger; --params takes a JSON object, or @FILE. --partition names partitions, as there.`,
		example: `  servo plan -f servo.yaml
  servo plan -f servo.yaml --select +gold/revenue --output json
  servo plan --python ./shop
  servo plan --go ./cmd/worker
  servo plan -f servo.yaml --pipeline revenue --param day=2026-01-31`,
		flags: func(cmd *cobra.Command) {
			source.add(cmd)
			cmd.Flags().StringVar(&request.Pipeline, "pipeline", "", "pipeline to plan")
			cmd.Flags().StringArrayVar(&request.Select, "select", nil, "assets to plan, repeatable")
			params.add(cmd)
			addPartitions(cmd, &divided)
		},
	}, func(cmd *cobra.Command, _ []string) (p plan.Plan, err error) {
		data, name, err := source.read(cmd)
		if err != nil {
			return p, err
		}
		manifest, err := asset.Parse(data, name)
		if err != nil {
			return p, err
		}
		if request.Parameters, err = params.ofManifest(cmd, manifest, request.Pipeline); err != nil {
			return p, err
		}
		planner, err := plan.NewPlanner(manifest)
		if err != nil {
			return p, err
		}
		if request.Partitions, err = engine.SelectPartitions(divided, time.Now(), planner.SchemesOf(request)); err != nil {
			return p, err
		}
		return planner.Plan(request)
	}, planTable)
}

// mostUpstream is how many upstreams a line of a plan names.
const mostUpstream = 20

// planTable has a line for each task, and the totals below.
func planTable(w io.Writer, p plan.Plan) {
	title := func(t plan.Task) string {
		if t.Partition == "" {
			return t.Key
		}
		return t.Key + "[" + partition.Bare(t.Partition) + "]"
	}
	upstream := make([][]string, len(p.Tasks))
	for _, edge := range p.Edges {
		upstream[edge[1]] = append(upstream[edge[1]], title(p.Tasks[edge[0]]))
	}
	fmt.Fprintln(w, "STAGE\tASSET\tPOOL\tTIMEOUT\tAFTER")
	for i, task := range p.Tasks {
		slices.Sort(upstream[i])
		after := strings.Join(upstream[i][:min(len(upstream[i]), mostUpstream)], ", ")
		if more := len(upstream[i]) - mostUpstream; more > 0 {
			after += fmt.Sprintf(" and %d more", more)
		}
		if after == "" {
			after = "-"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", task.Stage, title(task), task.Pool, task.Timeout, after)
	}
	fmt.Fprintf(w, "\n%s in %s, fingerprint %s\n", count(len(p.Tasks), "task"), count(len(p.Stages), "stage"), p.Fingerprint)
}
