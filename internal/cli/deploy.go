package cli

import (
	"bytes"
	"compress/gzip"
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

// newDeploy deploys a manifest.
func newDeploy() *cobra.Command {
	var (
		source   manifestSource
		dryRun   bool
		manifest manifestBody
	)
	return newShow(spec{
		use: "deploy", short: "Deploy a manifest to a workspace", tenant: true,
		long: `Deploy a manifest: make it the active deployment of a workspace, and show the changes: + is new,
~ is changed, - is removed. Running runs keep their deployment.

The manifest is checked locally before it is sent. With --python it is what a Python project
declares: the project is imported in a process of its own, and mistakes are reported with file and
line. With --go it is what a Go worker declares with the options of servo.Asset: the worker is built
and asked for it.`,
		example: `  servo deploy -f servo.yaml --tenant acme
  servo deploy --python ./shop --tenant acme
  servo deploy --go ./cmd/worker --tenant acme
  servo deploy -f servo.yaml --dry-run`,
		flags: func(cmd *cobra.Command) {
			source.add(cmd)
			cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the changes without deploying them")
		},
		check: func(s *session) (err error) {
			manifest, err = source.message(s.cmd)
			return err
		},
	}, func(ctx context.Context, s *session) (*servov1.DeployResponse, error) {
		answer, err := s.client.Deployments().Deploy(ctx, &servov1.DeployRequest{Tenant: s.Tenant, Workspace: s.Workspace, Manifest: manifest.inline, ManifestGzip: manifest.compressed, DryRun: dryRun})
		warnOfOrphans(s, answer.GetOrphanedConfigs())
		warnOfWorkers(s.cmd.ErrOrStderr(), answer)
		return answer, err
	}, func(w io.Writer, s *session, answer *servov1.DeployResponse) {
		deployText(w, s.paint, answer, s.Tenant, dryRun)
	})
}

// warnOfOrphans lists active configs that lose their pipeline.
func warnOfOrphans(s *session, configs []*servov1.OrphanedConfig) {
	for _, c := range configs {
		s.report("warning: config %s names the pipeline %s, which is not in the manifest: its slots fail (change it, pause it or delete it)", clean(c.GetConfig()), clean(c.GetPipeline()))
	}
}

// addManifest gives a command --file.
func addManifest(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVarP(to, "file", "f", "servo.yaml", "manifest, YAML or JSON, or - for standard input")
}

// manifestBody is a manifest in a request: compressed if it is large.
type manifestBody struct {
	inline     *structpb.Struct
	compressed []byte
}

// manifestMessage checks the text of a manifest and returns it as a part of a message.
func manifestMessage(data []byte, file string) (body manifestBody, err error) {
	manifest, err := asset.Parse(data, file)
	if err != nil {
		return body, err
	}
	canonical, err := manifest.Canonical()
	if err != nil {
		return body, err
	}
	if asset.CheckInline(canonical) != nil {
		body.compressed, err = compress(canonical)
		return body, err
	}
	var object map[string]any
	if err := json.Unmarshal(canonical, &object); err != nil {
		return body, fmt.Errorf("read canonical JSON: %w", err)
	}
	body.inline, err = structOf("--file", object)
	return body, err
}

func compress(text []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
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

// warnOfWorkers lists the assets that no live worker can run.
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
