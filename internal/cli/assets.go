package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/asset"
)

// newAssets is the group of commands about the assets of the active deployment.
func newAssets() *cobra.Command {
	names := []nameSource{(*session).assetNames}
	return group("assets", "Show, pause and resume assets",
		newShow(spec{use: "get ASSET", short: "Show an asset", example: "  servo assets get gold/revenue", tenant: true, names: names},
			func(ctx context.Context, s *session) (*servov1.Asset, error) {
				return s.client.Assets().GetAsset(ctx, &servov1.GetAssetRequest{Tenant: s.Tenant, Workspace: s.Workspace, Asset: s.args[0]})
			}, assetText),
		newAssetsList(),
		newAssetsPartitions(),
		newAssetsMaterializations(),
		newShow(spec{
			use: "pause ASSET", short: "Pause an asset: its new tasks wait", tenant: true, reason: true, names: names,
			long: `Pause an asset: its new tasks wait in READY, in every run of the workspace. Queued and running
tasks continue, and so do assets that do not depend on it.`,
			example: `  servo assets pause gold/revenue --reason "prices are wrong"`,
		}, func(ctx context.Context, s *session) (*servov1.Asset, error) {
			return s.client.Assets().PauseAsset(ctx, &servov1.PauseAssetRequest{Tenant: s.Tenant, Workspace: s.Workspace, Asset: s.args[0], Reason: s.reason})
		}, func(w io.Writer, s *session, a *servov1.Asset) {
			fmt.Fprintf(w, "asset %s is %s\nresume: servo assets resume %s%s\n", clean(a.GetKey()), pauseText(a.GetPaused(), time.Now()), clean(a.GetKey()), s.again())
		}),
		newShow(spec{use: "resume ASSET", short: "Resume a paused asset", example: `  servo assets resume gold/revenue`, tenant: true, reason: true, names: names},
			func(ctx context.Context, s *session) (*servov1.ResumeAssetResponse, error) {
				return s.client.Assets().ResumeAsset(ctx, &servov1.ResumeAssetRequest{Tenant: s.Tenant, Workspace: s.Workspace, Asset: s.args[0], Reason: s.reason})
			},
			func(w io.Writer, s *session, answer *servov1.ResumeAssetResponse) {
				verb := "resumed"
				if !answer.GetWasPaused() {
					verb = "was not paused"
				}
				fmt.Fprintf(w, "asset %s %s\n", clean(s.args[0]), verb)
			}))
}

// pauseText states since when an asset is paused, by whom and why.
func pauseText(p *servov1.AssetPause, now time.Time) string {
	text := "paused since " + when(now, p.GetPausedAt()) + " by " + clip(p.GetPausedBy(), 40)
	if p.GetReason() != "" {
		text += ": " + clip(p.GetReason(), 200)
	}
	return text
}

// newPipelines is the group of commands about the pipelines of the active deployment.
func newPipelines() *cobra.Command {
	return group("pipelines", "List pipelines of the active deployment",
		newList(spec{short: "List pipelines", tenant: true}, "no pipelines; name some in the manifest and servo deploy -f servo.yaml",
			func(ctx context.Context, s *session) ([]*servov1.Pipeline, error) {
				return first(client.AllPipelines(ctx, s.client, &servov1.ListPipelinesRequest{Tenant: s.Tenant, Workspace: s.Workspace}), 0)
			},
			columns([]string{"PIPELINE", "SELECT", "PARAMETERS", "PRIORITY", "DESCRIPTION"}, func(_ view, p *servov1.Pipeline) []string {
				return []string{
					clean(p.GetName()), orDash(strings.Join(p.GetSelect(), " ")), orDash(strings.Join(parameterTexts(p), ", ")),
					fmt.Sprint(p.GetPriority()), orDash(clip(p.GetDescription(), 60)),
				}
			})))
}

func newAssetsList() *cobra.Command {
	var selection []string
	return newList(spec{
		short: "List assets by key", tenant: true, limit: "assets",
		example: `  servo assets list
  servo assets list --select +gold/revenue`,
		flags: func(cmd *cobra.Command) { addSelect(cmd, &selection) },
	}, "no assets; servo deploy -f servo.yaml", func(ctx context.Context, s *session) ([]*servov1.Asset, error) {
		return listed(s, client.AllAssets(ctx, s.client, &servov1.ListAssetsRequest{Tenant: s.Tenant, Workspace: s.Workspace, Select: selection}))
	}, func(w io.Writer, v view, assets []*servov1.Asset) {
		heads := []string{"ASSET", "KIND", "POOL", "TIMEOUT", "UPSTREAM", "TAGS"}
		paused := slices.ContainsFunc(assets, func(a *servov1.Asset) bool { return a.GetPaused() != nil })
		if paused {
			heads = append(heads, "REMARK")
		}
		columns(heads, func(_ view, a *servov1.Asset) []string {
			row := []string{
				clean(a.GetKey()), kindOf(a.GetCode()), clean(a.GetPool()), timeoutText(a.GetTimeout()),
				orDash(strings.Join(a.GetUpstream(), ", ")), orDash(strings.Join(a.GetTags(), ", ")),
			}
			switch {
			case a.GetPaused() != nil:
				row = append(row, "paused by "+clip(a.GetPaused().GetPausedBy(), 40))
			case paused:
				row = append(row, "-")
			}
			return row
		})(w, v, assets)
	})
}

// addSelect gives a command --select.
func addSelect(cmd *cobra.Command, to *[]string) {
	cmd.Flags().StringArrayVar(to, "select", nil, "assets: ns/name, +ns/name, ns/name+, ns/*, tag:x or owner:y; repeatable")
	completeFlag(cmd, "select", (*session).assetNames)
}

func assetText(w io.Writer, _ *session, a *servov1.Asset) {
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
	case *servov1.Code_Python:
		return "python"
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
	case *servov1.Code_Python:
		text += " " + kind.Python.GetFunction() + " " + kind.Python.GetCode()
	}
	return clean(strings.TrimSpace(text))
}

func timeoutText(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return asset.Duration(d.AsDuration()).String()
}
