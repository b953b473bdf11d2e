package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newFind finds things by an id, or by a part of a name.
func newFind() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "find TEXT",
		Short: "Find what has an id, or a text in its name",
		Long: `Find what has an id, or a text in its name: runs, tasks, configs, pipelines,
assets, deployments, alerts, keys, tenants, pools, locks. Up to 5 of each kind are shown, and
only what the caller may read.

Without --tenant it looks in all tenants, which needs a platform key; pipelines, assets and locks
are looked for in one tenant only. Keys are found by their names, and by the first 4 or more
digits of the ids that servo keys list shows.`,
		Example: "  servo find 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10\n  servo find nightly --tenant acme",
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			answer, err := s.client.Search().Search(ctx, &servov1.SearchRequest{Q: args[0], Tenant: s.Tenant, Workspace: s.Workspace})
			if err != nil {
				return err
			}
			if answer.GetPartial() {
				s.say("pipelines, assets and locks are looked for with --tenant only")
			}
			if answer.GetCut() {
				s.say("not every config was looked at: there are too many, name one of the tenants with --tenant")
			}
			return showAll(s, answer.GetFound(), "nothing found", func(w io.Writer) {
				var t table
				t.add("KIND", "NAME", "STATE", "TENANT", "WORKSPACE", "ID", "RUN")
				for _, f := range answer.GetFound() {
					t.add(f.GetKind(), clip(f.GetName(), 60), orDash(f.GetState()), orDash(clean(f.GetTenant())), orDash(clean(f.GetWorkspace())), orDash(f.GetId()), orDash(f.GetRun()))
				}
				t.print(w)
			})
		}),
	}
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}
