package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/store"
)

// newSubscriptions is the group of commands about subscriptions.
func newSubscriptions() *cobra.Command {
	return group("subscriptions", "Manage the URLs that receive events",
		newSubscriptionsCreate(),
		newList(spec{short: "List subscriptions", platform: "subscriptions of the installation"}, "no subscriptions",
			func(ctx context.Context, s *session) ([]*servov1.Subscription, error) {
				answer, err := s.client.Subscriptions().ListSubscriptions(ctx, &servov1.ListSubscriptionsRequest{Tenant: s.Tenant})
				return answer.GetSubscriptions(), err
			},
			columns([]string{"SUBSCRIPTION", "STATE", "TYPES", "DELIVERED", "URL", "AGE"}, func(v view, f *servov1.Subscription) []string {
				return []string{clean(f.GetName()), v.paint.state(f.GetState().String()), typesOf(f), fmt.Sprint(f.GetDelivered()), clean(f.GetUrl()), age(v.now, f.GetCreatedAt())}
			})),
		newShow(spec{use: "get NAME", short: "Show a subscription and its lag", platform: ofPlatform},
			func(ctx context.Context, s *session) (*servov1.Subscription, error) {
				return s.client.Subscriptions().GetSubscription(ctx, &servov1.GetSubscriptionRequest{Tenant: s.Tenant, Subscription: s.args[0]})
			}, subscriptionText),
		newShow(spec{
			use: "pause NAME", short: "Pause a subscription", platform: ofPlatform, reason: true,
			long: "Pause a subscription. Events of the meantime are delivered when it is resumed.",
		}, func(ctx context.Context, s *session) (*servov1.Subscription, error) {
			return s.client.Subscriptions().PauseSubscription(ctx, &servov1.PauseSubscriptionRequest{Tenant: s.Tenant, Subscription: s.args[0], Reason: s.reason})
		}, subscriptionAt("paused at")),
		newShow(spec{
			use: "resume NAME", short: "Resume a subscription at its position", platform: ofPlatform,
			long: "Resume a subscription at its position. A subscription pauses itself after its receiver failed for three days.",
		}, func(ctx context.Context, s *session) (*servov1.Subscription, error) {
			return s.client.Subscriptions().ResumeSubscription(ctx, &servov1.ResumeSubscriptionRequest{Tenant: s.Tenant, Subscription: s.args[0]})
		}, subscriptionAt("continues after")),
		newSubscriptionsReplay(),
		newDelete("subscription", spec{short: "Delete a subscription", platform: ofPlatform},
			func(ctx context.Context, s *session) (*servov1.DeleteSubscriptionResponse, error) {
				return s.client.Subscriptions().DeleteSubscription(ctx, &servov1.DeleteSubscriptionRequest{Tenant: s.Tenant, Subscription: s.args[0]})
			}))
}

func newSubscriptionsCreate() *cobra.Command {
	req := &servov1.CreateSubscriptionRequest{}
	return newShow(spec{
		use: "create NAME", short: "Create a subscription", platform: "events of all tenants and of the installation",
		long: `Create a subscription: a URL that receives the events of a tenant's runs, tasks, configs and
other objects, or with --platform those of all tenants. Events are posted as a JSON array of up to
100, in the order of the feed, and signed by the Standard Webhooks convention (headers
webhook-id, webhook-timestamp and webhook-signature). A call that is not answered with 2xx is
retried with a growing delay, and later events wait for it; after three days the subscription is
paused. With --workspace only events of runs in that workspace are sent.

An event may arrive more than once, with the same id. The version of an event orders the events
of one stream.

The signing secret is printed once.`,
		example: `  servo subscriptions create audit --url https://hooks.example.com/servo
  servo subscriptions create ends --url https://hooks.example.com/ends --type run.ended --type run.breached --pipeline daily
  servo subscriptions create warehouse --platform --from beginning --url https://hooks.example.com/all`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&req.Url, "url", "", "URL that receives the events")
			cmd.Flags().StringArrayVar(&req.Types, "type", nil, "filter by type, or by a prefix such as run.*; repeatable")
			cmd.Flags().StringVar(&req.Pipeline, "pipeline", "", "filter by pipeline")
			cmd.Flags().StringVar(&req.From, "from", "now", "start: now, beginning, or the id of the event before")
		},
	}, func(ctx context.Context, s *session) (*servov1.CreateSubscriptionResponse, error) {
		req.Tenant, req.Name = s.Tenant, s.args[0]
		if s.cmd.Flags().Changed("workspace") { // the workspace of the settings is no filter
			req.Workspace = s.Workspace
		}
		return s.client.Subscriptions().CreateSubscription(ctx, req)
	}, func(w io.Writer, _ *session, made *servov1.CreateSubscriptionResponse) {
		fmt.Fprintf(w, "subscription %s created; it starts after %s\n", clean(made.GetSubscription().GetName()), made.GetSubscription().GetPosition())
		receiverSecret(w, made.GetSecret())
	})
}

func typesOf(f *servov1.Subscription) string {
	if len(f.GetTypes()) == 0 {
		return "all"
	}
	return clip(strings.Join(f.GetTypes(), " "), 60)
}

func subscriptionText(w io.Writer, s *session, f *servov1.Subscription) {
	now := time.Now()
	fmt.Fprintf(w, "%s  %s\n%s\n\n", clean(f.GetName()), s.paint.state(f.GetState().String()), clean(f.GetUrl()))
	var t table
	t.add("types", typesOf(f))
	if f.GetWorkspace() != "" {
		t.add("workspace", clean(f.GetWorkspace()))
	}
	if f.GetPipeline() != "" {
		t.add("pipeline", clean(f.GetPipeline()))
	}
	t.add("position", f.GetPosition())
	t.add("lag", f.GetLag().AsDuration().Round(time.Millisecond).String())
	t.add("delivered", fmt.Sprintf("%d events", f.GetDelivered()))
	t.add("last", when(now, f.GetDeliveredAt()))
	if f.GetPausedAt() != nil {
		t.add("paused", when(now, f.GetPausedAt())+"  "+clip(f.GetPauseReason(), 200))
	}
	if f.GetFailingSince() != nil {
		t.add("failing", fmt.Sprintf("since %s, %d calls", when(now, f.GetFailingSince()), f.GetTries()))
		t.add("error", clip(f.GetError(), 200))
		t.add("again", when(now, f.GetAgainAt()))
	}
	t.add("created", when(now, f.GetCreatedAt())+"  "+clean(f.GetCreatedBy()))
	t.print(w)
}

// subscriptionAt prints a verb and the position of a subscription.
func subscriptionAt(verb string) func(w io.Writer, s *session, f *servov1.Subscription) {
	return func(w io.Writer, _ *session, f *servov1.Subscription) {
		fmt.Fprintf(w, "subscription %s %s %s\n", clean(f.GetName()), verb, f.GetPosition())
	}
}

func newSubscriptionsReplay() *cobra.Command {
	var from string
	return newShow(spec{
		use: "replay NAME", short: "Move a subscription to another position", platform: ofPlatform,
		long: `Move a subscription to another position of the feed: after a delivered event (its id), to the
beginning, or to the end. Moving back repeats events with the same ids; moving ahead skips some.`,
		example: `  servo subscriptions replay audit --from beginning
  servo subscriptions replay audit --from 1.7342.190`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&from, "from", "", "position: now, beginning, or the id of an event")
			_ = cmd.MarkFlagRequired("from") // the flag exists
		},
	}, func(ctx context.Context, s *session) (*servov1.Subscription, error) {
		return s.client.Subscriptions().ReplaySubscription(ctx, &servov1.ReplaySubscriptionRequest{Tenant: s.Tenant, Subscription: s.args[0], From: from})
	}, subscriptionAt("continues after"))
}

// newEpoch starts a new epoch of the feed, after the database was restored.
func newEpoch() *cobra.Command {
	var reason string
	return newOnDatabase(spec{
		use: "new-epoch", short: "Start a new epoch after a restore of the database",
		long: `Start a new epoch after a restore of the database, before servers start on it: later events get
ids that no event had before, although the cluster assigns its transaction ids again.

Servers detect by themselves that a cluster was restored from a backup with its log, or that a
standby was promoted: the cluster then has another identifier or timeline. A copy of a disk has
the same ones and needs this command.`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&reason, "reason", "", "reason for the change, recorded with it")
		},
	}, openMigrated, func(ctx context.Context, s *store.Store, _ []string) (map[string]int32, error) {
		epoch, err := s.RaiseFeedEpoch(ctx, reason)
		return map[string]int32{"epoch": epoch}, err
	}, func(w io.Writer, answer map[string]int32) { fmt.Fprintf(w, "epoch %d started\n", answer["epoch"]) })
}
