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

// ofPlatform is the usage of --platform for commands about one object.
const ofPlatform = "use the installation instead of a tenant"

// newAlerts is the group of commands about alerts and their channels.
func newAlerts() *cobra.Command {
	return group("alerts", "List alerts and manage alert channels",
		newAlertsList(),
		newShow(spec{use: "get ALERT", short: "Show an alert and its deliveries", platform: ofPlatform},
			func(ctx context.Context, s *session) (*servov1.Alert, error) {
				return s.client.Alerts().GetAlert(ctx, &servov1.GetAlertRequest{Tenant: s.Tenant, Alert: s.args[0]})
			}, alertText),
		group("channels", "Manage the URLs that receive alerts",
			newChannelsCreate(),
			newList(spec{short: "List alert channels", platform: "channels of the installation"},
				"no alert channels configured; alerts go to the server log only",
				func(ctx context.Context, s *session) ([]*servov1.AlertChannel, error) {
					answer, err := s.client.Alerts().ListAlertChannels(ctx, &servov1.ListAlertChannelsRequest{Tenant: s.Tenant})
					return answer.GetChannels(), err
				},
				columns([]string{"CHANNEL", "SEVERITY", "URL", "AGE"}, func(v view, c *servov1.AlertChannel) []string {
					return []string{clean(c.GetName()), c.GetSeverity().String(), clean(c.GetUrl()), age(v.now, c.GetCreatedAt())}
				})),
			newChannelsTest(),
			newDelete("channel", spec{short: "Delete an alert channel", platform: ofPlatform},
				func(ctx context.Context, s *session) (*servov1.DeleteAlertChannelResponse, error) {
					return s.client.Alerts().DeleteAlertChannel(ctx, &servov1.DeleteAlertChannelRequest{Tenant: s.Tenant, Channel: s.args[0]})
				})))
}

func newAlertsList() *cobra.Command {
	var (
		all  bool
		kind string
	)
	return newList(spec{
		short: "List open alerts, newest first", platform: "alerts of the installation", limit: "alerts",
		long: `List open alerts of a tenant, newest first; with --all also resolved ones. An alert is open
as long as its condition holds.`,
		example: `  servo alerts list
  servo alerts list --all --kind PIPELINE_DISABLED`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&all, "all", false, "include resolved alerts")
			cmd.Flags().StringVar(&kind, "kind", "", "filter by kind, such as PIPELINE_FAILING")
		},
	}, "no open alerts", func(ctx context.Context, s *session) ([]*servov1.Alert, error) {
		req := &servov1.ListAlertsRequest{Tenant: s.Tenant, Open: !all, Kind: strings.ToUpper(kind), PageSize: pageSize(s.limit)}
		return listed(s, client.AllAlerts(ctx, s.client, req))
	}, columns([]string{"SEVERITY", "KIND", "ABOUT", "SINCE", "STATE", "ID", "MESSAGE"}, func(v view, a *servov1.Alert) []string {
		state := "OPEN"
		if a.GetResolvedAt() != nil {
			state = "RESOLVED"
		}
		return []string{a.GetSeverity().String(), a.GetKind(), clean(a.GetName()), age(v.now, a.GetRaisedAt()), v.paint.state(state), a.GetId(), clip(a.GetMessage(), 200)}
	}))
}

func alertText(w io.Writer, _ *session, a *servov1.Alert) {
	now := time.Now()
	fmt.Fprintf(w, "%s  %s  %s\n%s\n\n", a.GetKind(), a.GetSeverity(), clean(a.GetName()), clean(a.GetMessage()))
	var t table
	t.add("raised", when(now, a.GetRaisedAt()))
	t.add("resolved", when(now, a.GetResolvedAt()))
	t.print(w)
	if len(a.GetDeliveries()) == 0 {
		fmt.Fprintln(w, "\nno channel was notified; create one: servo alerts channels create NAME")
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
		url, severity string
		number        servov1.Alert_Severity
	)
	return newShow(spec{
		use: "create NAME", short: "Create an alert channel", platform: "alerts of all tenants and of the installation",
		long: `Create an alert channel: a URL that receives a message when an alert opens and when it is
resolved. Messages are posted as JSON and signed by the Standard Webhooks convention (headers
webhook-id, webhook-timestamp and webhook-signature). A message that is not answered with 2xx is
retried for a day.

The signing secret is printed once.`,
		example: `  servo alerts channels create on-call --url https://hooks.example.com/servo --severity high
  servo alerts channels create operators --platform --url https://hooks.example.com/all`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&url, "url", "", "URL that receives the messages")
			cmd.Flags().StringVar(&severity, "severity", "low", "lowest severity: low, medium, high or critical")
		},
		check: func(*session) (err error) {
			number, err = severityOf(severity)
			return err
		},
	}, func(ctx context.Context, s *session) (*servov1.CreateAlertChannelResponse, error) {
		return s.client.Alerts().CreateAlertChannel(ctx, &servov1.CreateAlertChannelRequest{Tenant: s.Tenant, Name: s.args[0], Url: url, Severity: number})
	}, func(w io.Writer, _ *session, made *servov1.CreateAlertChannelResponse) {
		fmt.Fprintf(w, "channel %s created\n", clean(made.GetChannel().GetName()))
		receiverSecret(w, made.GetSecret())
	})
}

// receiverSecret prints the secret that a receiver verifies messages with.
func receiverSecret(w io.Writer, secret string) {
	fmt.Fprintf(w, "give its receiver this secret; it is not shown again:\n  %s\n", shownOnce(secret))
}

func severityOf(text string) (servov1.Alert_Severity, error) {
	number, known := servov1.Alert_Severity_value[strings.ToUpper(text)]
	if !known || number == 0 {
		return 0, fault.New(fault.InvalidArgument, fmt.Sprintf("unknown severity %q%s", text, suggest.DidYouMean(text, []string{"low", "medium", "high", "critical"})),
			fault.Field("--severity"), fault.Remedy("use low, medium, high or critical"))
	}
	return servov1.Alert_Severity(number), nil
}

func newChannelsTest() *cobra.Command {
	return newCall(spec{
		use: "test NAME", short: "Send a test message to an alert channel", platform: ofPlatform,
		long: `Send a test message to an alert channel and show the answer of its URL. The message has the
type alert.test and is signed like every other. It is sent once, whatever the severity of the
channel. Exits with 1 if the URL does not answer with 2xx.`,
		example: `  servo alerts channels test on-call`,
	}, func(ctx context.Context, s *session) error {
		answer, err := s.client.Alerts().TestAlertChannel(ctx, &servov1.TestAlertChannelRequest{Tenant: s.Tenant, Channel: s.args[0]})
		if err != nil {
			return err
		}
		name := clean(s.args[0])
		err = s.show(answer, func(w io.Writer) {
			if answer.GetDelivered() {
				fmt.Fprintf(w, "channel %s delivered the test message: answered %s after %s\n", name, clean(answer.GetStatus()), answer.GetTook().AsDuration())
			}
		})
		if err != nil || answer.GetDelivered() {
			return err
		}
		return fault.New(fault.Unavailable, fmt.Sprintf("channel %s did not deliver the test message: %s", name, clip(answer.GetError(), 300)),
			fault.Remedy("check the URL with servo alerts channels list; receivers answer with 2xx"))
	})
}
