package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// byLabel is the flags of a command about one config that can be about several.
type byLabel struct {
	labels []string
	yes    bool
}

// add gives a command --label and --yes, and lets its argument be left out for them.
func (b *byLabel) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&b.labels, "label", nil, "all configs with this label instead of one, as name=value; several must all be there")
	cmd.Flags().BoolVarP(&b.yes, "yes", "y", false, "do not ask before several configs are changed")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(b.labels) == 0:
			return exactly(1)(cmd, args)
		case len(args) > 0:
			return usageFault(cmd, "name a CONFIG or --label, not both")
		}
		return nil
	}
}

// each does something to all configs that have the labels, once a person agrees. It stops at the
// first that fails: what was done before is said.
func (b *byLabel) each(ctx context.Context, s *session, tenant, verb, past string, do func(c *servov1.Config) error) error {
	req := &servov1.ListConfigsRequest{Tenant: tenant, Workspace: s.Workspace, Label: b.labels, PageSize: pageSize(0)}
	configs, err := first(client.AllConfigs(ctx, s.client, req), 0)
	if err != nil {
		return err
	}
	if len(configs) == 0 {
		return fault.New(fault.NotFound, "no config has these labels", fault.Field("--label"), fault.Remedy("see servo configs list -o wide"))
	}
	if !b.yes {
		for _, c := range configs[:min(len(configs), shownConfigs)] {
			s.say("%s", configName(c))
		}
		if err := confirm(s.cmd, fmt.Sprintf("%s %s of %s?", verb, count(len(configs), "config"), clean(tenant))); err != nil {
			return err
		}
	}
	for i, c := range configs {
		if err := do(c); err != nil {
			s.say("%s before that: %s", past, count(i, "config"))
			var problem *client.Problem
			if errors.As(err, &problem) {
				problem.Message = configName(c) + ": " + problem.Message
			}
			return err
		}
	}
	return showAll(s, configs, "", func(w io.Writer) { fmt.Fprintf(w, "%s %s of %s\n", past, count(len(configs), "config"), clean(tenant)) })
}

// newConfigsRestore creates a deleted config again.
func newConfigsRestore() *cobra.Command {
	var (
		r      remote
		reason string
	)
	cmd := &cobra.Command{
		Use:   "restore CONFIG",
		Short: "Create a deleted config again",
		Long: `Create a deleted config again, as it was, with a new id. Slots between the deletion and now do not
fire. What was recorded of the deleted one (audit, slots, runs) stays under its id. A config that
was paused or disabled is restored disabled.

CONFIG is an id that servo configs list --deleted shows, or a name: of several deleted configs of
that name the one that was deleted last.`,
		Example: "  servo configs restore acme-aws-cost",
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			gone, err := s.deletedConfig(ctx, tenant, args[0])
			if err != nil {
				return err
			}
			enabled := gone.GetState() == servov1.Config_ACTIVE
			if reason == "" {
				reason = "restored from " + gone.GetId()
			}
			c, err := s.client.Configs().CreateConfig(ctx, &servov1.CreateConfigRequest{
				Tenant: tenant, Workspace: gone.GetWorkspace(), Name: gone.GetName(), Spec: gone.GetSpec(), Enabled: &enabled, Reason: reason,
			})
			if err != nil {
				return err
			}
			return s.show(c, func(w io.Writer) {
				if !enabled {
					fmt.Fprintf(w, "restored config %s from %s; it is disabled\nenable it: servo configs resume %s%s\n", configName(c), gone.GetId(), clean(c.GetName()), s.again())
					return
				}
				fmt.Fprintf(w, "restored config %s from %s; %s\n", configName(c), gone.GetId(), nextText(c))
			})
		}),
	}
	addReason(cmd, &reason)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

// deletedConfig finds a deleted config by its id, or the last of a name.
func (s *session) deletedConfig(ctx context.Context, tenant, name string) (*servov1.Config, error) {
	req := &servov1.ListConfigsRequest{Tenant: tenant, Workspace: s.Workspace, Deleted: true, PageSize: pageSize(0)}
	var found *servov1.Config
	for c, err := range client.AllConfigs(ctx, s.client, req) {
		if err != nil {
			return nil, err
		}
		later := found == nil || c.GetDeletedAt().AsTime().After(found.GetDeletedAt().AsTime())
		if c.GetId() == name || c.GetName() == name && later {
			found = c
		}
		if c.GetId() == name {
			break
		}
	}
	if found == nil {
		return nil, fault.New(fault.NotFound, "no deleted config "+clean(name), fault.Field("CONFIG"), fault.Remedy("see servo configs list --deleted"))
	}
	return found, nil
}
