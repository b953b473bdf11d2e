package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
)

// newDeployments reads what was deployed.
func newDeployments() *cobra.Command {
	return group("deployments", "Read what was deployed", newDeploymentsGet(), newDeploymentsList())
}

func newDeploymentsList() *cobra.Command {
	var (
		r     remote
		limit int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List deployments, the newest first",
		Args:  exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			list, err := listed(s, client.AllDeployments(ctx, s.client, &servov1.ListDeploymentsRequest{Tenant: tenant, Workspace: s.Workspace}), limit)
			if err != nil {
				return err
			}
			return showAll(s, list, "nothing is deployed yet; servo deploy -f servo.yaml", func(w io.Writer) {
				var t table
				t.add("DEPLOYMENT", "WORKSPACE", "ACTIVE", "CREATED", "DIGEST")
				for _, d := range list {
					active := ""
					if d.GetActive() {
						active = "active"
					}
					t.add(d.GetId(), clean(d.GetWorkspace()), active, age(time.Now(), d.GetCreatedAt()), clip(d.GetDigest(), 13))
				}
				t.print(w)
			})
		}),
	}
	addLimit(cmd, &limit, "deployments")
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func newDeploymentsGet() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "get DEPLOYMENT",
		Short: "Show a deployment; with its manifest as JSON or YAML",
		Example: `  servo deployments get 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10
  servo deployments get 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 -o yaml`,
		Args: exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			if _, err := id.Parse[id.Deployment]("DEPLOYMENT", args[0]); err != nil {
				return err
			}
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			d, err := s.client.Deployments().GetDeployment(ctx, &servov1.GetDeploymentRequest{Tenant: tenant, Deployment: args[0]})
			if err != nil {
				return err
			}
			return s.show(d, func(w io.Writer) { deploymentText(w, d) })
		}),
	}
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func deploymentText(w io.Writer, d *servov1.Deployment) {
	active := "no"
	if d.GetActive() {
		active = "yes"
	}
	fields := d.GetManifest().GetFields()
	assets, pipelines := fields["assets"].GetListValue().GetValues(), fields["pipelines"].GetListValue().GetValues()
	var t table
	t.add("deployment", d.GetId())
	t.add("workspace", clean(d.GetWorkspace()))
	t.add("active", active)
	t.add("created", when(time.Now(), d.GetCreatedAt()))
	t.add("digest", d.GetDigest())
	t.add("manifest", fmt.Sprintf("%s, %s; all of it with --output yaml", count(len(assets), "asset"), count(len(pipelines), "pipeline")))
	t.print(w)
}
