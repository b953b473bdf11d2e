package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

const (
	// maxEventsAtOnce is how many external events one transaction handles, if each has few listeners.
	maxEventsAtOnce = 100
	// listenersTried is how many listening configs are checked against the parameters of an external
	// event before it is accepted.
	listenersTried = 20
)

// SendEvent is an external event.
type SendEvent struct {
	Tenant     id.Tenant
	Workspace  string // "" is the default one
	Name       string
	Key        string          // deduplicates: the same key is the same event
	Parameters json.RawMessage // override those of the configs
	Reason     string
	Meta       event.Meta
}

// SentEvent is the answer to an external event.
type SentEvent struct {
	config.OutsideEvent

	WorkspaceName string
	Duplicate     bool // it was sent before: this is its state
}

// SendEvent accepts an external event: every config that listens to it gets one run, created by any server.
// A repeated key returns the first event.
func (e *Engine) SendEvent(ctx context.Context, r SendEvent) (sent SentEvent, err error) {
	if r.Workspace == "" {
		r.Workspace = tenant.DefaultWorkspace
	}
	if len(r.Parameters) == 0 {
		r.Parameters = json.RawMessage(`{}`)
	}
	if err := tenant.ValidateName("workspace", r.Workspace); err != nil {
		return sent, err
	}
	if err := config.ValidateEvent(r.Name, r.Key, r.Parameters); err != nil {
		return sent, err
	}
	if err := config.ValidateNote("reason", r.Reason); err != nil {
		return sent, err
	}
	if r.Parameters, err = canon.Exact(r.Parameters); err != nil {
		return sent, fault.New(fault.InvalidArgument, err.Error(), fault.Field("parameters"), fault.Remedy("send plain JSON"))
	}
	err = e.engineWithCode(ctx, func(ctx context.Context, tx *store.Tx) error {
		workspaces, err := tx.Workspaces(ctx, []store.WorkspaceName{{Tenant: r.Tenant, Name: r.Workspace}})
		if err != nil {
			return err
		}
		if len(workspaces) == 0 {
			return fault.New(fault.NotFound, "no workspace "+r.Workspace, fault.Field("workspace"), fault.Remedy("check the name"))
		}
		sent, err = e.sendEvent(ctx, tx, workspaces[0], r)
		return err
	})
	if err == nil && !sent.Duplicate {
		store.AfterCommit(ctx, func() { e.signals.Publish(signal.Due) })
	}
	return sent, err
}

func (e *Engine) sendEvent(ctx context.Context, tx *store.Tx, w store.Workspace, r SendEvent) (SentEvent, error) {
	key := store.EventKey{Tenant: r.Tenant, Workspace: w.ID, Name: r.Name, Key: r.Key}
	sent := SentEvent{WorkspaceName: w.Name}
	first, known, err := tx.EventByKey(ctx, key)
	if err != nil {
		return sent, err
	}
	if known {
		return sent.again(first, r)
	}
	listeners, err := tx.CountEventListeners(ctx, key)
	if err != nil {
		return sent, err
	}
	if err := e.someCanRun(ctx, tx, w, r); err != nil {
		return sent, err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return sent, err
	}
	received := event.Event{
		Tenant: r.Tenant, Subject: id.New[id.Event](id.NewMinter(now)).UUID, Version: 1, At: now, Meta: r.Meta,
		Body: config.EventReceived{Workspace: w.ID, Name: r.Name, Key: r.Key, Parameters: r.Parameters, Reason: r.Reason, Listeners: listeners},
	}
	if sent.OutsideEvent, err = sent.Evolve(received); err != nil {
		return sent, err
	}
	inserted, err := tx.InsertEvent(ctx, sent.OutsideEvent)
	if err != nil {
		return sent, err
	}
	if inserted {
		return sent, tx.AppendEntityEvents(ctx, received)
	}
	// Another caller has sent the same key at the same time, and has committed.
	if first, known, err = tx.EventByKey(ctx, key); err != nil {
		return sent, err
	}
	if !known {
		return sent, fault.New(fault.Unavailable, "the event with this key is being deleted", fault.Field("dedupe_key"), fault.RetryAfter(time.Second), fault.Remedy("send it again"))
	}
	return sent.again(first, r)
}

// again answers a key that was sent before.
func (s SentEvent) again(first config.OutsideEvent, r SendEvent) (SentEvent, error) {
	same, err := sameJSON(first.Parameters, r.Parameters)
	if err != nil {
		return s, err
	}
	if !same {
		return s, fault.New(fault.Conflict, fmt.Sprintf("the key %.100q was sent with other parameters, at %s", r.Key, first.ReceivedAt.UTC().Format(time.RFC3339)),
			fault.Field("dedupe_key"), fault.Remedy("use a new key for a new event"), fault.Value("event", first.ID.String()))
	}
	s.OutsideEvent, s.Duplicate = first, true
	return s, nil
}

// someCanRun refuses parameters with which no listening config could run: the sender can correct them. If
// some configs can run, the event is accepted.
func (e *Engine) someCanRun(ctx context.Context, tx *store.Tx, w store.Workspace, r SendEvent) error {
	if string(r.Parameters) == `{}` {
		return nil
	}
	code, err := e.activeCode(ctx, w)
	if err != nil || code == nil {
		return err // nothing is deployed: each run will fail with that
	}
	listening, err := tx.SomeEventListeners(ctx, store.EventKey{Tenant: r.Tenant, Workspace: w.ID, Name: r.Name}, listenersTried)
	if err != nil {
		return err
	}
	var refused *fault.Fault
	for _, c := range listening {
		f, err := refusal(code, c.Spec, r.Parameters)
		if err != nil || f == nil {
			return err
		}
		if refused == nil {
			named := *f
			named.Violation.Message += " (pipeline of config " + c.Name + "); no listening config can run with these parameters"
			refused = &named
		}
	}
	if refused == nil {
		return nil
	}
	return refused
}

// refusal is why a config cannot run with the parameters of an external event; nil if it can, or if
// another error prevents it.
func refusal(code *deployment, spec config.Spec, parameters json.RawMessage) (*fault.Fault, error) {
	own, err := spec.Example()
	if err != nil {
		return nil, err
	}
	merged, err := config.With(own, parameters)
	if err != nil {
		return nil, err
	}
	_, err = code.planner.Plan(plan.Request{Pipeline: spec.Pipeline, Parameters: merged, Undivided: true})
	if f, ok := fault.As(err); ok && strings.HasPrefix(f.Violation.Field, "parameters") {
		return f, nil
	}
	return nil, nil //nolint:nilnil // nothing is refused
}

// Handled is the result of HandleEvents.
type Handled struct {
	Events int // that are done
	Runs   int
	More   bool // there may be others
}

// handling are the external events of one transaction.
type handling struct {
	*firing

	events []config.OutsideEvent
	steps  []handlingStep
	cut    map[id.Event]bool // has more listeners than were read
	ended  []event.Event
}

// handlingStep is one config that listens to one event, in the order in which they get their runs.
type handlingStep struct {
	event   int
	config  id.Config
	trigger *firedTrigger  // nil if it has none
	skip    config.Outcome // why not; 0 if it does not listen any more
}

// HandleEvents creates the runs of waiting external events: for up to most configs in one transaction. It
// records its position, so that each config gets one run of each event, also after a crash.
func (e *Engine) HandleEvents(ctx context.Context, most int) (handled Handled, err error) {
	var h *handling
	err = e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		h, handled = nil, Handled{}
		taken, err := tx.TakeEvents(ctx, maxEventsAtOnce)
		if err != nil || len(taken) == 0 {
			return err
		}
		h = &handling{cut: map[id.Event]bool{}}
		if err := h.choose(ctx, tx, e, taken, most); err != nil {
			return err
		}
		handled.More = len(h.events) < len(taken) || len(taken) == maxEventsAtOnce
		w.at(h.now)
		n, err := h.createRuns(ctx, tx, w, maxTasksPerBatch)
		if err != nil {
			return err
		}
		if err := contended(h.batch[:n]); err != nil {
			return err
		}
		if err := h.note(n); err != nil {
			return err
		}
		if err := tx.UpdateEvents(ctx, h.events); err != nil {
			return err
		}
		if len(h.ended) == 0 {
			return nil
		}
		return tx.AppendEntityEvents(ctx, h.ended...)
	})
	if err != nil || h == nil {
		return Handled{}, err
	}
	handled.Events, handled.Runs, handled.More = len(h.ended), h.created, handled.More || len(h.ended) < len(h.events)
	return handled, h.followUp(ctx)
}

// choose locks the configs that listen to the first events, and adds their triggers.
func (h *handling) choose(ctx context.Context, tx *store.Tx, e *Engine, taken []config.OutsideEvent, most int) error {
	expected := 0
	for i := 0; i < len(taken) && (i == 0 || expected < most); i++ {
		h.events = taken[:i+1]
		expected += int(taken[i].Listeners)
	}
	listening, err := tx.EventListeners(ctx, h.events, most)
	if err != nil {
		return err
	}
	var keys []store.ConfigKey
	seen := map[store.ConfigKey]bool{}
	for _, of := range listening {
		for _, key := range of {
			if !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
	}
	configs, err := lockListeners(ctx, tx, keys)
	if err != nil {
		return err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return err
	}
	h.firing = newFiring(e, now)
	if h.loads, err = tx.LiveOfConfigs(ctx, keys); err != nil {
		return err
	}
	for i, o := range h.events {
		h.cut[o.ID] = len(listening[o.ID]) == most
		for _, key := range listening[o.ID] {
			step := handlingStep{event: i, config: key.Config}
			if c := configs[key.Config]; c != nil && c.Fires() && c.Spec.Trigger.Event != nil && c.Spec.Trigger.Event.Name == o.Name {
				if err := h.ask(&step, c.ConfigState, o); err != nil {
					return err
				}
			}
			h.steps = append(h.steps, step)
		}
	}
	return nil
}

// ask adds the trigger of a config with the parameters of an event.
func (h *handling) ask(step *handlingStep, c *store.ConfigState, o config.OutsideEvent) error {
	t := h.eventTrigger(c)
	if t == nil {
		step.skip = config.SkippedOverlap
		return nil
	}
	t.TriggeredBy = "event/" + o.Name
	var err error
	t.Parameters, err = config.With(t.Parameters, o.Parameters) // the parameters of an event are no template
	step.trigger = h.add(t)
	return err
}

// note counts the outcome of each config up to the nth trigger: with more the transaction would be too
// large, and the next one continues there.
func (h *handling) note(n int) error {
	calls, stopped := 0, false
	open := make(map[int]bool, len(h.events))
	for _, step := range h.steps {
		if step.trigger != nil {
			if calls++; calls > n {
				stopped = true
			}
		}
		if stopped {
			open[step.event] = true
			continue
		}
		o := &h.events[step.event]
		o.After = step.config
		switch r, _ := step.outcome(); {
		case step.trigger == nil && step.skip == 0:
		case r == nil:
			o.Runs++
		default:
			o.Skip(r.Outcome)
		}
	}
	for i := range h.events {
		o := &h.events[i]
		if open[i] || h.cut[o.ID] {
			continue
		}
		body := config.EventHandled{Runs: o.Runs, Skipped: o.Skipped}
		if len(o.Skipped) == 0 {
			body.Skipped = nil
		}
		e := event.Event{Tenant: o.Tenant, Subject: o.ID.UUID, Version: o.Version + 1, At: h.now, Meta: event.Meta{Actor: scheduler}, Body: body}
		next, err := o.Evolve(e)
		if err != nil {
			return err
		}
		*o = next
		h.ended = append(h.ended, e)
	}
	return nil
}

func (s handlingStep) outcome() (*config.Range, bool) {
	if s.trigger == nil {
		return &config.Range{Outcome: s.skip}, false
	}
	return firingSlot{trigger: s.trigger}.outcome()
}
