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
	"go.arco.dev/servo/internal/base/suggest"
)

// newAlerts shows what somebody must hear of.
func newAlerts() *cobra.Command {
	return group("alerts", "See what is wrong, and who is told", newAlertsList(), newAlertsGet(),
		group("channels", "Look after the URLs that hear of alerts", newChannelsCreate(), newChannelsList(), newChannelsTest(), newChannelsDelete()))
}

func newAlertsList() *cobra.Command {
	var (
		w     whose
		limit int
		all   bool
		kind  string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the alerts of a tenant that are open",
		Long: `List the alerts of a tenant that are open, the newest first; with --all also those that are
over. An alert is open as long as its condition holds.`,
		Example: `  servo alerts list
  servo alerts list --all --kind PIPELINE_DISABLED`,
		Args: exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			req := &servov1.ListAlertsRequest{Tenant: tenant, Open: !all, Kind: strings.ToUpper(kind), PageSize: pageSize(limit)}
			alerts, err := listed(s, client.AllAlerts(ctx, s.client, req), limit)
			if err != nil {
				return err
			}
			return showAll(s, alerts, "nothing is wrong", func(w io.Writer) { alertsTable(w, s, alerts, time.Now()) })
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that are over")
	cmd.Flags().StringVar(&kind, "kind", "", "only of this kind, such as PIPELINE_FAILING")
	addLimit(cmd, &limit, "alerts")
	addWhose(cmd, &w, "those of the installation itself")
	return cmd
}

func alertsTable(w io.Writer, s *session, alerts []*servov1.Alert, now time.Time) {
	var t table
	t.add("SEVERITY", "KIND", "ABOUT", "SINCE", "STATE", "ID", "MESSAGE")
	for _, a := range alerts {
		state := "OPEN"
		if a.GetResolvedAt() != nil {
			state = "RESOLVED"
		}
		t.add(a.GetSeverity().String(), a.GetKind(), clean(a.GetName()), age(now, a.GetRaisedAt()), s.paint.state(state), a.GetId(), clip(a.GetMessage(), 200))
	}
	t.print(w)
}

func newAlertsGet() *cobra.Command {
	var w whose
	cmd := &cobra.Command{
		Use:   "get ALERT",
		Short: "Show an alert, and what became of the messages about it",
		Args:  exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			a, err := s.client.Alerts().GetAlert(ctx, &servov1.GetAlertRequest{Tenant: tenant, Alert: args[0]})
			if err != nil {
				return err
			}
			return s.show(a, func(w io.Writer) { alertPage(w, a, time.Now()) })
		}),
	}
	addWhose(cmd, &w, "one of the installation itself")
	return cmd
}

func alertPage(w io.Writer, a *servov1.Alert, now time.Time) {
	fmt.Fprintf(w, "%s  %s  %s\n%s\n\n", a.GetKind(), a.GetSeverity(), clean(a.GetName()), clean(a.GetMessage()))
	var t table
	t.add("raised", when(now, a.GetRaisedAt()))
	t.add("resolved", when(now, a.GetResolvedAt()))
	t.print(w)
	if len(a.GetDeliveries()) == 0 {
		fmt.Fprintln(w, "\nno channel was told; servo alerts channels create makes one")
		return
	}
	fmt.Fprintln(w)
	var sent table
	sent.add("CHANNEL", "CHANGE", "TRIES", "DELIVERED", "AGAIN", "ERROR")
	for _, d := range a.GetDeliveries() {
		sent.add(clean(d.GetChannel()), d.GetChange(), fmt.Sprint(d.GetTries()), when(now, d.GetDeliveredAt()), when(now, d.GetAgainAt()), orDash(clip(d.GetError(), 80)))
	}
	sent.print(w)
}

func newChannelsCreate() *cobra.Command {
	var (
		w             whose
		url, severity string
	)
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a URL hear of alerts",
		Long: `Make a URL hear of alerts: when they begin and when they are over. Messages are posted as JSON
and signed by the Standard Webhooks convention (headers webhook-id, webhook-timestamp and
webhook-signature); one that is not answered with 2xx is tried again for a day.

The secret that they are signed with is printed once.`,
		Example: `  servo alerts channels create on-call --url https://hooks.example.com/servo --severity high
  servo alerts channels create operators --platform --url https://hooks.example.com/all`,
		Args: exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			number, err := severityOf(severity)
			if err != nil {
				return err
			}
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			made, err := s.client.Alerts().CreateAlertChannel(ctx, &servov1.CreateAlertChannelRequest{
				Tenant: tenant, Name: args[0], Url: url, Severity: number,
			})
			if err != nil {
				return err
			}
			return s.show(made, func(w io.Writer) {
				fmt.Fprintf(w, "channel %s hears of alerts from now on\ngive its receiver this secret; it is not shown again:\n  %s\n",
					clean(made.GetChannel().GetName()), shownOnce(made.GetSecret()))
			})
		}),
	}
	cmd.Flags().StringVar(&url, "url", "", "where messages are posted")
	cmd.Flags().StringVar(&severity, "severity", "low", "the least that it hears of: low, medium, high or critical")
	addWhose(cmd, &w, "hear of the alerts of all tenants and of the installation")
	return cmd
}

func severityOf(text string) (servov1.Alert_Severity, error) {
	number, known := servov1.Alert_Severity_value[strings.ToUpper(text)]
	if !known || number == 0 {
		return 0, fault.New(fault.InvalidArgument, fmt.Sprintf("%q is no severity%s", text, suggest.DidYouMean(text, []string{"low", "medium", "high", "critical"})),
			fault.Field("--severity"), fault.Remedy("use low, medium, high or critical"))
	}
	return servov1.Alert_Severity(number), nil
}

func newChannelsList() *cobra.Command {
	var w whose
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the URLs that hear of alerts",
		Args:  exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			answer, err := s.client.Alerts().ListAlertChannels(ctx, &servov1.ListAlertChannelsRequest{Tenant: tenant})
			if err != nil {
				return err
			}
			return showAll(s, answer.GetChannels(), "nobody hears of alerts but the log", func(w io.Writer) {
				var t table
				t.add("CHANNEL", "SEVERITY", "URL", "AGE")
				for _, c := range answer.GetChannels() {
					t.add(clean(c.GetName()), c.GetSeverity().String(), clean(c.GetUrl()), age(time.Now(), c.GetCreatedAt()))
				}
				t.print(w)
			})
		}),
	}
	addWhose(cmd, &w, "those of the installation")
	return cmd
}

func newChannelsTest() *cobra.Command {
	var w whose
	cmd := &cobra.Command{
		Use:   "test NAME",
		Short: "Send a test message to an alert channel",
		Long: `Send a test message to an alert channel now, and show what its URL has answered. The message has
the type alert.test and is signed like every other. It is sent once, whatever the severity of
the channel. Exits with 1 if the URL did not answer with 2xx.`,
		Example: `  servo alerts channels test on-call`,
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			answer, err := s.client.Alerts().TestAlertChannel(ctx, &servov1.TestAlertChannelRequest{Tenant: tenant, Channel: args[0]})
			if err != nil {
				return err
			}
			if answer.GetDelivered() {
				return s.show(answer, func(w io.Writer) {
					fmt.Fprintf(w, "channel %s delivered the test message: answered %s after %s\n", clean(args[0]), clean(answer.GetStatus()), answer.GetTook().AsDuration())
				})
			}
			if err := s.show(answer, func(io.Writer) {}); err != nil {
				return err
			}
			return fault.New(fault.Unavailable, fmt.Sprintf("channel %s did not deliver the test message: %s", clean(args[0]), clip(answer.GetError(), 300)),
				fault.Remedy("check the URL with servo alerts channels list; receivers answer with 2xx"))
		}),
	}
	addWhose(cmd, &w, "one of the installation")
	return cmd
}

func newChannelsDelete() *cobra.Command {
	var w whose
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Make a URL hear of alerts no more",
		Args:  exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			answer, err := s.client.Alerts().DeleteAlertChannel(ctx, &servov1.DeleteAlertChannelRequest{Tenant: tenant, Channel: args[0]})
			if err != nil {
				return err
			}
			return s.show(answer, func(w io.Writer) { fmt.Fprintf(w, "channel %s hears of nothing any more\n", clean(args[0])) })
		}),
	}
	addWhose(cmd, &w, "one of the installation")
	return cmd
}
