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
	"google.golang.org/protobuf/types/known/timestamppb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// newConfigs looks after configs.
func newConfigs() *cobra.Command {
	return group("configs", "Look after configs: what runs when, for which tenant",
		newConfigsApply(), newConfigsAudit(), newConfigsCreate(), newConfigsDelete(), newConfigsEdit(), newConfigsExport(), newConfigsGet(), newConfigsList(),
		newConfigsPause(), newConfigsPreview(), newConfigsReschedule(), newConfigsRestore(), newConfigsResume(), newConfigsTrigger())
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
	configs, err := first(client.AllConfigs(ctx, s.client, &servov1.ListConfigsRequest{Tenant: tenant, Workspace: s.Workspace}), offeredNames)
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
		everybody, deleted      bool
		limit                   int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List configs, the oldest first",
		Example: `  servo configs list --label provider=AWS --label domain=COST
  servo configs list --state disabled --limit 0 -o json
  servo configs list --deleted`,
		Args: exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			req := &servov1.ListConfigsRequest{Workspace: s.Workspace, Pipeline: pipeline, NamePrefix: prefix, Label: labels, Deleted: deleted, PageSize: pageSize(limit)}
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
			if !everybody {
				if req.Tenant, err = s.requireTenant(ctx); err != nil {
					return err
				}
			}
			configs, err := listed(s, client.AllConfigs(ctx, s.client, req), limit)
			if err != nil {
				return err
			}
			return showAll(s, configs, "no such configs; servo configs apply -f DIR", func(w io.Writer) { configsTable(w, s.paint, configs, time.Now(), s.Form == outputWide) })
		}),
	}
	cmd.Flags().StringVar(&pipeline, "pipeline", "", "only configs of this pipeline")
	cmd.Flags().StringVar(&prefix, "prefix", "", "only configs whose names begin so")
	completeFlag(cmd, "pipeline", (*session).pipelineNames)
	cmd.Flags().StringVar(&state, "state", "", "only active, paused or disabled ones")
	completeStates(cmd, servov1.Config_State_value)
	cmd.Flags().BoolVar(&deleted, "deleted", false, "deleted configs; servo configs restore restores one")
	cmd.Flags().BoolVar(&everybody, "all-tenants", false, "configs of all tenants, for the installation's operators")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only configs with this label, as name=value; several must all be there")
	addLimit(cmd, &limit, "configs")
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func configsTable(w io.Writer, p palette, configs []*servov1.Config, now time.Time, wide bool) {
	deleted := slices.ContainsFunc(configs, func(c *servov1.Config) bool { return c.GetDeletedAt() != nil })
	tenants := slices.ContainsFunc(configs, func(c *servov1.Config) bool { return c.GetTenant() != configs[0].GetTenant() })
	var t table
	add := func(c *servov1.Config, cells ...string) {
		tenant := "TENANT"
		if c != nil {
			tenant = clean(c.GetTenant())
		}
		switch {
		case deleted && c == nil:
			cells = append(cells, "DELETED", "ID")
		case deleted:
			cells = append(cells, age(now, c.GetDeletedAt()), c.GetId())
		case wide && c == nil:
			cells = append(cells, "LABELS", "PRIORITY", "VERSION", "ID")
		case wide:
			cells = append(cells, orDash(labelsText(c)), fmt.Sprint(c.GetSpec().GetPriority()), fmt.Sprint(c.GetVersion()), c.GetId())
		}
		if tenants {
			cells = append([]string{tenant}, cells...)
		}
		t.add(cells...)
	}
	add(nil, "CONFIG", "PIPELINE", "STATE", "TRIGGER", "NEXT", "LAST RUN")
	for _, c := range configs {
		last := "-"
		if c.GetLastRun() != nil {
			last = lastRunText(p, c.GetLastRun(), now)
		}
		add(c, configName(c), clean(c.GetSpec().GetPipeline()), p.state(c.GetState().String()), clip(scheduleText(c.GetSpec()), 60), instant(c.GetNextSlot()), last)
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
	if c.GetDeletedAt() != nil {
		line("deleted", when(now, c.GetDeletedAt()))
	}
	line("pipeline", clean(spec.GetPipeline()))
	line("parameters", compact(spec.GetParameters()))
	line("labels", labelsText(c))
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
	if c.GetNextSlot() != nil {
		next := instant(c.GetNextSlot())
		if c.GetRescheduledTo() != nil {
			next += " (rescheduled)"
		}
		line("next slot", next)
	}
	if c.GetLastSlot() != nil {
		line("last slot", when(now, c.GetLastSlot()))
	}
	if c.GetLastRun() != nil {
		line("last run", c.GetLastRun().GetId()+" "+lastRunText(p, c.GetLastRun(), now))
	}
	if c.GetConsecutiveFailures() > 0 {
		line("failures", fmt.Sprintf("%d one after the other", c.GetConsecutiveFailures()))
	}
	for _, warning := range c.GetWarnings() {
		line("warning", clean(warning))
	}
	line("version", fmt.Sprintf("%d, of %s", c.GetVersion(), when(now, c.GetUpdatedAt())))
}

// nextText says when a config fires next.
func nextText(c *servov1.Config) string {
	switch {
	case c.GetNextSlot() != nil:
		return "its next slot is " + instant(c.GetNextSlot())
	case c.GetState() == servov1.Config_PAUSED, c.GetState() == servov1.Config_DISABLED:
		return "it is " + strings.ToLower(c.GetState().String()) + " and has no next slot"
	}
	return "it has no slots"
}

// warn says on standard error what the settings of a config do together that is easily missed.
func (s *session) warn(name string, warnings []string) {
	for _, text := range warnings {
		s.say("warning: config %s: %s", clean(name), clean(text))
	}
}

// labelsText is the labels in the order of their names.
func labelsText(c *servov1.Config) string {
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(c.GetSpec().GetLabels())) {
		labels = append(labels, clean(name+"="+c.GetSpec().GetLabels()[name]))
	}
	return strings.Join(labels, ", ")
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
			s.warn(configName(c), c.GetWarnings())
			return s.show(c, func(w io.Writer) {
				fmt.Fprintf(w, "config %s created; %s\n", configName(c), nextText(c))
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
		labels  byLabel
	)
	cmd := aboutConfig(&cobra.Command{
		Use:   "delete CONFIG|--label NAME=VALUE",
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
			if len(args) == 0 {
				return labels.each(ctx, s, tenant, "delete", "deleted", func(c *servov1.Config) error {
					_, err := s.client.Configs().DeleteConfig(ctx, &servov1.DeleteConfigRequest{Tenant: tenant, Config: c.GetId(), Reason: reason, Force: force})
					return err
				})
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
	labels.add(cmd)
	return cmd
}

func newConfigsPause() *cobra.Command {
	var (
		r      remote
		reason string
		labels byLabel
	)
	cmd := aboutConfig(&cobra.Command{
		Use:     "pause CONFIG|--label NAME=VALUE",
		Short:   "Stop the slots of a config",
		Example: `  servo configs pause acme-aws-cost --reason "the API is down"`,
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return labels.each(ctx, s, tenant, "pause", "paused", func(c *servov1.Config) error {
					_, err := s.client.Configs().PauseConfig(ctx, &servov1.PauseConfigRequest{Tenant: tenant, Config: c.GetId(), Reason: reason})
					return err
				})
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
	labels.add(cmd)
	return cmd
}

func newConfigsResume() *cobra.Command {
	var (
		r      remote
		reason string
		labels byLabel
	)
	cmd := aboutConfig(&cobra.Command{
		Use:   "resume CONFIG|--label NAME=VALUE",
		Short: "Let the slots of a paused or disabled config fire again",
		Long: `Let the slots of a paused or disabled config fire again, from the next one on. Those that have
passed do not fire: the ledger says why. Failures are counted anew.`,
		Example: "  servo configs resume acme-aws-cost",
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return labels.each(ctx, s, tenant, "resume", "resumed", func(c *servov1.Config) error {
					_, err := s.client.Configs().ResumeConfig(ctx, &servov1.ResumeConfigRequest{Tenant: tenant, Config: c.GetId(), Reason: reason})
					return err
				})
			}
			c, err := s.client.Configs().ResumeConfig(ctx, &servov1.ResumeConfigRequest{Tenant: tenant, Workspace: s.Workspace, Config: args[0], Reason: reason})
			if err != nil {
				return err
			}
			return s.show(c, func(w io.Writer) {
				fmt.Fprintf(w, "config %s goes on; %s\n", configName(c), nextText(c))
			})
		}),
	}, &r)
	addReason(cmd, &reason)
	labels.add(cmd)
	return cmd
}
