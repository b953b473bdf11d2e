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

// newQuotas reads and changes what tenants may use.
func newQuotas() *cobra.Command {
	return group("quotas", "Read and change what a tenant may use", newQuotasGet(), newQuotasSet())
}

func newQuotasGet() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:               "get TENANT",
		Short:             "Show what a tenant may use, and what it uses",
		Example:           "  servo quotas get acme",
		Args:              exactly(1),
		ValidArgsFunction: completion((*session).tenantNames),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			quotas, err := s.client.Tenants().GetQuotas(ctx, &servov1.GetQuotasRequest{Tenant: args[0]})
			if err != nil {
				return err
			}
			return s.show(quotas, func(w io.Writer) { quotasTable(w, quotas) })
		}),
	}
	addRemote(cmd, &r)
	return cmd
}

func quotasTable(w io.Writer, q *servov1.TenantQuotas) {
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
		{"max_queued_tasks", limits.GetMaxQueuedTasks(), fmt.Sprint(usage.GetQueuedTasks()), "ready tasks past which no run begins"},
		{"max_concurrent_runs", limits.GetMaxConcurrentRuns(), fmt.Sprint(usage.GetConcurrentRuns()), pendingText(usage)},
		{"max_daily_runs", limits.GetMaxDailyRuns(), fmt.Sprint(usage.GetDailyRuns()), "runs made since midnight in " + clean(limits.GetZone())},
		{"max_tasks_per_run", limits.GetMaxTasksPerRun(), "-", "tasks of a plan"},
		{"max_backfill_runs", limits.GetMaxBackfillRuns(), "-", "runs of a backfill at once"},
	} {
		limit := fmt.Sprint(row.limit)
		if row.limit < 0 {
			limit = "none"
		}
		t.add(row.name, limit, row.used, row.counts)
	}
	t.add("max_run_duration", asset.Duration(limits.GetMaxRunDuration().AsDuration()).String(), "-", "how long a run may take")
	t.add("fairness_weight", fmt.Sprint(limits.GetFairnessWeight()), "-", "the share of workers, against other tenants")
	t.add("zone", clean(limits.GetZone()), "-", "of the tenant's days")
	t.print(w)
}

func pendingText(usage *servov1.QuotaUsage) string {
	if usage.GetPendingRuns() == 0 {
		return "runs that have started and not ended"
	}
	return fmt.Sprintf("runs that have started and not ended; %d more wait for their start", usage.GetPendingRuns())
}

func newQuotasSet() *cobra.Command {
	var (
		r       remote
		version int32
		asked   quotaFlags
	)
	cmd := &cobra.Command{
		Use:   "set TENANT",
		Short: "Change what a tenant may use",
		Long: `Change what a tenant may use. What is not named stays; none is no limit.
--max-concurrent-tasks 0 isolates a tenant: what runs goes on, and nothing new begins.`,
		Example: `  servo quotas set acme --max-concurrent-tasks 200 --fairness-weight 2
  servo quotas set acme --max-daily-runs none`,
		Args:              exactly(1),
		ValidArgsFunction: completion((*session).tenantNames),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			change := asked.changed(s.cmd.Flags())
			if proto.Size(change) == 0 {
				return usageFault(s.cmd, "nothing to change: name a quota")
			}
			quotas, err := s.client.Tenants().SetQuotas(ctx, &servov1.SetQuotasRequest{Tenant: args[0], Quotas: change, Version: version})
			if err != nil {
				return err
			}
			return s.show(quotas, func(w io.Writer) { quotasTable(w, quotas) })
		}),
	}
	asked.add(cmd.Flags())
	cmd.Flags().Int32Var(&version, "version", 0, "change only this version of the tenant, as get -o json shows it (0: whatever is there)")
	addRemote(cmd, &r)
	return cmd
}

// quotaFlags are the quotas as flags.
type quotaFlags struct {
	tasks, queued, runs, daily, perRun, backfill int32
	duration                                     time.Duration
	weight                                       float64
	zone                                         string
}

func (q *quotaFlags) add(flags *pflag.FlagSet) {
	flags.Var((*limitFlag)(&q.tasks), "max-concurrent-tasks", "tasks queued, dispatched or running, or none")
	flags.Var((*limitFlag)(&q.queued), "max-queued-tasks", "ready tasks past which no run begins, or none")
	flags.Var((*limitFlag)(&q.runs), "max-concurrent-runs", "runs that have started and not ended, or none")
	flags.Var((*limitFlag)(&q.daily), "max-daily-runs", "runs made since midnight of the tenant's zone, or none")
	flags.Int32Var(&q.perRun, "max-tasks-per-run", 0, "tasks of a plan, 1 to 10000")
	flags.Var((*limitFlag)(&q.backfill), "max-backfill-runs", "runs of a backfill at once, or none")
	flags.DurationVar(&q.duration, "max-run-duration", 0, "how long a run may take, such as 6h")
	flags.Float64Var(&q.weight, "fairness-weight", 0, "the share of workers, against other tenants, 0.001 to 1000")
	flags.StringVar(&q.zone, "zone", "", "the time zone of the tenant's days, such as Europe/Berlin")
}

// changed are the quotas whose flags were given.
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

// Type is what help shows.
func (l *limitFlag) Type() string { return "NUMBER" }

// Set reads a number or none.
func (l *limitFlag) Set(text string) error {
	if strings.EqualFold(text, "none") {
		*l = noLimit
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < noLimit {
		return errors.New("must be a whole number from 0 on, or none")
	}
	*l = limitFlag(n)
	return nil
}
