package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newTenants is the group of commands about tenants.
func newTenants() *cobra.Command {
	return group("tenants", "Manage tenants and show their metrics",
		newShow(spec{use: "create NAME", short: `Create a tenant with the workspace "default"`, example: "  servo tenants create acme"},
			func(ctx context.Context, s *session) (*servov1.Tenant, error) {
				return s.client.Tenants().CreateTenant(ctx, &servov1.CreateTenantRequest{Name: s.args[0]})
			},
			func(w io.Writer, _ *session, t *servov1.Tenant) {
				fmt.Fprintf(w, "tenant %q created\ndeploy to it: servo deploy -f servo.yaml --tenant %s\n", t.GetName(), t.GetName())
			}),
		newList(spec{short: "List tenants by name"}, "no tenants yet; servo tenants create NAME",
			func(ctx context.Context, s *session) ([]*servov1.Tenant, error) {
				return first(client.AllTenants(ctx, s.client, &servov1.ListTenantsRequest{}), 0)
			},
			columns([]string{"TENANT", "ID", "CREATED"}, func(v view, t *servov1.Tenant) []string {
				return []string{clean(t.GetName()), t.GetId(), age(v.now, t.GetCreatedAt())}
			})),
		newTenantsLabel(),
		newTenantsMetrics())
}
