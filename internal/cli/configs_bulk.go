package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// forConfigs builds a command that changes the config that its argument names, or all configs with
// the labels that --label gives. With labels call gets no workspace and the id of a config.
func forConfigs[M proto.Message](verb, past string, c spec, call func(ctx context.Context, s *session, workspace, config string) (M, error), text func(w io.Writer, s *session, m M)) *cobra.Command {
	var (
		labels []string
		yes    bool
	)
	own := c.flags
	c.use, c.reason = verb+" CONFIG|--label NAME=VALUE", true
	c.flags = func(cmd *cobra.Command) {
		if own != nil {
			own(cmd)
		}
		cmd.Flags().StringArrayVar(&labels, "label", nil, "all configs with this label instead of one, as name=value; repeatable, all must match")
		addYes(cmd, &yes)
	}
	cmd := newCall(ofConfig(c), func(ctx context.Context, s *session) error {
		if len(s.args) == 0 {
			return s.eachConfig(ctx, labels, yes, verb, past, func(id string) error {
				s.version = 0 // of one config
				_, err := call(ctx, s, "", id)
				return err
			})
		}
		m, err := call(ctx, s, s.Workspace, s.args[0])
		if err != nil {
			return err
		}
		return s.show(m, func(w io.Writer) { text(w, s, m) })
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(labels) == 0:
			return exactly(1)(cmd, args)
		case len(args) > 0:
			return usageFault(cmd, "name a CONFIG or --label, not both")
		}
		return nil
	}
	return cmd
}

// addYes gives a command --yes.
func addYes(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVarP(to, "yes", "y", false, "skip the confirmation")
}

// eachConfig changes all configs that have the labels, after a confirmation. It stops at the first
// that fails, and reports how many were changed before.
func (s *session) eachConfig(ctx context.Context, labels []string, yes bool, verb, past string, do func(id string) error) error {
	req := &servov1.ListConfigsRequest{Tenant: s.Tenant, Workspace: s.Workspace, Label: labels, PageSize: pageSize(0)}
	configs, err := first(client.AllConfigs(ctx, s.client, req), 0)
	if err != nil {
		return err
	}
	if len(configs) == 0 {
		return fault.New(fault.NotFound, "no config has these labels", fault.Field("--label"), fault.Remedy("see servo configs list -o wide"))
	}
	if !yes {
		for _, c := range configs[:min(len(configs), shownConfigs)] {
			s.report("%s", configName(c))
		}
		if err := confirm(s.cmd, fmt.Sprintf("%s %s of %s?", verb, count(len(configs), "config"), clean(s.Tenant))); err != nil {
			return err
		}
	}
	for i, c := range configs {
		if err := do(c.GetId()); err != nil {
			s.report("%s before the failure: %s", past, count(i, "config"))
			if p, ok := errors.AsType[*client.Problem](err); ok {
				p.Message = configName(c) + ": " + p.Message
			}
			return err
		}
	}
	return showAll(s, configs, "", func(w io.Writer) {
		fmt.Fprintf(w, "%s %s of %s\n", past, count(len(configs), "config"), clean(s.Tenant))
	})
}

// newConfigsRestore creates a deleted config again.
func newConfigsRestore() *cobra.Command {
	return newCall(spec{
		use: "restore CONFIG", short: "Create a deleted config again", example: "  servo configs restore acme-aws-cost", tenant: true, reason: true,
		long: `Create a deleted config again, as it was, with a new id. Slots between the deletion and now do not
fire. Audit, slots and runs of the deleted config are kept under its id. A config that was paused
or disabled is restored disabled.

CONFIG is an id that servo configs list --deleted shows, or a name: of several deleted configs of
that name the one that was deleted last.`,
	}, func(ctx context.Context, s *session) error {
		gone, err := s.deletedConfig(ctx, s.args[0])
		if err != nil {
			return err
		}
		enabled := gone.GetState() == servov1.Config_ACTIVE
		c, err := s.client.Configs().CreateConfig(ctx, &servov1.CreateConfigRequest{
			Tenant: s.Tenant, Workspace: gone.GetWorkspace(), Name: gone.GetName(), Spec: gone.GetSpec(), Enabled: &enabled,
			Reason: cmp.Or(s.reason, "restored from "+gone.GetId()),
		})
		if err != nil {
			return err
		}
		return s.show(c, func(w io.Writer) {
			if !enabled {
				fmt.Fprintf(w, "config %s restored from %s; it is disabled\nenable it: servo configs resume %s%s\n", configName(c), gone.GetId(), clean(c.GetName()), s.again())
				return
			}
			fmt.Fprintf(w, "config %s restored from %s; %s\n", configName(c), gone.GetId(), nextText(c))
		})
	})
}

// deletedConfig finds a deleted config by its id, or the one of a name that was deleted last.
func (s *session) deletedConfig(ctx context.Context, name string) (*servov1.Config, error) {
	req := &servov1.ListConfigsRequest{Tenant: s.Tenant, Workspace: s.Workspace, Deleted: true, PageSize: pageSize(0)}
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
