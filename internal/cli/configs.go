package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/fault"
)

// newConfigs looks after configs.
func newConfigs() *cobra.Command {
	return group("configs", "Look after configs: what runs when, for which tenant",
		newConfigsApply(), newConfigsAudit(), newConfigsCreate(), newConfigsDelete(), newConfigsGet(), newConfigsList(),
		newConfigsPause(), newConfigsPreview(), newConfigsReschedule(), newConfigsResume(), newConfigsTrigger())
}

// aboutConfig makes a command one about the config that its first argument names.
func aboutConfig(cmd *cobra.Command, r *remote) *cobra.Command {
	cmd.Args = exactly(1)
	cmd.ValidArgsFunction = completion((*session).configNames)
	if cmd.Long == "" {
		cmd.Long = cmd.Short + "."
	}
	cmd.Long += "\n\nCONFIG is a name in the workspace, or an id."
	addRemote(cmd, r)
	addTenant(cmd, r)
	return cmd
}

// configNames are for completion.
func (s *session) configNames(ctx context.Context) ([]string, error) {
	tenant, err := s.requireTenant(ctx)
	if err != nil {
		return nil, err
	}
	configs, err := first(client.AllConfigs(ctx, s.client, &servov1.ListConfigsRequest{Tenant: tenant, Workspace: s.Workspace}), recentRuns)
	var names []string
	for _, c := range configs {
		names = append(names, c.GetName()+"\t"+clean(c.GetSpec().GetPipeline()))
	}
	return names, err
}

func newConfigsList() *cobra.Command {
	var (
		r                       remote
		pipeline, prefix, state string
		labels                  []string
		limit                   int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List configs, the oldest first",
		Example: `  servo configs list --label provider=AWS --label domain=COST
  servo configs list --state disabled --limit 0 -o json`,
		Args: exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			req := &servov1.ListConfigsRequest{Workspace: s.Workspace, Pipeline: pipeline, NamePrefix: prefix, Label: labels, PageSize: pageSize(limit)}
			if state != "" {
				wanted, err := states[servov1.Config_State]([]string{state}, servov1.Config_State_value)
				if err != nil {
					return err
				}
				if len(wanted) > 1 {
					return usageFault(s.cmd, "--state takes one state")
				}
				req.State = wanted[0]
			}
			var err error
			if req.Tenant, err = s.requireTenant(ctx); err != nil {
				return err
			}
			configs, err := first(client.AllConfigs(ctx, s.client, req), limit)
			if err != nil {
				return err
			}
			return showAll(s, configs, "no such configs; servo configs apply -f DIR", func(w io.Writer) { configsTable(w, s.paint, configs, time.Now()) })
		}),
	}
	cmd.Flags().StringVar(&pipeline, "pipeline", "", "only configs of this pipeline")
	cmd.Flags().StringVar(&prefix, "prefix", "", "only configs whose names begin so")
	cmd.Flags().StringVar(&state, "state", "", "only active, paused or disabled ones")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only configs with this label, as name=value; several must all be there")
	addLimit(cmd, &limit, "configs")
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func configsTable(w io.Writer, p palette, configs []*servov1.Config, now time.Time) {
	var t table
	t.add("CONFIG", "PIPELINE", "STATE", "TRIGGER", "NEXT", "LAST RUN")
	for _, c := range configs {
		last := "-"
		if c.GetLastRun() != nil {
			last = lastRunText(p, c.GetLastRun(), now)
		}
		t.add(configName(c), clean(c.GetSpec().GetPipeline()), p.state(c.GetState().String()), clip(scheduleText(c.GetSpec()), 60), instant(c.GetNextSlot()), last)
	}
	t.print(w)
}

// configName says the workspace where it is not the usual one.
func configName(c *servov1.Config) string {
	if c.GetWorkspace() == "default" {
		return clean(c.GetName())
	}
	return clean(c.GetWorkspace() + "/" + c.GetName())
}

func lastRunText(p palette, r *servov1.LastRun, now time.Time) string {
	if r.GetState() == servov1.Run_STATE_UNSPECIFIED {
		return "not ended"
	}
	return p.state(r.GetState().String()) + " " + age(now, r.GetFinishedAt())
}

// instant is a time as others read it.
func instant(at *timestamppb.Timestamp) string {
	if at == nil {
		return "-"
	}
	return at.AsTime().UTC().Format(time.RFC3339)
}

// scheduleText says when a config fires.
func scheduleText(spec *servov1.ConfigSpec) string {
	t := spec.GetTrigger()
	text := ""
	switch {
	case t.GetManual():
		return "manual"
	case t.GetEvent().GetConfig() != "":
		return "after " + t.GetEvent().GetConfig()
	case t.GetEvent() != nil:
		return "on " + t.GetEvent().GetName()
	case t.GetInterval() != "":
		return "every " + t.GetInterval()
	case t.GetTemplate() != "":
		text = t.GetTemplate()
		if t.GetExpression() != "" {
			text += " (" + t.GetExpression() + ")"
		}
	default:
		text = t.GetCron()
	}
	if zone := spec.GetTimezone(); zone != "" && zone != "UTC" {
		text += " " + zone
	}
	return text
}

func newConfigsGet() *cobra.Command {
	var r remote
	return aboutConfig(&cobra.Command{
		Use:     "get CONFIG",
		Short:   "Show a config: what it says, and where it stands",
		Example: "  servo configs get acme-aws-cost",
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			c, err := s.client.Configs().GetConfig(ctx, &servov1.GetConfigRequest{Tenant: tenant, Workspace: s.Workspace, Config: args[0]})
			if err != nil {
				return err
			}
			return s.show(c, func(w io.Writer) { configText(w, s.paint, c, time.Now()) })
		}),
	}, &r)
}

func configText(w io.Writer, p palette, c *servov1.Config, now time.Time) {
	spec := c.GetSpec()
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	line("config", configName(c))
	line("id", c.GetId())
	line("state", configState(p, c, now))
	line("pipeline", clean(spec.GetPipeline()))
	line("parameters", compact(spec.GetParameters()))
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(spec.GetLabels())) {
		labels = append(labels, clean(name+"="+spec.GetLabels()[name]))
	}
	line("labels", strings.Join(labels, ", "))
	line("trigger", clean(scheduleText(spec)))
	if d := spec.GetDependsOn(); d != nil {
		text := fmt.Sprintf("%s within %s", clean(d.GetConfig()), d.GetWithin())
		if d.GetWait() != "" {
			text += ", waits " + d.GetWait()
		}
		line("depends on", text)
	}
	line("overlap", clean(spec.GetOverlap()))
	line("catchup", clean(spec.GetCatchup().GetPolicy()))
	line("jitter", spec.GetJitter())
	line("priority", fmt.Sprint(spec.GetPriority()))
	line("limits", fmt.Sprintf("runs take at most %s and start within %s; disabled after %d failures", spec.GetMaxExecution(), spec.GetSlaStartDelay(), spec.GetMaxConsecutiveFailures()))
	next := instant(c.GetNextSlot())
	if c.GetRescheduledTo() != nil {
		next += " (rescheduled)"
	}
	line("next slot", next)
	if c.GetLastSlot() != nil {
		line("last slot", when(now, c.GetLastSlot()))
	}
	if c.GetLastRun() != nil {
		line("last run", c.GetLastRun().GetId()+" "+lastRunText(p, c.GetLastRun(), now))
	}
	if c.GetConsecutiveFailures() > 0 {
		line("failures", fmt.Sprintf("%d one after the other", c.GetConsecutiveFailures()))
	}
	line("version", fmt.Sprintf("%d, of %s", c.GetVersion(), when(now, c.GetUpdatedAt())))
}

// configState is the state, since when and why.
func configState(p palette, c *servov1.Config, now time.Time) string {
	text, why := p.state(c.GetState().String()), c.GetDisabledReason()
	if c.GetState() == servov1.Config_PAUSED {
		text += " since " + when(now, c.GetPausedAt())
		why = c.GetPauseNote()
	}
	if why != "" {
		text += ": " + clip(why, 200)
	}
	return text
}

func newConfigsCreate() *cobra.Command {
	var (
		r            remote
		file, reason string
	)
	cmd := &cobra.Command{
		Use:     "create -f FILE",
		Short:   "Make a config of a file that has one",
		Long:    "Make a config of a file that has one, YAML or JSON. One that exists is not changed: servo configs apply does that.",
		Example: "  servo configs create -f acme-aws-cost.yaml",
		Args:    exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			if file == "" {
				return usageFault(s.cmd, "--file is needed: a file, or - for standard input")
			}
			documents, err := readConfigs(s.cmd, file, s.Workspace)
			if err != nil {
				return err
			}
			if len(documents) > 1 {
				return fault.New(fault.InvalidArgument, fmt.Sprintf("%s has %d configs", file, len(documents)), fault.Field("--file"), fault.Remedy("use servo configs apply"))
			}
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			in := documents[0].input
			c, err := s.client.Configs().CreateConfig(ctx, &servov1.CreateConfigRequest{
				Tenant: tenant, Workspace: documents[0].workspace, Name: in.GetName(), Spec: in.GetSpec(), Enabled: in.Enabled, Reason: reason,
			})
			if p, ok := errors.AsType[*client.Problem](err); ok {
				return inFile(p, documents[0])
			}
			if err != nil {
				return err
			}
			return s.show(c, func(w io.Writer) {
				fmt.Fprintf(w, "config %s is there; its next slot is %s\n", configName(c), instant(c.GetNextSlot()))
			})
		}),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the config, YAML or JSON, or - for standard input")
	addReason(cmd, &reason)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

// inFile names the fields of a problem as the file does.
func inFile(p *client.Problem, d document) error {
	name := func(field *string) {
		if rest, of := strings.CutPrefix(*field, "spec."); of || rest == "name" || rest == "enabled" {
			*field = d.place() + ": " + rest
		}
	}
	name(&p.Field)
	for i := range p.Violations {
		name(&p.Violations[i].Field)
	}
	return p
}

func newConfigsDelete() *cobra.Command {
	var (
		r       remote
		version int32
		reason  string
		force   bool
	)
	cmd := aboutConfig(&cobra.Command{
		Use:   "delete CONFIG",
		Short: "End a config; its runs go on, its ledger stays",
		Long: `End a config. Its runs go on, its ledger stays, its name is free. While other configs run after it
or depend on it that is refused, unless it is forced: then their slots find that it has not
succeeded.`,
		Example: `  servo configs delete acme-aws-cost --reason "the account is closed"`,
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			gone, err := s.client.Configs().DeleteConfig(ctx, &servov1.DeleteConfigRequest{Tenant: tenant, Workspace: s.Workspace, Config: args[0], Version: version, Reason: reason, Force: force})
			if err != nil {
				return err
			}
			return s.show(gone, func(w io.Writer) { fmt.Fprintf(w, "config %s is deleted\n", clean(args[0])) })
		}),
	}, &r)
	cmd.Flags().Int32Var(&version, "version", 0, "only if the config is still at this version (0: whatever is there)")
	cmd.Flags().BoolVar(&force, "force", false, "although other configs run after it or depend on it")
	addReason(cmd, &reason)
	return cmd
}

func newConfigsPause() *cobra.Command {
	var (
		r      remote
		reason string
	)
	cmd := aboutConfig(&cobra.Command{
		Use:     "pause CONFIG",
		Short:   "Stop the slots of a config",
		Example: `  servo configs pause acme-aws-cost --reason "the API is down"`,
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			c, err := s.client.Configs().PauseConfig(ctx, &servov1.PauseConfigRequest{Tenant: tenant, Workspace: s.Workspace, Config: args[0], Reason: reason})
			if err != nil {
				return err
			}
			return s.show(c, func(w io.Writer) {
				fmt.Fprintf(w, "config %s is %s\ngo on: servo configs resume %s%s\n", configName(c), configState(s.paint, c, time.Now()), clean(args[0]), s.again())
			})
		}),
	}, &r)
	addReason(cmd, &reason)
	return cmd
}

func newConfigsResume() *cobra.Command {
	var (
		r      remote
		reason string
	)
	cmd := aboutConfig(&cobra.Command{
		Use:   "resume CONFIG",
		Short: "Let the slots of a paused or disabled config fire again",
		Long: `Let the slots of a paused or disabled config fire again, from the next one on. Those that have
passed do not fire: the ledger says why. Failures are counted anew.`,
		Example: "  servo configs resume acme-aws-cost",
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			c, err := s.client.Configs().ResumeConfig(ctx, &servov1.ResumeConfigRequest{Tenant: tenant, Workspace: s.Workspace, Config: args[0], Reason: reason})
			if err != nil {
				return err
			}
			return s.show(c, func(w io.Writer) {
				fmt.Fprintf(w, "config %s goes on; its next slot is %s\n", configName(c), instant(c.GetNextSlot()))
			})
		}),
	}, &r)
	addReason(cmd, &reason)
	return cmd
}

func newConfigsTrigger() *cobra.Command {
	var (
		r           remote
		key         string
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
			req := &servov1.TriggerConfigRequest{Tenant: tenant, Workspace: s.Workspace, Config: args[0], TriggeredBy: whoAmI(), WaitForQuota: queue, Queue: queue}
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
			answer, err := s.client.Configs().TriggerConfig(withKey(ctx, key), req)
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
	addWait(cmd, &wait)
	return cmd
}
