package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newSubscriptions looks after the URLs that hear of events.
func newSubscriptions() *cobra.Command {
	return group("subscriptions", "Look after the URLs that hear of events",
		newSubscriptionsCreate(), newSubscriptionsList(), newSubscriptionsGet(), newSubscriptionsPause(), newSubscriptionsResume(),
		newSubscriptionsReplay(), newSubscriptionsDelete())
}

func newSubscriptionsCreate() *cobra.Command {
	var (
		w   whose
		req = &servov1.CreateSubscriptionRequest{}
	)
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a URL hear of events",
		Long: `Make a URL hear of events: everything that happens to the runs, tasks, configs and whatever
else of a tenant, or with --platform of everybody. Events are posted as a JSON array of up to
100, in the order of the feed, and signed by the Standard Webhooks convention (headers
webhook-id, webhook-timestamp and webhook-signature). What is not answered with 2xx is
repeated, later and later, and nothing behind it is sent before; after three days the
subscription is paused. With --workspace only events of runs in that workspace are sent.

An event may come more than once: it has the same id then. The events of one stream are put
in order by their version.

The secret that calls are signed with is printed once.`,
		Example: `  servo subscriptions create audit --url https://hooks.example.com/servo
  servo subscriptions create ends --url https://hooks.example.com/ends --type run.ended --type run.breached --pipeline daily
  servo subscriptions create warehouse --platform --from beginning --url https://hooks.example.com/all`,
		Args: exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			var err error
			if req.Tenant, err = w.tenantOf(ctx, s); err != nil {
				return err
			}
			req.Name = args[0]
			if s.cmd.Flags().Changed("workspace") { // a workspace of the settings is where one works, not what is asked for
				req.Workspace = s.Workspace
			}
			made, err := s.client.Subscriptions().CreateSubscription(ctx, req)
			if err != nil {
				return err
			}
			return s.show(made, func(w io.Writer) {
				fmt.Fprintf(w, "subscription %s hears of events after %s\ngive its receiver this secret; it is not shown again:\n  %s\n",
					clean(made.GetSubscription().GetName()), made.GetSubscription().GetPosition(), shownOnce(made.GetSecret()))
			})
		}),
	}
	cmd.Flags().StringVar(&req.Url, "url", "", "where events are posted")
	cmd.Flags().StringArrayVar(&req.Types, "type", nil, "only events of this type, or of a prefix such as run.*; may be given several times")
	cmd.Flags().StringVar(&req.Pipeline, "pipeline", "", "only events of runs of this pipeline")
	cmd.Flags().StringVar(&req.From, "from", "now", "where to begin: now, beginning, or after the event of this id")
	addWhose(cmd, &w, "hear of the events of all tenants and of the installation")
	return cmd
}

func newSubscriptionsList() *cobra.Command {
	var w whose
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the URLs that hear of events",
		Args:  exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			answer, err := s.client.Subscriptions().ListSubscriptions(ctx, &servov1.ListSubscriptionsRequest{Tenant: tenant})
			if err != nil {
				return err
			}
			return showAll(s, answer.GetSubscriptions(), "nobody hears of events", func(w io.Writer) {
				var t table
				t.add("SUBSCRIPTION", "STATE", "TYPES", "DELIVERED", "URL", "AGE")
				for _, f := range answer.GetSubscriptions() {
					t.add(clean(f.GetName()), s.paint.state(f.GetState().String()), typesOf(f), fmt.Sprint(f.GetDelivered()), clean(f.GetUrl()), age(time.Now(), f.GetCreatedAt()))
				}
				t.print(w)
			})
		}),
	}
	addWhose(cmd, &w, "those of the installation")
	return cmd
}

func typesOf(f *servov1.Subscription) string {
	if len(f.GetTypes()) == 0 {
		return "all"
	}
	return clip(strings.Join(f.GetTypes(), " "), 60)
}

func newSubscriptionsGet() *cobra.Command {
	var w whose
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Show a subscription, and how far it is behind",
		Args:  exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			f, err := s.client.Subscriptions().GetSubscription(ctx, &servov1.GetSubscriptionRequest{Tenant: tenant, Subscription: args[0]})
			if err != nil {
				return err
			}
			return s.show(f, func(w io.Writer) { subscriptionPage(w, s, f, time.Now()) })
		}),
	}
	addWhose(cmd, &w, "one of the installation")
	return cmd
}

func subscriptionPage(w io.Writer, s *session, f *servov1.Subscription, now time.Time) {
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

// changing is a command that does something to a subscription and says so.
func changing(use, short, long string, do func(ctx context.Context, s *session, tenant, name string) (*servov1.Subscription, error), said string) *cobra.Command {
	var w whose
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long,
		Args:  exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			f, err := do(ctx, s, tenant, args[0])
			if err != nil {
				return err
			}
			return s.show(f, func(w io.Writer) {
				fmt.Fprintf(w, "subscription %s %s %s\n", clean(f.GetName()), said, f.GetPosition())
			})
		}),
	}
	addWhose(cmd, &w, "one of the installation")
	return cmd
}

func newSubscriptionsPause() *cobra.Command {
	var reason string
	cmd := changing("pause NAME", "Let a subscription hear of nothing for a while",
		`Let a subscription hear of nothing for a while. What happens meanwhile it hears of when it is
resumed.`,
		func(ctx context.Context, s *session, tenant, name string) (*servov1.Subscription, error) {
			return s.client.Subscriptions().PauseSubscription(ctx, &servov1.PauseSubscriptionRequest{Tenant: tenant, Subscription: name, Reason: reason})
		}, "is paused at")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks")
	return cmd
}

func newSubscriptionsResume() *cobra.Command {
	cmd := changing("resume NAME", "Let a subscription go on where it was",
		"Let a subscription that was paused, or that has paused since its receiver failed, go on where it was.",
		func(ctx context.Context, s *session, tenant, name string) (*servov1.Subscription, error) {
			return s.client.Subscriptions().ResumeSubscription(ctx, &servov1.ResumeSubscriptionRequest{Tenant: tenant, Subscription: name})
		}, "goes on after")
	return cmd
}

func newSubscriptionsReplay() *cobra.Command {
	var from string
	cmd := changing("replay NAME", "Make a subscription go on after another place",
		`Make a subscription go on after another place in the feed: after an event that was delivered
(its id), from the beginning, or from now on. Going back repeats events, with the ids that they
had; going ahead leaves some out.`,
		func(ctx context.Context, s *session, tenant, name string) (*servov1.Subscription, error) {
			return s.client.Subscriptions().ReplaySubscription(ctx, &servov1.ReplaySubscriptionRequest{Tenant: tenant, Subscription: name, From: from})
		}, "goes on after")
	cmd.Example = `  servo subscriptions replay audit --from beginning
  servo subscriptions replay audit --from 1.7342.190`
	cmd.Flags().StringVar(&from, "from", "", "now, beginning, or the id of an event")
	_ = cmd.MarkFlagRequired("from")
	return cmd
}

func newSubscriptionsDelete() *cobra.Command {
	var w whose
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Make a URL hear of events no more",
		Args:  exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			answer, err := s.client.Subscriptions().DeleteSubscription(ctx, &servov1.DeleteSubscriptionRequest{Tenant: tenant, Subscription: args[0]})
			if err != nil {
				return err
			}
			return s.show(answer, func(w io.Writer) { fmt.Fprintf(w, "subscription %s hears of nothing any more\n", clean(args[0])) })
		}),
	}
	addWhose(cmd, &w, "one of the installation")
	return cmd
}

// newEpoch tells whoever follows the feed that the database was put back.
func newEpoch() *cobra.Command {
	var (
		database, reason string
		form             output
	)
	cmd := &cobra.Command{
		Use:   "new-epoch",
		Short: "Say that the database was put back to an earlier state",
		Long: `Say that the database was put back to an earlier state, before servers are started on it: what
happens from now on gets ids that no event had before, although the cluster gives its
transaction ids out again.

Servers see by themselves that a cluster was restored from a backup with its log, or that a
standby was promoted: the cluster has another identifier or timeline then. A copy of a disk has
the same: then this command is needed.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := openMigrated(cmd.Context(), database)
			if err != nil {
				return err
			}
			defer s.Close()
			epoch, err := s.RaiseFeedEpoch(cmd.Context(), reason)
			if err != nil {
				return err
			}
			return render(cmd.OutOrStdout(), form, map[string]int32{"epoch": epoch}, func(w io.Writer) { fmt.Fprintf(w, "the feed is in epoch %d\n", epoch) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks")
	addDatabase(cmd, &database)
	addOutput(cmd, &form)
	return cmd
}
