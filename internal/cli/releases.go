package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// newReleases is the group of commands about releases.
func newReleases() *cobra.Command {
	return group("releases", "Manage releases, the manifests of all tenants",
		newReleasesCreate(),
		newList(spec{short: "List releases, newest first", limit: "releases"}, "no releases yet; servo releases create -f servo.yaml",
			func(ctx context.Context, s *session) ([]*servov1.Release, error) {
				return listed(s, client.AllReleases(ctx, s.client, &servov1.ListReleasesRequest{}))
			},
			columns([]string{"RELEASE", "CHANNELS", "CREATED", "DIGEST", "NOTE"}, func(v view, r *servov1.Release) []string {
				return []string{clean(r.GetName()), orDash(strings.Join(r.GetChannels(), ",")), age(v.now, r.GetCreatedAt()), clip(r.GetDigest(), 13), clean(r.GetNote())}
			})),
		newShow(spec{use: "get RELEASE", short: "Show a release; JSON and YAML have its manifest", example: "  servo releases get 2026.11.1"},
			func(ctx context.Context, s *session) (*servov1.Release, error) {
				return s.client.Releases().GetRelease(ctx, &servov1.GetReleaseRequest{Release: s.args[0]})
			}, releaseText),
		newShow(spec{use: "diff RELEASE TO", short: "List the changes from one release to another", example: "  servo releases diff 2026.11.1 2026.11.2"},
			func(ctx context.Context, s *session) (*servov1.DiffReleasesResponse, error) {
				return s.client.Releases().DiffReleases(ctx, &servov1.DiffReleasesRequest{Release: s.args[0], To: s.args[1]})
			},
			func(w io.Writer, s *session, d *servov1.DiffReleasesResponse) {
				changesText(w, s.paint, d.GetChanges())
			}),
		newReleasesCheck(),
		newShow(spec{use: "delete RELEASE", short: "Delete a release that no channel uses", long: `Delete a release that no channel uses. Runs that used it keep its manifest.`, example: "  servo releases delete 2026.11.1"},
			func(ctx context.Context, s *session) (*servov1.DeleteReleaseResponse, error) {
				return s.client.Releases().DeleteRelease(ctx, &servov1.DeleteReleaseRequest{Release: s.args[0]})
			},
			func(w io.Writer, s *session, _ *servov1.DeleteReleaseResponse) {
				fmt.Fprintf(w, "release %q deleted\n", s.args[0])
			}))
}

func newReleasesCreate() *cobra.Command {
	var (
		name, note string
		source     manifestSource
		manifest   manifestBody
	)
	return newShow(spec{
		use: "create", short: "Create a release from a manifest",
		long: `Store a manifest once for the installation. Tenants use it when a channel that they follow is
rolled to it.

The manifest is checked locally before it is sent.`,
		example: "  servo releases create -f servo.yaml --name 2026.11.1 --note 'new currency table'",
		flags: func(cmd *cobra.Command) {
			source.add(cmd)
			cmd.Flags().StringVar(&name, "name", "", "name of the release (default: the start of its digest)")
			cmd.Flags().StringVar(&note, "note", "", "note for people")
		},
		check: func(s *session) (err error) {
			manifest, err = source.message(s.cmd)
			return err
		},
	}, func(ctx context.Context, s *session) (*servov1.Release, error) {
		return s.client.Releases().CreateRelease(ctx, &servov1.CreateReleaseRequest{Name: name, Note: note, Manifest: manifest.inline, ManifestGzip: manifest.compressed})
	}, func(w io.Writer, _ *session, r *servov1.Release) {
		fmt.Fprintf(w, "release %q created\nroll a channel to it: servo channels roll CHANNEL --to %s\n", r.GetName(), r.GetName())
	})
}

func releaseText(w io.Writer, _ *session, r *servov1.Release) {
	fields := r.GetManifest().GetFields()
	assets, pipelines := fields["assets"].GetListValue().GetValues(), fields["pipelines"].GetListValue().GetValues()
	var t table
	t.add("release", clean(r.GetName()))
	t.add("id", r.GetId())
	t.add("channels", orDash(strings.Join(r.GetChannels(), ", ")))
	t.add("created", when(time.Now(), r.GetCreatedAt()))
	t.add("digest", r.GetDigest())
	if r.GetNote() != "" {
		t.add("note", clean(r.GetNote()))
	}
	t.add("manifest", fmt.Sprintf("%s, %s; all of it with --output yaml", count(len(assets), "asset"), count(len(pipelines), "pipeline")))
	for _, total := range r.GetTotals() {
		name := "failed with " + clean(total.GetError())
		if total.GetError() == "" {
			name = "succeeded"
		}
		t.add(name, fmt.Sprint(total.GetRuns()))
	}
	t.print(w)
}

func changesText(w io.Writer, p palette, changes []*servov1.DeploymentChange) {
	if len(changes) == 0 {
		fmt.Fprintln(w, "no changes")
	}
	for _, c := range changes {
		fmt.Fprintln(w, changeLine(p, c))
	}
}

func newReleasesCheck() *cobra.Command {
	var channel string
	return newCall(spec{
		use: "check RELEASE", short: "List configs that a release would break",
		long: `List the active configs of all workspaces that follow a channel and that a release would break:
the pipeline is missing, its parameters are refused, a pool does not accept the tenant, or no live
worker can run it. Configs that the current release cannot run either are not listed.

Exits with 1 if there are any.`,
		example: "  servo releases check 2026.11.2 --channel stable",
		flags:   func(cmd *cobra.Command) { addChannel(cmd, &channel) },
	}, func(ctx context.Context, s *session) error {
		impact, err := s.client.Releases().CheckRelease(ctx, &servov1.CheckReleaseRequest{Release: s.args[0], Channel: channel})
		if err != nil {
			return err
		}
		if err := s.show(impact, func(w io.Writer) { impactText(w, impact) }); err != nil {
			return err
		}
		if impact.GetBrokenConfigs() > 0 {
			return withExit(exitFailed, fault.New(fault.Conflict, fmt.Sprintf("release %s would break %d configs of %d tenants", s.args[0], impact.GetBrokenConfigs(), impact.GetBrokenTenants()),
				fault.Remedy("fix them, or roll with --allow-broken to skip their tenants")))
		}
		return nil
	})
}

func addChannel(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "channel", "stable", "channel of releases")
}

func impactText(w io.Writer, impact *servov1.CheckReleaseResponse) {
	if len(impact.GetBroken()) > 0 {
		var t table
		t.add("TENANT", "WORKSPACE", "CONFIG", "KIND", "PROBLEM")
		for _, b := range impact.GetBroken() {
			t.add(clean(b.GetTenant()), clean(b.GetWorkspace()), clean(b.GetConfig()), b.GetKind(), clean(b.GetMessage()))
		}
		t.print(w)
	}
	fmt.Fprintf(w, "%s checked, %d would break\n", count(int(impact.GetConfigs()), "config"), impact.GetBrokenConfigs())
}
