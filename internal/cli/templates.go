package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newTemplates is the group of commands about templates.
func newTemplates() *cobra.Command {
	return group("templates", "Manage named schedules for use in configs",
		newDelete("template", spec{short: "Delete an unused template", example: "  servo templates delete weekdays-6am", tenant: true},
			func(ctx context.Context, s *session) (*servov1.DeleteTemplateResponse, error) {
				return s.client.Templates().DeleteTemplate(ctx, &servov1.DeleteTemplateRequest{Tenant: s.Tenant, Name: s.args[0]})
			}),
		newShow(spec{use: "list", short: "List the templates of a tenant", tenant: true},
			func(ctx context.Context, s *session) (*servov1.ListTemplatesResponse, error) {
				return s.client.Templates().ListTemplates(ctx, &servov1.ListTemplatesRequest{Tenant: s.Tenant})
			},
			func(w io.Writer, s *session, answer *servov1.ListTemplatesResponse) {
				columns([]string{"TEMPLATE", "CRON", "OF", "DESCRIPTION"}, func(_ view, t *servov1.Template) []string {
					owner := clean(s.Tenant)
					if t.GetBuiltIn() {
						owner = "built in"
					}
					return []string{clean(t.GetName()), clean(t.GetCron()), owner, orDash(clip(t.GetDescription(), 60))}
				})(w, s.view(), answer.GetTemplates())
			}),
		newTemplatesSet())
}

func newTemplatesSet() *cobra.Command {
	var cron, description string
	return newShow(spec{
		use: "set NAME", short: "Create or update a template", tenant: true, version: "template",
		long: `Create a template, or update it together with every config that uses it: their past slots keep
their outcomes, and later ones follow the new expression. A built-in template cannot be changed.`,
		example: `  servo templates set weekdays-6am --cron "0 6 * * 1-5"`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&cron, "cron", "", "cron expression, as in the trigger of a config")
			cmd.Flags().StringVar(&description, "description", "", "description of the template")
		},
		check: func(s *session) error {
			if cron == "" {
				return usageFault(s.cmd, `--cron is missing: give an expression such as "0 6 * * 1-5"`)
			}
			return nil
		},
	}, func(ctx context.Context, s *session) (*servov1.SetTemplateResponse, error) {
		return s.client.Templates().SetTemplate(ctx, &servov1.SetTemplateRequest{
			Tenant: s.Tenant, Name: s.args[0], Cron: cron, Description: description, Version: s.version,
		})
	}, func(w io.Writer, s *session, answer *servov1.SetTemplateResponse) {
		fmt.Fprintf(w, "template %s is %s; %s changed\n", clean(s.args[0]), clean(answer.GetTemplate().GetCron()), count(int(answer.GetConfigsChanged()), "config"))
	})
}
