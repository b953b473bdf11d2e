package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newTenants looks after tenants.
func newTenants() *cobra.Command {
	return group("tenants", "Make and list tenants, and show what has become of their runs", newTenantsCreate(), newTenantsList(), newTenantsMetrics())
}

func newTenantsCreate() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Make a tenant with a workspace named default",
		Example: "  servo tenants create acme",
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			made, err := s.client.Tenants().CreateTenant(ctx, &servov1.CreateTenantRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return s.show(made, func(w io.Writer) {
				fmt.Fprintf(w, "tenant %s is there\ndeploy to it: servo deploy -f servo.yaml --tenant %s\n", made.GetName(), made.GetName())
			})
		}),
	}
	addRemote(cmd, &r)
	return cmd
}

func newTenantsList() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tenants by name",
		Args:  exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			tenants, err := first(client.AllTenants(ctx, s.client, &servov1.ListTenantsRequest{}), 0)
			if err != nil {
				return err
			}
			return showAll(s, tenants, "no tenants yet; servo tenants create NAME", func(w io.Writer) {
				var t table
				t.add("TENANT", "ID", "CREATED")
				for _, tenant := range tenants {
					t.add(clean(tenant.GetName()), tenant.GetId(), age(time.Now(), tenant.GetCreatedAt()))
				}
				t.print(w)
			})
		}),
	}
	addRemote(cmd, &r)
	return cmd
}
