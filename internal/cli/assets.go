package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/asset"
)

// newAssets reads the assets of the active deployment, and pauses them.
func newAssets() *cobra.Command {
	return group("assets", "Read and pause the assets of the active deployment", newAssetsGet(), newAssetsList(), newAssetsPause(), newAssetsResume())
}

// newPipelines reads the pipelines of the active deployment.
func newPipelines() *cobra.Command {
	return group("pipelines", "Read the pipelines of the active deployment", newPipelinesList())
}

func newAssetsList() *cobra.Command {
	var (
		r         remote
		selection []string
		limit     int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List assets by key",
		Example: `  servo assets list
  servo assets list --select +gold/revenue`,
		Args: exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			list, err := listed(s, client.AllAssets(ctx, s.client, &servov1.ListAssetsRequest{Tenant: tenant, Workspace: s.Workspace, Select: selection}), limit)
			if err != nil {
				return err
			}
			return showAll(s, list, "no assets; servo deploy -f servo.yaml", func(w io.Writer) {
				var t table
				paused := false // a column that is empty on every line says nothing
				for _, a := range list {
					paused = paused || a.GetPaused() != nil
				}
				add := func(remark string, cells ...string) {
					if paused {
						cells = append(cells, remark)
					}
					t.add(cells...)
				}
				add("REMARK", "ASSET", "KIND", "POOL", "TIMEOUT", "UPSTREAM", "TAGS")
				for _, a := range list {
					remark := "-"
					if a.GetPaused() != nil {
						remark = "paused by " + clip(a.GetPaused().GetPausedBy(), 40)
					}
					add(remark, clean(a.GetKey()), kindOf(a.GetCode()), clean(a.GetPool()), timeoutText(a.GetTimeout()),
						orDash(strings.Join(a.GetUpstream(), ", ")), orDash(strings.Join(a.GetTags(), ", ")))
				}
				t.print(w)
			})
		}),
	}
	cmd.Flags().StringArrayVar(&selection, "select", nil, "only these assets: ns/name, +ns/name, ns/name+, ns/*, tag:x, owner:y")
	completeFlag(cmd, "select", (*session).assetNames)
	addLimit(cmd, &limit, "assets")
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func newAssetsGet() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:               "get ASSET",
		Short:             "Show an asset",
		Example:           "  servo assets get gold/revenue",
		Args:              exactly(1),
		ValidArgsFunction: completion((*session).assetNames),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			a, err := s.client.Assets().GetAsset(ctx, &servov1.GetAssetRequest{Tenant: tenant, Workspace: s.Workspace, Asset: args[0]})
			if err != nil {
				return err
			}
			return s.show(a, func(w io.Writer) {
				var t table
				t.add("asset", clean(a.GetKey()))
				if a.GetDescription() != "" {
					t.add("description", clean(a.GetDescription()))
				}
				if a.GetPaused() != nil {
					t.add("state", pauseText(a.GetPaused(), time.Now()))
				}
				t.add("code", codeText(a.GetCode()))
				t.add("pool", clean(a.GetPool()))
				t.add("timeout", timeoutText(a.GetTimeout()))
				t.add("upstream", orDash(strings.Join(a.GetUpstream(), ", ")))
				t.add("downstream", orDash(strings.Join(a.GetDownstream(), ", ")))
				t.add("tags", orDash(strings.Join(a.GetTags(), ", ")))
				t.add("owners", orDash(strings.Join(a.GetOwners(), ", ")))
				t.print(w)
			})
		}),
	}
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func newPipelinesList() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what can be run",
		Args:  exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			list, err := first(client.AllPipelines(ctx, s.client, &servov1.ListPipelinesRequest{Tenant: tenant, Workspace: s.Workspace}), 0)
			if err != nil {
				return err
			}
			return showAll(s, list, "no pipelines; name some in the manifest and servo deploy -f servo.yaml", func(w io.Writer) {
				var t table
				t.add("PIPELINE", "SELECT", "PARAMETERS", "PRIORITY", "DESCRIPTION")
				for _, p := range list {
					t.add(clean(p.GetName()), orDash(strings.Join(p.GetSelect(), " ")), orDash(strings.Join(parameterTexts(p), ", ")),
						fmt.Sprint(p.GetPriority()), orDash(clip(p.GetDescription(), 60)))
				}
				t.print(w)
			})
		}),
	}
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

// parameterTexts are the parameters of a pipeline: day:string* is a required one.
func parameterTexts(p *servov1.Pipeline) []string {
	var texts []string
	for _, parameter := range p.GetParameters() {
		text := parameter.GetName() + ":" + parameter.GetType()
		if parameter.GetRequired() {
			text += "*"
		}
		texts = append(texts, text)
	}
	return texts
}

func kindOf(code *servov1.Code) string {
	switch code.GetKind().(type) {
	case *servov1.Code_Exec:
		return "exec"
	case *servov1.Code_Http:
		return "http"
	case *servov1.Code_Go:
		return "go"
	}
	return "-"
}

func codeText(code *servov1.Code) string {
	text := kindOf(code)
	switch kind := code.GetKind().(type) {
	case *servov1.Code_Exec:
		text += " " + strings.Join(kind.Exec.GetCommand(), " ")
	case *servov1.Code_Http:
		text += " " + kind.Http.GetMethod() + " " + kind.Http.GetUrl()
	case *servov1.Code_Go:
		text += " " + kind.Go.GetHandler()
	}
	return clean(strings.TrimSpace(text))
}

func timeoutText(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return asset.Duration(d.AsDuration()).String()
}

// addLimit gives a list the flag --limit.
func addLimit(cmd *cobra.Command, to *int, noun string) {
	const few = 20
	cmd.Flags().IntVar(to, "limit", few, "how many "+noun+" at most (0: all)")
	addListWatch(cmd)
}
