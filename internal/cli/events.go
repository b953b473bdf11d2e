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

// newEvents sends what happens outside to the configs that listen.
func newEvents() *cobra.Command {
	return group("events", "Send events from outside to the configs that listen", newEventsGet(), newEventsSend())
}

func newEventsSend() *cobra.Command {
	var (
		r           remote
		p           parameters
		key, reason string
	)
	cmd := &cobra.Command{
		Use:   "send NAME",
		Short: "Send an event: each config that listens gets one run",
		Long: `Send an event. Each config of the workspace whose trigger is event: {name: NAME} gets one run of
it, with the parameters of the event over its own. The same --key again is the same event, for at
least 7 days: nothing runs twice.`,
		Example: `  servo events send billing.exported --key export-2026-01-31 --param day=2026-01-31`,
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			if key == "" {
				return usageFault(s.cmd, "--key is missing: give what tells this event from others, and is the same if you send it again")
			}
			req := &servov1.SendEventRequest{Tenant: tenant, Workspace: s.Workspace, Name: args[0], DedupeKey: key, Reason: reason}
			object, err := p.read(s.cmd, func() ([]asset.Parameter, bool, error) {
				declared, err := listenerParameters(ctx, s, req)
				return declared, false, err // those that are not declared are the server's to refuse
			})
			if err != nil {
				return err
			}
			if object != nil {
				if req.Parameters, err = structOf("--params", object); err != nil {
					return err
				}
			}
			answer, err := s.client.Events().SendEvent(ctx, req)
			if err != nil {
				return err
			}
			return s.show(answer, func(w io.Writer) { sentText(w, answer, time.Now(), s.again()) })
		}),
	}
	cmd.Flags().StringVar(&key, "key", "", "what tells this event from others (up to 200 bytes); the same again is the same event")
	p.add(cmd)
	addReason(cmd, &reason)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

// listenersAsked is how many configs are looked at for one that listens.
const listenersAsked = 1000

// listenerParameters are what the pipeline of the first config that listens declares: values of
// the command line are read as these types.
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
		fmt.Fprintf(w, "event %s is received; no config listens to %s\n", e.GetId(), clean(e.GetName()))
		return
	default:
		fmt.Fprintf(w, "event %s is received; %s to %s\n", e.GetId(), listen(e.GetListeners()), clean(e.GetName()))
	}
	fmt.Fprintf(w, "what comes of it: servo events get %s%s\n", e.GetId(), again)
}

func listen(n int32) string {
	if n == 1 {
		return "1 config listens"
	}
	return fmt.Sprintf("%d configs listen", n)
}

// eventFate says what has come of an event so far.
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

func newEventsGet() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:     "get EVENT",
		Short:   "Show what has come of an event, for at least 7 days",
		Example: "  servo events get 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10",
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := s.requireTenant(ctx)
			if err != nil {
				return err
			}
			e, err := s.client.Events().GetEvent(ctx, &servov1.GetEventRequest{Tenant: tenant, Event: args[0]})
			if err != nil {
				return err
			}
			return s.show(e, func(w io.Writer) { eventText(w, s.paint, e, time.Now()) })
		}),
	}
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
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
	line("came of it", eventFate(e))
}
