package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/asset"
)

// newDeploy makes a manifest the active deployment of a workspace.
func newDeploy() *cobra.Command {
	var (
		r      remote
		file   string
		dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "deploy",
		Short: "Make a manifest the active deployment of a workspace",
		Long: `Make a manifest the active deployment of a workspace, and show what changes: + is new, ~ is
changed, - is gone. Runs that are going on keep the deployment that they began with.

The manifest is checked here before it is sent.`,
		Example: `  servo deploy -f servo.yaml --tenant acme
  servo deploy -f servo.yaml --dry-run`,
		Args: exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			manifest, err := readManifest(s.cmd, file)
			if err != nil {
				return err
			}
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			answer, err := s.client.Deployments().Deploy(ctx, &servov1.DeployRequest{
				Tenant: tenant, Workspace: s.Workspace, Manifest: manifest, DryRun: dryRun,
			})
			if err != nil {
				return err
			}
			for _, c := range answer.GetOrphanedConfigs() {
				s.say("warning: config %s names the pipeline %s, which is not in the manifest: its slots fail (change it, pause it or delete it)", clean(c.GetConfig()), clean(c.GetPipeline()))
			}
			warnOfWorkers(s.cmd.ErrOrStderr(), answer)
			return s.show(answer, func(w io.Writer) { deployText(w, s.paint, answer, tenant, dryRun) })
		}),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "servo.yaml", "the manifest, YAML or JSON, or - for standard input")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, only say what would change")
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

// readManifest checks a manifest and makes a message of it.
func readManifest(cmd *cobra.Command, file string) (*structpb.Struct, error) {
	data, err := readInput(cmd, "--file", file, asset.MaxBytes)
	if err != nil {
		return nil, err
	}
	return manifestMessage(data, file)
}

// manifestMessage checks the text of a manifest, which came from a file of that name.
func manifestMessage(data []byte, file string) (*structpb.Struct, error) {
	manifest, err := asset.Parse(data, file)
	if err != nil {
		return nil, err
	}
	canonical, err := manifest.Canonical()
	if err != nil {
		return nil, err
	}
	if err := asset.CheckInline(canonical); err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(canonical, &object); err != nil {
		return nil, fmt.Errorf("read canonical JSON: %w", err)
	}
	return structOf("--file", object)
}

func deployText(w io.Writer, p palette, answer *servov1.DeployResponse, tenant string, dryRun bool) {
	d := answer.GetDeployment()
	where := tenant + "/" + d.GetWorkspace()
	if answer.GetUnchanged() {
		fmt.Fprintf(w, "unchanged: deployment %s is active in %s already\n", d.GetId(), where)
		return
	}
	for _, c := range answer.GetChanges() {
		fmt.Fprintln(w, changeLine(p, c))
	}
	changes := count(len(answer.GetChanges()), "change")
	if dryRun {
		fmt.Fprintf(w, "%s to %s; nothing was deployed\n", changes, where)
		return
	}
	fmt.Fprintf(w, "deployed %s to %s: %s\n", d.GetId(), where, changes)
}

// warnOfWorkers says which assets no live worker can run.
func warnOfWorkers(w io.Writer, answer *servov1.DeployResponse) {
	for _, warning := range answer.GetWorkerWarnings() {
		fmt.Fprintf(w, "warning: %s\n  %s\n", clean(warning.GetMessage()), clean(warning.GetRemedy()))
	}
}

func changeLine(p palette, c *servov1.DeploymentChange) string {
	sign := "~"
	switch c.GetAction() {
	case servov1.DeploymentChange_ADDED:
		sign = "+"
	case servov1.DeploymentChange_REMOVED:
		sign = "-"
	case servov1.DeploymentChange_CHANGED, servov1.DeploymentChange_ACTION_UNSPECIFIED:
	}
	line := fmt.Sprintf("%s %s %s", sign, c.GetKind(), clean(c.GetName()))
	if len(c.GetFields()) > 0 {
		line += " (" + strings.Join(c.GetFields(), ", ") + ")"
	}
	return p.mark(line, sign)
}
