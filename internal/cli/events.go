package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/asset"
)

// newEvents is the group of commands about external events.
func newEvents() *cobra.Command {
	return group("events", "Send external events to listening configs",
		newShow(spec{
			use: "get EVENT", short: "Show the outcome of an external event", tenant: true, example: "  servo events get 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10",
			long: "Show the outcome of an external event. It is kept for at least 7 days.",
		}, func(ctx context.Context, s *session) (*servov1.OutsideEvent, error) {
			return s.client.Events().GetEvent(ctx, &servov1.GetEventRequest{Tenant: s.Tenant, Event: s.args[0]})
		}, func(w io.Writer, s *session, e *servov1.OutsideEvent) { eventText(w, s.paint, e, time.Now()) }),
		newEventsSend())
}

func newEventsSend() *cobra.Command {
	var (
		p   parameters
		key string
	)
	return newShow(spec{
		use: "send NAME", short: "Send an external event: one run per listening config", tenant: true, reason: true,
		long: `Send an external event. Each config of the workspace whose trigger is event: {name: NAME} gets one
run of it; the parameters of the event override its own. The same --key again is the same event,
for at least 7 days: nothing runs twice.`,
		example: `  servo events send billing.exported --key export-2026-01-31 --param day=2026-01-31`,
		flags: func(cmd *cobra.Command) {
			p.add(cmd)
			cmd.Flags().StringVar(&key, "key", "", "deduplication key of the event, up to 200 bytes")
		},
	}, func(ctx context.Context, s *session) (*servov1.SendEventResponse, error) {
		if key == "" {
			return nil, usageFault(s.cmd, "--key is missing: give a key that identifies this event, the same for each repeat")
		}
		req := &servov1.SendEventRequest{Tenant: s.Tenant, Workspace: s.Workspace, Name: s.args[0], DedupeKey: key, Reason: s.reason}
		object, err := p.read(s.cmd, func() ([]asset.Parameter, bool, error) { //nolint:contextcheck // the command has the same context
			declared, err := listenerParameters(ctx, s, req)
			return declared, false, err // the server refuses undeclared ones
		})
		if err != nil {
			return nil, err
		}
		if object != nil {
			if req.Parameters, err = structOf("--params", object); err != nil {
				return nil, err
			}
		}
		return s.client.Events().SendEvent(ctx, req)
	}, func(w io.Writer, s *session, answer *servov1.SendEventResponse) {
		sentText(w, answer, time.Now(), s.again())
	})
}

// listenersAsked is the number of configs that are searched for a listening one.
const listenersAsked = 1000

// listenerParameters returns the parameters that the pipeline of the first listening config
// declares: values of the command line are read as these types.
func listenerParameters(ctx context.Context, s *session, req *servov1.SendEventRequest) ([]asset.Parameter, error) {
	configs, err := first(client.AllConfigs(ctx, s.client, &servov1.ListConfigsRequest{Tenant: req.GetTenant(), Workspace: req.GetWorkspace(), PageSize: 100}), listenersAsked)
	if err != nil {
		return nil, err
	}
	for _, c := range configs {
		if c.GetSpec().GetTrigger().GetEvent().GetName() != req.GetName() {
			continue
		}
		declared, _, err := deployedParameters(ctx, s, &servov1.TriggerRunRequest{Tenant: req.GetTenant(), Workspace: c.GetWorkspace(), Pipeline: c.GetSpec().GetPipeline()})
		return declared, err
	}
	return nil, nil
}

func sentText(w io.Writer, answer *servov1.SendEventResponse, now time.Time, again string) {
	e := answer.GetEvent()
	switch {
	case answer.GetDuplicate():
		fmt.Fprintf(w, "event %s was sent before, %s: %s\n", e.GetId(), when(now, e.GetReceivedAt()), eventFate(e))
	case e.GetListeners() == 0:
		fmt.Fprintf(w, "event %s received; no config listens to %s\n", e.GetId(), clean(e.GetName()))
		return
	default:
		fmt.Fprintf(w, "event %s received; %s to %s\n", e.GetId(), listen(e.GetListeners()), clean(e.GetName()))
	}
	fmt.Fprintf(w, "see its outcome: servo events get %s%s\n", e.GetId(), again)
}

func listen(n int32) string {
	if n == 1 {
		return "1 config listens"
	}
	return fmt.Sprintf("%d configs listen", n)
}

// eventFate summarizes the runs and other outcomes of an event so far.
func eventFate(e *servov1.OutsideEvent) string {
	parts := []string{count(int(e.GetRuns()), "run")}
	for _, cause := range slices.Sorted(maps.Keys(e.GetSkipped())) {
		parts = append(parts, fmt.Sprintf("%d %s", e.GetSkipped()[cause], cause))
	}
	text := strings.Join(parts, ", ")
	if e.GetState() == servov1.OutsideEvent_PENDING {
		text += " so far"
	}
	return text
}

func eventText(w io.Writer, p palette, e *servov1.OutsideEvent, now time.Time) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	line("event", clean(e.GetName()))
	line("id", e.GetId())
	line("workspace", clean(e.GetWorkspace()))
	line("state", p.state(e.GetState().String()))
	line("key", clean(e.GetDedupeKey()))
	line("parameters", compact(e.GetParameters()))
	line("reason", clean(e.GetReason()))
	line("received", when(now, e.GetReceivedAt()))
	line("listeners", fmt.Sprint(e.GetListeners()))
	line("outcome", eventFate(e))
}
