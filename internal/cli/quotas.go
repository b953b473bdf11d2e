package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/asset"
)

// newQuotas is the group of commands about quotas.
func newQuotas() *cobra.Command {
	return group("quotas", "Show and set the quotas of a tenant",
		newShow(spec{use: "get TENANT", short: "Show quotas and their usage", example: "  servo quotas get acme", names: []nameSource{(*session).tenantNames}},
			func(ctx context.Context, s *session) (*servov1.TenantQuotas, error) {
				return s.client.Tenants().GetQuotas(ctx, &servov1.GetQuotasRequest{Tenant: s.args[0]})
			}, quotasTable),
		newQuotasSet())
}

func quotasTable(w io.Writer, _ *session, q *servov1.TenantQuotas) {
	limits, usage := q.GetQuotas(), q.GetUsage()
	var t table
	t.add("QUOTA", "LIMIT", "USED", "COUNTS")
	for _, row := range []struct {
		name   string
		limit  int32
		used   string
		counts string
	}{
		{"max_concurrent_tasks", limits.GetMaxConcurrentTasks(), fmt.Sprint(usage.GetConcurrentTasks()), "tasks queued, dispatched or running"},
		{"max_queued_tasks", limits.GetMaxQueuedTasks(), fmt.Sprint(usage.GetQueuedTasks()), "ready tasks above which no run starts"},
		{"max_concurrent_runs", limits.GetMaxConcurrentRuns(), fmt.Sprint(usage.GetConcurrentRuns()), pendingText(usage)},
		{"max_daily_runs", limits.GetMaxDailyRuns(), fmt.Sprint(usage.GetDailyRuns()), "runs created since midnight in " + clean(limits.GetZone())},
		{"max_tasks_per_run", limits.GetMaxTasksPerRun(), "-", "tasks of a plan"},
		{"max_backfill_runs", limits.GetMaxBackfillRuns(), "-", "runs of a backfill at once"},
	} {
		limit := fmt.Sprint(row.limit)
		if row.limit < 0 {
			limit = "none"
		}
		t.add(row.name, limit, row.used, row.counts)
	}
	t.add("max_run_duration", asset.Duration(limits.GetMaxRunDuration().AsDuration()).String(), "-", "maximum duration of a run")
	t.add("fairness_weight", fmt.Sprint(limits.GetFairnessWeight()), "-", "weight against other tenants")
	t.add("zone", clean(limits.GetZone()), "-", "time zone of the tenant's days")
	t.print(w)
}

func pendingText(usage *servov1.QuotaUsage) string {
	if usage.GetPendingRuns() == 0 {
		return "unfinished runs"
	}
	return fmt.Sprintf("unfinished runs; %d more wait for their start", usage.GetPendingRuns())
}

func newQuotasSet() *cobra.Command {
	var asked quotaFlags
	return newShow(spec{
		use: "set TENANT", short: "Set quotas of a tenant", version: "tenant, as get -o json shows it",
		long: `Set quotas of a tenant. Quotas without a flag are kept; none means no limit.
--max-concurrent-tasks 0 isolates a tenant: leased tasks continue, and no others start.`,
		example: `  servo quotas set acme --max-concurrent-tasks 200 --fairness-weight 2
  servo quotas set acme --max-daily-runs none`,
		names: []nameSource{(*session).tenantNames},
		flags: func(cmd *cobra.Command) { asked.add(cmd.Flags()) },
		check: func(s *session) error {
			if proto.Size(asked.changed(s.cmd.Flags())) == 0 {
				return usageFault(s.cmd, "no changes specified: name a quota")
			}
			return nil
		},
	}, func(ctx context.Context, s *session) (*servov1.TenantQuotas, error) {
		return s.client.Tenants().SetQuotas(ctx, &servov1.SetQuotasRequest{Tenant: s.args[0], Quotas: asked.changed(s.cmd.Flags()), Version: s.version})
	}, quotasTable)
}

// quotaFlags are the quotas as flags.
type quotaFlags struct {
	tasks, queued, runs, daily, perRun, backfill int32
	duration                                     time.Duration
	weight                                       float64
	zone                                         string
}

func (q *quotaFlags) add(flags *pflag.FlagSet) {
	flags.Var((*limitFlag)(&q.tasks), "max-concurrent-tasks", "maximum of tasks queued, dispatched or running, or none")
	flags.Var((*limitFlag)(&q.queued), "max-queued-tasks", "number of ready tasks above which no run starts, or none")
	flags.Var((*limitFlag)(&q.runs), "max-concurrent-runs", "maximum of unfinished runs, or none")
	flags.Var((*limitFlag)(&q.daily), "max-daily-runs", "maximum of runs per day in the tenant's time zone, or none")
	flags.Int32Var(&q.perRun, "max-tasks-per-run", 0, "maximum of tasks in a plan, 1 to 10000")
	flags.Var((*limitFlag)(&q.backfill), "max-backfill-runs", "maximum of concurrent runs of a backfill, or none")
	flags.DurationVar(&q.duration, "max-run-duration", 0, "maximum duration of a run, such as 6h")
	flags.Float64Var(&q.weight, "fairness-weight", 0, "weight against other tenants, 0.001 to 1000")
	flags.StringVar(&q.zone, "zone", "", "time zone of the tenant's days, such as Europe/Berlin")
}

// changed returns the quotas that have a flag.
func (q *quotaFlags) changed(flags *pflag.FlagSet) *servov1.Quotas {
	change := &servov1.Quotas{}
	for name, field := range map[string]func(){
		"max-concurrent-tasks": func() { change.MaxConcurrentTasks = &q.tasks },
		"max-queued-tasks":     func() { change.MaxQueuedTasks = &q.queued },
		"max-concurrent-runs":  func() { change.MaxConcurrentRuns = &q.runs },
		"max-daily-runs":       func() { change.MaxDailyRuns = &q.daily },
		"max-tasks-per-run":    func() { change.MaxTasksPerRun = &q.perRun },
		"max-backfill-runs":    func() { change.MaxBackfillRuns = &q.backfill },
		"max-run-duration":     func() { change.MaxRunDuration = durationpb.New(q.duration) },
		"fairness-weight":      func() { change.FairnessWeight = &q.weight },
		"zone":                 func() { change.Zone = &q.zone },
	} {
		if flags.Changed(name) {
			field()
		}
	}
	return change
}

// limitFlag is a number, or none for no limit.
type limitFlag int32

const noLimit = -1

func (l *limitFlag) String() string { return strconv.Itoa(int(*l)) }

// Type is the placeholder in help texts.
func (l *limitFlag) Type() string { return "NUMBER" }

// Set reads a number or none.
func (l *limitFlag) Set(text string) error {
	if strings.EqualFold(text, "none") {
		*l = noLimit
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < noLimit {
		return errors.New("must be a whole number, 0 or more, or none")
	}
	*l = limitFlag(n)
	return nil
}
