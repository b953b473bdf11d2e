package cli

import (
	"context"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newFind searches objects by id or by a part of the name.
func newFind() *cobra.Command {
	return newList(spec{
		use: "find TEXT", short: "Find objects by id or by a part of the name",
		long: `Find objects by id or by a part of the name: runs, tasks, configs, pipelines, assets,
deployments, alerts, keys, tenants, pools, locks. Up to 5 of each kind are shown, and only those
that the caller may read.

Without --tenant all tenants are searched, which needs a platform key; locks are
searched in one tenant only, pipelines and assets in the first 20 tenants. Keys are found by their names, and by the first 4 or more
digits of the ids that servo keys list shows.`,
		example: "  servo find 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10\n  servo find nightly --tenant acme",
		flags:   addTenant,
	}, "nothing found", func(ctx context.Context, s *session) ([]*servov1.Found, error) {
		answer, err := s.client.Search().Search(ctx, &servov1.SearchRequest{Q: s.args[0], Tenant: s.Tenant, Workspace: s.Workspace})
		if answer.GetPartial() {
			s.report("pipelines and assets of the first 20 tenants were searched; name another tenant with --tenant")
		}
		if answer.GetCut() {
			s.report("too many configs, not all were searched; name a tenant with --tenant")
		}
		return answer.GetFound(), err
	}, columns([]string{"KIND", "NAME", "STATE", "TENANT", "WORKSPACE", "ID", "RUN"}, func(_ view, f *servov1.Found) []string {
		return []string{f.GetKind(), clip(f.GetName(), 60), orDash(f.GetState()), orDash(f.GetTenant()), orDash(f.GetWorkspace()), orDash(f.GetId()), orDash(f.GetRun())}
	}))
}
