package cli

import (
	"cmp"
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

// newConfigs is the group of commands about configs.
func newConfigs() *cobra.Command {
	return group("configs", "Manage configs: schedules and parameters of pipelines",
		newConfigsApply(), newConfigsAudit(), newConfigsCreate(), newConfigsDelete(), newConfigsEdit(), newConfigsExport(),
		newShow(ofConfig(spec{use: "get CONFIG", short: "Show a config and its state", example: "  servo configs get acme-aws-cost"}),
			getConfig, func(w io.Writer, s *session, c *servov1.Config) { configText(w, s.paint, c, time.Now()) }),
		newConfigsList(), newConfigsPause(), newConfigsPreview(), newConfigsReschedule(), newConfigsRestore(), newConfigsResume(), newConfigsTrigger())
}

// ofConfig describes a command about the config that its first argument names.
func ofConfig(c spec) spec {
	c.tenant = true
	c.names = []nameSource{(*session).configNames}
	c.long = cmp.Or(c.long, c.short+".") + "\n\nCONFIG is a name in the workspace, or an id."
	return c
}

// getConfig returns the config that the first argument names.
func getConfig(ctx context.Context, s *session) (*servov1.Config, error) {
	return s.client.Configs().GetConfig(ctx, &servov1.GetConfigRequest{Tenant: s.Tenant, Workspace: s.Workspace, Config: s.args[0]})
}

func newConfigsList() *cobra.Command {
	var (
		pipeline, prefix, state string
		labels                  []string
		allTenants, deleted     bool
	)
	return newList(spec{
		short: "List configs, oldest first", limit: "configs",
		example: `  servo configs list --label provider=AWS --label domain=COST
  servo configs list --state disabled --limit 0 -o json
  servo configs list --deleted`,
		flags: func(cmd *cobra.Command) {
			addTenant(cmd)
			cmd.Flags().StringVar(&pipeline, "pipeline", "", "filter by pipeline")
			completeFlag(cmd, "pipeline", (*session).pipelineNames)
			cmd.Flags().StringVar(&prefix, "prefix", "", "filter by the beginning of the name")
			cmd.Flags().StringVar(&state, "state", "", "filter by state: active, paused or disabled")
			completeStates(cmd, servov1.Config_State_value)
			cmd.Flags().BoolVar(&deleted, "deleted", false, "list deleted configs; servo configs restore restores one")
			cmd.Flags().BoolVar(&allTenants, "all-tenants", false, "configs of all tenants (platform keys only)")
			addLabels(cmd, &labels)
		},
	}, "no such configs; servo configs apply -f DIR", func(ctx context.Context, s *session) ([]*servov1.Config, error) {
		req := &servov1.ListConfigsRequest{Workspace: s.Workspace, Pipeline: pipeline, NamePrefix: prefix, Label: labels, Deleted: deleted, PageSize: pageSize(s.limit)}
		if state != "" {
			wanted, err := states[servov1.Config_State]([]string{state}, servov1.Config_State_value)
			if err != nil {
				return nil, err
			}
			if len(wanted) > 1 {
				return nil, usageFault(s.cmd, "--state takes one state")
			}
			req.State = wanted[0]
		}
		if !allTenants {
			var err error
			if req.Tenant, err = s.requireTenant(ctx); err != nil {
				return nil, err
			}
		}
		return listed(s, client.AllConfigs(ctx, s.client, req))
	}, configsTable)
}

// addLabels gives a command the filter --label.
func addLabels(cmd *cobra.Command, to *[]string) {
	cmd.Flags().StringArrayVar(to, "label", nil, "filter by label, as name=value; repeatable, all must match")
}

func configsTable(w io.Writer, v view, configs []*servov1.Config) {
	p, now, wide := v.paint, v.now, v.wide
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

// configName includes the workspace unless it is "default".
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

// instant is a time in UTC.
func instant(at *timestamppb.Timestamp) string {
	if at == nil {
		return "-"
	}
	return at.AsTime().UTC().Format(time.RFC3339)
}

// scheduleText describes the trigger of a config.
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
		line("failures", fmt.Sprintf("%d in a row", c.GetConsecutiveFailures()))
	}
	for _, warning := range c.GetWarnings() {
		line("warning", clean(warning))
	}
	line("version", fmt.Sprintf("%d, of %s", c.GetVersion(), when(now, c.GetUpdatedAt())))
}

// nextText states when a config fires next.
func nextText(c *servov1.Config) string {
	switch {
	case c.GetNextSlot() != nil:
		return "its next slot is " + instant(c.GetNextSlot())
	case c.GetState() == servov1.Config_PAUSED, c.GetState() == servov1.Config_DISABLED:
		return "it is " + strings.ToLower(c.GetState().String()) + " and has no next slot"
	}
	return "it has no slots"
}

// warn reports effects of a config's settings that are easily missed.
func (s *session) warn(name string, warnings []string) {
	for _, text := range warnings {
		s.report("warning: config %s: %s", clean(name), clean(text))
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

// configState is the state with its time and reason.
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
		file      string
		documents []document
	)
	return newCall(spec{
		use: "create -f FILE", short: "Create a config from a file", tenant: true, reason: true,
		long:    "Create a config from a file with one config, YAML or JSON. A config that exists is not changed: use servo configs apply for that.",
		example: "  servo configs create -f acme-aws-cost.yaml",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVarP(&file, "file", "f", "", "config file, YAML or JSON, or - for standard input")
		},
		check: func(s *session) (err error) {
			if file == "" {
				return usageFault(s.cmd, "--file is missing: give a file, or - for standard input")
			}
			if documents, err = readConfigs(s.cmd, file, s.Workspace); err == nil && len(documents) > 1 {
				return fault.New(fault.InvalidArgument, fmt.Sprintf("%s has %d configs", file, len(documents)), fault.Field("--file"), fault.Remedy("use servo configs apply"))
			}
			return err
		},
	}, func(ctx context.Context, s *session) error {
		in := documents[0].input
		c, err := s.client.Configs().CreateConfig(ctx, &servov1.CreateConfigRequest{
			Tenant: s.Tenant, Workspace: documents[0].workspace, Name: in.GetName(), Spec: in.GetSpec(), Enabled: in.Enabled, Reason: s.reason,
		})
		if p, ok := errors.AsType[*client.Problem](err); ok {
			return inFile(p, documents[0])
		}
		if err != nil {
			return err
		}
		s.warn(configName(c), c.GetWarnings())
		return s.show(c, func(w io.Writer) { fmt.Fprintf(w, "config %s created; %s\n", configName(c), nextText(c)) })
	})
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
	var force bool
	return forConfigs("delete", "deleted", spec{
		short: "Delete a config (its runs continue)", version: "config",
		long: `Delete a config. Its runs continue, the record of its slots is kept, and its name is free. The
command is refused while other configs run after it or depend on it, unless --force is given:
then their slots find that it has not succeeded.`,
		example: `  servo configs delete acme-aws-cost --reason "the account is closed"`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&force, "force", false, "delete although other configs run after it or depend on it")
		},
	}, func(ctx context.Context, s *session, workspace, config string) (*servov1.DeleteConfigResponse, error) {
		return s.client.Configs().DeleteConfig(ctx, &servov1.DeleteConfigRequest{
			Tenant: s.Tenant, Workspace: workspace, Config: config, Version: s.version, Reason: s.reason, Force: force,
		})
	}, func(w io.Writer, s *session, _ *servov1.DeleteConfigResponse) {
		fmt.Fprintf(w, "config %s deleted\n", clean(s.args[0]))
	})
}

func newConfigsPause() *cobra.Command {
	return forConfigs("pause", "paused", spec{
		short: "Pause a config: its slots do not fire", example: `  servo configs pause acme-aws-cost --reason "the API is down"`,
	}, func(ctx context.Context, s *session, workspace, config string) (*servov1.Config, error) {
		return s.client.Configs().PauseConfig(ctx, &servov1.PauseConfigRequest{Tenant: s.Tenant, Workspace: workspace, Config: config, Reason: s.reason})
	}, func(w io.Writer, s *session, c *servov1.Config) {
		fmt.Fprintf(w, "config %s is %s\nresume: servo configs resume %s%s\n", configName(c), configState(s.paint, c, time.Now()), clean(s.args[0]), s.again())
	})
}

func newConfigsResume() *cobra.Command {
	return forConfigs("resume", "resumed", spec{
		short: "Resume a paused or disabled config",
		long: `Resume a paused or disabled config, from its next slot on. Past slots do not fire; the list of
slots gives the reason. The count of failures starts again at 0.`,
		example: "  servo configs resume acme-aws-cost",
	}, func(ctx context.Context, s *session, workspace, config string) (*servov1.Config, error) {
		return s.client.Configs().ResumeConfig(ctx, &servov1.ResumeConfigRequest{Tenant: s.Tenant, Workspace: workspace, Config: config, Reason: s.reason})
	}, func(w io.Writer, _ *session, c *servov1.Config) {
		fmt.Fprintf(w, "config %s resumed; %s\n", configName(c), nextText(c))
	})
}
