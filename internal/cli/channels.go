package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// newChannels is the group of commands about channels of releases.
func newChannels() *cobra.Command {
	return group("channels", "Manage channels of releases and roll them",
		newReleaseChannelsCreate(),
		newList(spec{short: "List channels by name"}, "no channels yet; servo channels create stable --release RELEASE",
			func(ctx context.Context, s *session) ([]*servov1.ReleaseChannel, error) {
				answer, err := s.client.Channels().ListReleaseChannels(ctx, &servov1.ListReleaseChannelsRequest{})
				return answer.GetChannels(), err
			},
			columns([]string{"CHANNEL", "RELEASE", "DEFAULT", "ROLLOUT", "TO", "WAVE"}, func(_ view, c *servov1.ReleaseChannel) []string {
				r := c.GetRollout()
				state, wave, isDefault := "-", "-", ""
				if r != nil {
					state, wave = r.GetState().String(), fmt.Sprintf("%d of %d", r.GetWave(), len(r.GetWaves()))
				}
				if c.GetDefault() {
					isDefault = "default"
				}
				return []string{clean(c.GetName()), orDash(clean(c.GetRelease())), isDefault, state, orDash(clean(r.GetTo())), wave}
			})),
		newShow(spec{use: "status CHANNEL", short: "Show a channel's waves, failure rates and decisions", example: "  servo channels status stable"},
			func(ctx context.Context, s *session) (*servov1.GetReleaseChannelResponse, error) {
				return s.client.Channels().GetReleaseChannel(ctx, &servov1.GetReleaseChannelRequest{Channel: s.args[0]})
			}, channelText),
		newChannelsRoll(),
		newRolloutCommand("pause", "Pause a rollout at its wave", func(ctx context.Context, s *session) (*servov1.ReleaseChannel, error) {
			return s.client.Channels().PauseRollout(ctx, &servov1.PauseRolloutRequest{Channel: s.args[0], Reason: s.reason})
		}),
		newRolloutCommand("resume", "Resume a paused rollout", func(ctx context.Context, s *session) (*servov1.ReleaseChannel, error) {
			return s.client.Channels().ResumeRollout(ctx, &servov1.ResumeRolloutRequest{Channel: s.args[0], Reason: s.reason})
		}),
		newRolloutCommand("advance", "Start the next wave of a rollout now", func(ctx context.Context, s *session) (*servov1.ReleaseChannel, error) {
			return s.client.Channels().AdvanceRollout(ctx, &servov1.AdvanceRolloutRequest{Channel: s.args[0], Reason: s.reason})
		}),
		newRolloutCommand("rollback", "Restore the release before the last rollout", func(ctx context.Context, s *session) (*servov1.ReleaseChannel, error) {
			return s.client.Channels().RollBackChannel(ctx, &servov1.RollBackChannelRequest{Channel: s.args[0], Reason: s.reason})
		}),
		newChannelsFollow(),
		newChannelsDefault(),
		newShow(spec{use: "delete CHANNEL", short: "Delete a channel that no workspace follows", example: "  servo channels delete beta"},
			func(ctx context.Context, s *session) (*servov1.DeleteReleaseChannelResponse, error) {
				return s.client.Channels().DeleteReleaseChannel(ctx, &servov1.DeleteReleaseChannelRequest{Channel: s.args[0]})
			},
			func(w io.Writer, s *session, _ *servov1.DeleteReleaseChannelResponse) {
				fmt.Fprintf(w, "channel %q deleted\n", s.args[0])
			}))
}

func newReleaseChannelsCreate() *cobra.Command {
	var (
		release   string
		isDefault bool
	)
	return newShow(spec{
		use: "create CHANNEL", short: "Create a channel of releases",
		example: "  servo channels create stable --release 2026.11.1 --default",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&release, "release", "", "release of the channel (default: none yet)")
			cmd.Flags().BoolVar(&isDefault, "default", false, "make new tenants follow the channel")
		},
	}, func(ctx context.Context, s *session) (*servov1.ReleaseChannel, error) {
		return s.client.Channels().CreateReleaseChannel(ctx, &servov1.CreateReleaseChannelRequest{Name: s.args[0], Release: release, Default: isDefault})
	}, func(w io.Writer, _ *session, c *servov1.ReleaseChannel) {
		fmt.Fprintf(w, "channel %q created\nfollow it: servo workspaces follow default --channel %s --tenant TENANT\n", c.GetName(), c.GetName())
	})
}

func newChannelsRoll() *cobra.Command {
	var (
		to, waves, first string
		soak             time.Duration
		allowBroken      bool
		percents         []float64
	)
	return newShow(spec{
		use: "roll CHANNEL", short: "Move a channel to a release, in waves",
		long: `Move the tenants of a channel to a release, in waves. A wave ends after the soak and 30 ended
runs on the new release. If they fail significantly more often than the same configs did on the
old release, all tenants return to it. Runs in flight keep their release.

A roll is refused while active configs would break: servo releases check lists them.`,
		example: `  servo channels roll stable --to 2026.11.2
  servo channels roll stable --to 2026.11.2 --waves 1%,10%,50%,100% --soak 15m --first tier=internal`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&to, "to", "", "release to roll to")
			cmd.Flags().StringVar(&waves, "waves", "1%,10%,50%,100%", "percentages of tenants, ascending")
			cmd.Flags().DurationVar(&soak, "soak", 15*time.Minute, "minimum duration of a wave")
			cmd.Flags().StringVar(&first, "first", "", "label of tenants in the first wave, such as tier=internal")
			cmd.Flags().BoolVar(&allowBroken, "allow-broken", false, "skip tenants with configs that would break")
		},
		check: func(s *session) (err error) {
			if to == "" {
				return usageFault(s.cmd, "--to is missing; name a release")
			}
			percents, err = parseWaves(waves)
			return err
		},
	}, func(ctx context.Context, s *session) (*servov1.ReleaseChannel, error) {
		return s.client.Channels().RollChannel(ctx, &servov1.RollChannelRequest{
			Channel: s.args[0], Release: to, Waves: percents, Soak: durationpb.New(soak), First: first, AllowBroken: allowBroken,
		})
	}, rolloutText)
}

// parseWaves reads percentages such as 1%,10%,100%.
func parseWaves(text string) ([]float64, error) {
	var percents []float64
	for _, part := range strings.Split(text, ",") {
		percent, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(part), "%"), 64)
		if err != nil {
			return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("%.50q is not a percentage", part), fault.Field("--waves"), fault.Remedy("write percentages such as 1%,10%,50%,100%"))
		}
		percents = append(percents, percent)
	}
	return percents, nil
}

func newRolloutCommand(verb, short string, do func(ctx context.Context, s *session) (*servov1.ReleaseChannel, error)) *cobra.Command {
	return newShow(spec{use: verb + " CHANNEL", short: short, reason: true, example: "  servo channels " + verb + " stable --reason 'checked by hand'"}, do, rolloutText)
}

func rolloutText(w io.Writer, _ *session, c *servov1.ReleaseChannel) {
	r := c.GetRollout()
	switch r.GetState() {
	case servov1.Rollout_COMPLETED:
		fmt.Fprintf(w, "channel %q uses release %s\n", c.GetName(), clean(c.GetRelease()))
	case servov1.Rollout_ROLLED_BACK:
		fmt.Fprintf(w, "channel %q rolled back to release %s; runs in flight keep %s\n", c.GetName(), clean(c.GetRelease()), clean(r.GetTo()))
	case servov1.Rollout_PAUSED:
		fmt.Fprintf(w, "rollout of channel %q paused at wave %d of %d\n", c.GetName(), r.GetWave(), len(r.GetWaves()))
	case servov1.Rollout_ROLLING, servov1.Rollout_STATE_UNSPECIFIED:
		fmt.Fprintf(w, "channel %q rolls to release %s: wave %d of %d, %g %% of tenants\nfollow it with: servo channels status %s\n",
			c.GetName(), clean(r.GetTo()), r.GetWave(), len(r.GetWaves()), r.GetWaves()[r.GetWave()-1], c.GetName())
	}
}

func channelText(w io.Writer, _ *session, a *servov1.GetReleaseChannelResponse) {
	c := a.GetChannel()
	var t table
	t.add("channel", clean(c.GetName()))
	t.add("release", orDash(clean(c.GetRelease())))
	t.add("tenants", fmt.Sprint(a.GetTenants()))
	if c.GetDefault() {
		t.add("default", "new tenants follow it")
	}
	if r := c.GetRollout(); r != nil {
		t.add("rollout", fmt.Sprintf("%s from %s to %s", r.GetState(), clean(r.GetFrom()), clean(r.GetTo())))
		if r.GetReason() != "" {
			t.add("reason", clean(r.GetReason()))
		}
		if r.GetSkippedTenants() > 0 {
			t.add("skipped", count(int(r.GetSkippedTenants()), "tenant"))
		}
		t.add("new release", runCounts(a.GetNewRuns()))
		t.add("old release", runCounts(a.GetOldRuns()))
	}
	t.print(w)
	for _, wave := range a.GetWaves() {
		mark := " "
		if wave.GetReached() {
			mark = "*"
		}
		fmt.Fprintf(w, "%s wave %d  %6g %%  %s\n", mark, wave.GetWave(), wave.GetPercent(), count(int(wave.GetTenants()), "tenant"))
	}
	for _, f := range a.GetFailures() {
		fmt.Fprintf(w, "  %s failed with %s: %s\n", clean(f.GetTenant()), clean(f.GetError()), count(int(f.GetRuns()), "run"))
	}
	for _, d := range a.GetDecisions() {
		fmt.Fprintf(w, "%s  %s  %s\n", when(time.Now(), d.GetAt()), clean(d.GetActor()), clean(d.GetText()))
	}
}

func runCounts(c *servov1.RunCounts) string {
	if c.GetEnded() == 0 {
		return "no ended runs"
	}
	return fmt.Sprintf("%d of %d runs failed (%.1f %%)", c.GetFailed(), c.GetEnded(), 100*float64(c.GetFailed())/float64(c.GetEnded()))
}

func newChannelsFollow() *cobra.Command {
	var label string
	return newShow(spec{
		use: "follow CHANNEL", short: "Set the channel of all tenants with a label",
		long: `Make the default workspaces of all tenants with a label follow a channel. Tenants with active
configs that would break are skipped and named.`,
		example: "  servo channels follow beta --label tier=internal",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&label, "label", "", "label of tenants, such as tier=internal")
		},
		check: func(s *session) error {
			if label == "" {
				return usageFault(s.cmd, "--label is missing; name a label such as tier=internal")
			}
			return nil
		},
	}, func(ctx context.Context, s *session) (*servov1.FollowChannelByLabelResponse, error) {
		return s.client.Channels().FollowChannelByLabel(ctx, &servov1.FollowChannelByLabelRequest{Channel: s.args[0], Label: label})
	}, func(w io.Writer, s *session, a *servov1.FollowChannelByLabelResponse) {
		fmt.Fprintf(w, "%s now follow channel %q\n", count(int(a.GetFollowed()), "workspace"), s.args[0])
		if len(a.GetSkipped()) > 0 {
			fmt.Fprintf(w, "skipped, because configs would break: %s\n", clean(strings.Join(a.GetSkipped(), ", ")))
		}
	})
}

func newChannelsDefault() *cobra.Command {
	var off bool
	return newShow(spec{
		use: "default CHANNEL", short: "Set the channel that new tenants follow",
		example: "  servo channels default stable\n  servo channels default stable --off",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&off, "off", false, "make new tenants follow no channel")
		},
	}, func(ctx context.Context, s *session) (*servov1.ReleaseChannel, error) {
		return s.client.Channels().UpdateReleaseChannel(ctx, &servov1.UpdateReleaseChannelRequest{Channel: s.args[0], Default: !off})
	}, func(w io.Writer, _ *session, c *servov1.ReleaseChannel) {
		if c.GetDefault() {
			fmt.Fprintf(w, "new tenants follow channel %q\n", c.GetName())
			return
		}
		fmt.Fprintf(w, "new tenants do not follow channel %q\n", c.GetName())
	})
}

// newWorkspaces is the group of commands about workspaces.
func newWorkspaces() *cobra.Command {
	return group("workspaces", "Manage workspaces and the channels they follow",
		newShow(spec{use: "create NAME", short: "Create a workspace", tenant: true, example: "  servo workspaces create staging --tenant acme"},
			func(ctx context.Context, s *session) (*servov1.Workspace, error) {
				return s.client.Tenants().CreateWorkspace(ctx, &servov1.CreateWorkspaceRequest{Tenant: s.Tenant, Name: s.args[0]})
			},
			func(w io.Writer, _ *session, ws *servov1.Workspace) {
				fmt.Fprintf(w, "workspace %q created\n", ws.GetName())
			}),
		newList(spec{short: "List workspaces by name", tenant: true}, "no workspaces",
			func(ctx context.Context, s *session) ([]*servov1.Workspace, error) {
				answer, err := s.client.Tenants().ListWorkspaces(ctx, &servov1.ListWorkspacesRequest{Tenant: s.Tenant})
				return answer.GetWorkspaces(), err
			},
			columns([]string{"WORKSPACE", "CHANNEL", "ACTIVE", "CREATED"}, func(v view, ws *servov1.Workspace) []string {
				return []string{clean(ws.GetName()), orDash(ws.GetChannel()), orDash(ws.GetActiveDeployment()), age(v.now, ws.GetCreatedAt())}
			})),
		newWorkspacesFollow(),
		newShow(spec{use: "unfollow WORKSPACE", short: "Release a workspace from its channel", tenant: true, example: "  servo workspaces unfollow default --tenant acme"},
			func(ctx context.Context, s *session) (*servov1.FollowChannelResponse, error) {
				return s.client.Channels().FollowChannel(ctx, &servov1.FollowChannelRequest{Tenant: s.Tenant, Workspace: s.args[0]})
			},
			func(w io.Writer, s *session, _ *servov1.FollowChannelResponse) {
				fmt.Fprintf(w, "workspace %s/%s uses its own deployments\n", s.Tenant, s.args[0])
			}))
}

func newWorkspacesFollow() *cobra.Command {
	var (
		channel     string
		allowBroken bool
	)
	return newShow(spec{
		use: "follow WORKSPACE", short: "Set the channel that a workspace follows", tenant: true,
		long: `Make a workspace follow a channel: new runs use its releases. The workspace's own deployments
are kept, and used again after servo workspaces unfollow. It is refused if active configs of the
workspace would break.`,
		example: "  servo workspaces follow default --channel stable --tenant acme",
		flags: func(cmd *cobra.Command) {
			addChannel(cmd, &channel)
			cmd.Flags().BoolVar(&allowBroken, "allow-broken", false, "follow even if active configs would break")
		},
	}, func(ctx context.Context, s *session) (*servov1.FollowChannelResponse, error) {
		return s.client.Channels().FollowChannel(ctx, &servov1.FollowChannelRequest{Tenant: s.Tenant, Workspace: s.args[0], Channel: channel, AllowBroken: allowBroken})
	}, func(w io.Writer, s *session, _ *servov1.FollowChannelResponse) {
		fmt.Fprintf(w, "workspace %s/%s follows channel %q\n", s.Tenant, s.args[0], channel)
	})
}

// newTenantsLabel sets the labels of a tenant.
func newTenantsLabel() *cobra.Command {
	var labels map[string]string
	return newShow(spec{
		use: "label TENANT", short: "Set the labels of a tenant",
		long:    "Set the labels of a tenant: those that are not named are removed. Channels of releases select tenants by them.",
		example: "  servo tenants label acme --label tier=internal --label region=eu",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringToStringVar(&labels, "label", nil, "label as key=value; repeat for several (default: none)")
		},
	}, func(ctx context.Context, s *session) (*servov1.SetTenantLabelsResponse, error) {
		return s.client.Channels().SetTenantLabels(ctx, &servov1.SetTenantLabelsRequest{Tenant: s.args[0], Labels: labels})
	}, func(w io.Writer, s *session, _ *servov1.SetTenantLabelsResponse) {
		fmt.Fprintf(w, "tenant %q has %s\n", s.args[0], count(len(labels), "label"))
	})
}
