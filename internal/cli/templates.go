package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newTemplates looks after schedules with a name.
func newTemplates() *cobra.Command {
	return group("templates", "Look after schedules with a name, which configs use in place of an expression",
		newTemplatesDelete(), newTemplatesList(), newTemplatesSet())
}

func newTemplatesList() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the templates that a tenant can use",
		Args:  exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			answer, err := s.client.Templates().ListTemplates(ctx, &servov1.ListTemplatesRequest{Tenant: tenant})
			if err != nil {
				return err
			}
			return s.show(answer, func(w io.Writer) {
				var t table
				t.add("TEMPLATE", "CRON", "OF", "DESCRIPTION")
				for _, one := range answer.GetTemplates() {
					of := clean(tenant)
					if one.GetBuiltIn() {
						of = "everybody"
					}
					t.add(clean(one.GetName()), clean(one.GetCron()), of, orDash(clip(one.GetDescription(), 60)))
				}
				t.print(w)
			})
		}),
	}
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func newTemplatesSet() *cobra.Command {
	var (
		r                 remote
		cron, description string
		version           int32
	)
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a template, or change it and every config that uses it",
		Long: `Make a template, or change it together with every config that uses it: their slots up to now are
accounted for, and those that come follow the new expression. A template that is built in cannot
be changed.`,
		Example: `  servo templates set weekdays-6am --cron "0 6 * * 1-5"`,
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			if cron == "" {
				return usageFault(s.cmd, `--cron is missing: give an expression such as "0 6 * * 1-5"`)
			}
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			answer, err := s.client.Templates().SetTemplate(ctx, &servov1.SetTemplateRequest{
				Tenant: tenant, Name: args[0], Cron: cron, Description: description, Version: version,
			})
			if err != nil {
				return err
			}
			return s.show(answer, func(w io.Writer) {
				fmt.Fprintf(w, "template %s is %s; %s changed\n", clean(args[0]), clean(answer.GetTemplate().GetCron()), count(int(answer.GetConfigsChanged()), "config"))
			})
		}),
	}
	cmd.Flags().StringVar(&cron, "cron", "", "the expression, as in the trigger of a config")
	cmd.Flags().StringVar(&description, "description", "", "for people")
	cmd.Flags().Int32Var(&version, "version", 0, "only if the template is still at this version (0: whatever is there)")
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func newTemplatesDelete() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:     "delete NAME",
		Short:   "End a template that no config uses",
		Example: "  servo templates delete weekdays-6am",
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			gone, err := s.client.Templates().DeleteTemplate(ctx, &servov1.DeleteTemplateRequest{Tenant: tenant, Name: args[0]})
			if err != nil {
				return err
			}
			return s.show(gone, func(w io.Writer) { fmt.Fprintf(w, "template %s is deleted\n", clean(args[0])) })
		}),
	}
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}
