package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// newDeployments is the group of commands about deployments.
func newDeployments() *cobra.Command {
	return group("deployments", "List, compare and activate deployments",
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
		newDeploymentsActivate(),
		newDeploymentsCopy(),
		newShow(spec{use: "diff DEPLOYMENT TO", short: "List the changes from one deployment to another", tenant: true},
			func(ctx context.Context, s *session) (*servov1.DiffDeploymentsResponse, error) {
				return s.client.Deployments().DiffDeployments(ctx, &servov1.DiffDeploymentsRequest{Tenant: s.Tenant, Deployment: s.args[0], To: s.args[1]})
			},
			func(w io.Writer, s *session, d *servov1.DiffDeploymentsResponse) {
				changesText(w, s.paint, d.GetChanges())
			}),
		newDeploymentsRollback(),
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

func newDeploymentsActivate() *cobra.Command {
	var dryRun bool
	return newShow(spec{
		use: "activate DEPLOYMENT", short: "Select an earlier deployment as the active one", tenant: true,
		long:    "Make an earlier deployment of a workspace the active one. Running runs keep their deployment.",
		example: "  servo deployments activate 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 --tenant acme",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the changes without applying them")
		},
	}, func(ctx context.Context, s *session) (*servov1.ActivateDeploymentResponse, error) {
		return activateDeployment(ctx, s, s.args[0], dryRun)
	}, func(w io.Writer, s *session, a *servov1.ActivateDeploymentResponse) { activatedText(w, s, a, dryRun) })
}

func activateDeployment(ctx context.Context, s *session, deployment string, dryRun bool) (*servov1.ActivateDeploymentResponse, error) {
	answer, err := s.client.Deployments().ActivateDeployment(ctx, &servov1.ActivateDeploymentRequest{Tenant: s.Tenant, Deployment: deployment, DryRun: dryRun})
	warnOfOrphans(s, answer.GetOrphanedConfigs())
	return answer, err
}

func activatedText(w io.Writer, s *session, a *servov1.ActivateDeploymentResponse, dryRun bool) {
	changesText(w, s.paint, a.GetChanges())
	d := a.GetDeployment()
	if dryRun {
		fmt.Fprintf(w, "%s to %s/%s; nothing was changed\n", count(len(a.GetChanges()), "change"), s.Tenant, clean(d.GetWorkspace()))
		return
	}
	fmt.Fprintf(w, "deployment %s is active in %s/%s\n", d.GetId(), s.Tenant, clean(d.GetWorkspace()))
}

// newDeploymentsRollback activates the deployment before the active one.
func newDeploymentsRollback() *cobra.Command {
	return newShow(spec{
		use: "rollback", short: "Restore the deployment before the active one", tenant: true,
		long: `Activate the newest deployment of the workspace that is older than the active one. Running runs
keep their deployment. Name another one with servo deployments activate.`,
		example: "  servo deployments rollback --tenant acme",
	}, func(ctx context.Context, s *session) (*servov1.ActivateDeploymentResponse, error) {
		active := false
		workspace := s.Workspace
		if workspace == "" {
			workspace = "default"
		}
		for d, err := range client.AllDeployments(ctx, s.client, &servov1.ListDeploymentsRequest{Tenant: s.Tenant, Workspace: workspace}) {
			if err != nil {
				return nil, err
			}
			if active {
				return activateDeployment(ctx, s, d.GetId(), false)
			}
			active = d.GetActive()
		}
		return nil, fault.New(fault.Conflict, "workspace "+workspace+" has no deployment before the active one", fault.Remedy("list them: servo deployments list"))
	}, func(w io.Writer, s *session, a *servov1.ActivateDeploymentResponse) { activatedText(w, s, a, false) })
}

func newDeploymentsCopy() *cobra.Command {
	var (
		to     string
		dryRun bool
	)
	return newShow(spec{
		use: "copy DEPLOYMENT", short: "Deploy a deployment to another workspace", tenant: true,
		example: "  servo deployments copy 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 --to production --tenant acme",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&to, "to", "", "workspace that receives the deployment")
			cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the changes without deploying them")
		},
		check: func(s *session) error {
			if to == "" {
				return usageFault(s.cmd, "--to is missing; name a workspace")
			}
			return nil
		},
	}, func(ctx context.Context, s *session) (*servov1.DeployResponse, error) {
		answer, err := s.client.Deployments().CopyDeployment(ctx, &servov1.CopyDeploymentRequest{Tenant: s.Tenant, Deployment: s.args[0], To: to, DryRun: dryRun})
		warnOfOrphans(s, answer.GetOrphanedConfigs())
		return answer, err
	}, func(w io.Writer, s *session, answer *servov1.DeployResponse) {
		deployText(w, s.paint, answer, s.Tenant, dryRun)
	})
}
