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

// newDeployments is the group of commands about deployments.
func newDeployments() *cobra.Command {
	return group("deployments", "List and show deployments",
		newShow(spec{
			use: "get DEPLOYMENT", short: "Show a deployment; JSON and YAML have its manifest", tenant: true,
			example: `  servo deployments get 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10
  servo deployments get 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 -o yaml`,
			check: func(s *session) error {
				_, err := id.Parse[id.Deployment]("DEPLOYMENT", s.args[0])
				return err
			},
		}, func(ctx context.Context, s *session) (*servov1.Deployment, error) {
			return s.client.Deployments().GetDeployment(ctx, &servov1.GetDeploymentRequest{Tenant: s.Tenant, Deployment: s.args[0]})
		}, deploymentText),
		newList(spec{short: "List deployments, newest first", tenant: true, limit: "deployments"}, "no deployments yet; servo deploy -f servo.yaml",
			func(ctx context.Context, s *session) ([]*servov1.Deployment, error) {
				return listed(s, client.AllDeployments(ctx, s.client, &servov1.ListDeploymentsRequest{Tenant: s.Tenant, Workspace: s.Workspace}))
			},
			columns([]string{"DEPLOYMENT", "WORKSPACE", "ACTIVE", "CREATED", "DIGEST"}, func(v view, d *servov1.Deployment) []string {
				active := ""
				if d.GetActive() {
					active = "active"
				}
				return []string{d.GetId(), clean(d.GetWorkspace()), active, age(v.now, d.GetCreatedAt()), clip(d.GetDigest(), 13)}
			})))
}

func deploymentText(w io.Writer, _ *session, d *servov1.Deployment) {
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
