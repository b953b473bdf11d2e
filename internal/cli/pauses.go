package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func newAssetsPause() *cobra.Command {
	var (
		r      remote
		reason string
	)
	cmd := &cobra.Command{
		Use:   "pause ASSET",
		Short: "Let new tasks of an asset wait",
		Long: `Let new tasks of an asset wait in READY, in every run of the workspace. What is queued or runs
goes on, and so do all other assets that do not need it.`,
		Example:           `  servo assets pause gold/revenue --reason "prices are wrong"`,
		Args:              exactly(1),
		ValidArgsFunction: completion((*session).assetNames),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			a, err := s.client.Assets().PauseAsset(ctx, &servov1.PauseAssetRequest{
				Tenant: tenant, Workspace: s.Workspace, Asset: args[0], Reason: reason,
			})
			if err != nil {
				return err
			}
			return s.show(a, func(w io.Writer) {
				fmt.Fprintf(w, "asset %s is %s\ngo on: servo assets resume %s%s\n", clean(a.GetKey()), pauseText(a.GetPaused(), time.Now()), clean(a.GetKey()), s.again())
			})
		}),
	}
	addReason(cmd, &reason)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

func newAssetsResume() *cobra.Command {
	var (
		r      remote
		reason string
	)
	cmd := &cobra.Command{
		Use:               "resume ASSET",
		Short:             "Let the tasks of a paused asset go on",
		Example:           `  servo assets resume gold/revenue`,
		Args:              exactly(1),
		ValidArgsFunction: completion((*session).assetNames),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			answer, err := s.client.Assets().ResumeAsset(ctx, &servov1.ResumeAssetRequest{
				Tenant: tenant, Workspace: s.Workspace, Asset: args[0], Reason: reason,
			})
			if err != nil {
				return err
			}
			return s.show(answer, func(w io.Writer) {
				if answer.GetWasPaused() {
					fmt.Fprintf(w, "asset %s goes on\n", clean(args[0]))
					return
				}
				fmt.Fprintf(w, "asset %s was not paused\n", clean(args[0]))
			})
		}),
	}
	addReason(cmd, &reason)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

// pauseText says since when an asset is paused, by whom and why.
func pauseText(p *servov1.AssetPause, now time.Time) string {
	text := "paused since " + when(now, p.GetPausedAt()) + " by " + clip(p.GetPausedBy(), 40)
	if p.GetReason() != "" {
		text += ": " + clip(p.GetReason(), 200)
	}
	return text
}
