package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/webhook"
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// Bounds of one transaction about alerts.
const (
	maxAlertChanges = 1000
	messageLease    = time.Minute
	maxMessageError = 500
)

const watcher = "watch" // the actor of the events of alerts

// Alerts is signalled when there may be messages to send.
func (e *Engine) Alerts() <-chan struct{} { return e.signals.Wait(signal.Alert) }

// Watch compares the current conditions with the open alerts: it raises new ones, resolves those that are
// over, and writes the messages about both. More reports that there were too many for one transaction. Any
// server may call it at any time; one at a time works.
func (e *Engine) Watch(ctx context.Context) (more bool, err error) {
	var raised, resolved []alert.Alert
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		alone, err := tx.WatchAlone(ctx)
		if err != nil || !alone {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		holding, err := tx.Conditions(ctx, now)
		if err != nil {
			return err
		}
		open, err := tx.OpenAlerts(ctx)
		if err != nil {
			return err
		}
		begin, end := alert.Compare(holding, open)
		if len(begin) > maxAlertChanges || len(end) > maxAlertChanges {
			more = true
			begin, end = begin[:min(len(begin), maxAlertChanges)], end[:min(len(end), maxAlertChanges)]
		}
		raised, resolved, err = changeAlerts(ctx, tx, now, begin, end)
		return err
	})
	if err != nil {
		return false, err
	}
	for _, a := range raised {
		e.log.Log(ctx, levelOf(a.Severity), "alert raised", alertFields(a)...)
	}
	for _, a := range resolved {
		e.log.Info("alert resolved", alertFields(a)...)
	}
	if len(raised)+len(resolved) > 0 {
		e.signals.Publish(signal.Alert)
	}
	return more, nil
}

func alertFields(a alert.Alert) []any {
	return []any{"kind", a.Kind, "severity", a.Severity.String(), "alert", a.ID, "tenant", a.Tenant, "about", a.About, "name", a.Name, "message", a.Message}
}

func levelOf(s alert.Severity) slog.Level {
	if s >= alert.High {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// changeAlerts writes alerts that begin and end, their events, and the messages about them.
func changeAlerts(ctx context.Context, tx *store.Tx, now time.Time, begin []alert.Condition, end []alert.Alert) (raised, resolved []alert.Alert, err error) {
	if len(begin)+len(end) == 0 {
		return nil, nil, nil
	}
	var (
		mint   = id.NewMinter(now)
		events []event.Event
	)
	record := func(a alert.Alert, e event.Event) (alert.Alert, error) {
		e.Version, e.At, e.Meta = a.Version+1, now, event.Meta{Actor: watcher}
		events = append(events, e)
		return a.Evolve(e)
	}
	for _, c := range begin {
		a, err := record(alert.Alert{}, event.Event{
			Tenant: c.Tenant, Subject: id.New[id.Alert](mint).UUID,
			Body: alert.Raised{Kind: c.Kind, Severity: c.Kind.Severity(), About: c.About, Name: c.Subject(), Message: c.Message()},
		})
		if err != nil {
			return nil, nil, err
		}
		raised = append(raised, a)
	}
	for _, a := range end {
		a, err := record(a, event.Event{Tenant: a.Tenant, Subject: a.ID.UUID, Body: alert.Resolved{}})
		if err != nil {
			return nil, nil, err
		}
		resolved = append(resolved, a)
	}
	messages, err := messagesOf(ctx, tx, raised, resolved)
	if err != nil {
		return nil, nil, err
	}
	if err := tx.AppendEntityEvents(ctx, events...); err != nil {
		return nil, nil, err
	}
	return raised, resolved, tx.ChangeAlerts(ctx, now, raised, resolved, messages)
}

// messagesOf creates the messages of alerts for the channels that receive them.
func messagesOf(ctx context.Context, tx *store.Tx, raised, resolved []alert.Alert) (messages []alert.Message, err error) {
	tenants := []id.Tenant{{}}
	for _, alerts := range [][]alert.Alert{raised, resolved} {
		for _, a := range alerts {
			tenants = append(tenants, a.Tenant)
		}
	}
	channels, err := tx.ChannelsOf(ctx, tenants)
	if err != nil {
		return nil, err
	}
	byTenant := map[id.Tenant][]alert.Channel{}
	for _, c := range channels {
		byTenant[c.Tenant] = append(byTenant[c.Tenant], c)
	}
	add := func(a alert.Alert, change alert.Change) {
		receivers := byTenant[a.Tenant]
		if a.Tenant != (id.Tenant{}) {
			receivers = append(receivers[:len(receivers):len(receivers)], byTenant[id.Tenant{}]...)
		}
		for _, c := range receivers {
			// A channel that was created in between receives no end without a beginning.
			if c.Receives(a) && !c.CreatedAt.After(a.RaisedAt) {
				messages = append(messages, alert.Message{Alert: a, Channel: c, Change: change})
			}
		}
	}
	for _, a := range raised {
		add(a, alert.Begun)
	}
	for _, a := range resolved {
		add(a, alert.Ended)
	}
	return messages, nil
}

// TakeMessages leases up to most messages that are due. The caller reports the outcome of each within
// MessageLease, or another server takes them again. Now is the database's time.
func (e *Engine) TakeMessages(ctx context.Context, most int) (taken []alert.Message, now time.Time, err error) {
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		if now, err = tx.Clock(ctx); err != nil {
			return err
		}
		taken, err = tx.TakeMessages(ctx, now, messageLease, most)
		return err
	})
	return taken, now, err
}

// MessageLease is how long a message is leased to the server that has taken it.
func (*Engine) MessageLease() time.Duration { return messageLease }

// MessageSent records that a message was delivered, or why it was not: then it is retried for a day.
func (e *Engine) MessageSent(ctx context.Context, m alert.Message, failure string) error {
	var settled store.Settled
	err := e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		settled = store.Settled{Error: clipped(failure, maxMessageError)}
		switch {
		case failure == "":
			settled.Delivered = now
		case m.Channel.DeletedAt.IsZero():
			if at, again := m.Again(now); again {
				settled.Again = at
			}
		}
		_, err = tx.SettleMessage(ctx, m, now, settled)
		return err
	})
	if err == nil && settled.Again.IsZero() {
		e.signals.Publish(signal.Alert) // the end of the alert may be sent now
	}
	if err == nil && failure != "" {
		e.log.Warn("alert not delivered", "alert", m.Alert.ID, "channel", m.Channel.Name, "tries", m.Tries+1, "again", settled.Again, "error", failure)
	}
	return err
}

// CreateChannel creates a channel of a tenant, or of the installation if the tenant is zero, and returns its
// secret, which is not shown again.
func (e *Engine) CreateChannel(ctx context.Context, owner id.Tenant, settings alert.ChannelSettings, meta event.Meta) (made alert.Channel, secret []byte, err error) {
	if settings.Severity == 0 {
		settings.Severity = alert.Low
	}
	if err := settings.Validate(); err != nil {
		return made, nil, err
	}
	secret = webhook.NewSecret()
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		made = alert.Channel{}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		there, err := tx.ChannelsOf(ctx, []id.Tenant{owner})
		if err != nil {
			return err
		}
		if len(there) >= alert.MaxChannels {
			return fault.New(fault.LimitExceeded, fmt.Sprintf("there are %d channels", len(there)), fault.Field("name"), fault.Remedy("delete one first"))
		}
		begun := event.Event{
			Tenant: owner, Subject: id.New[id.Channel](id.NewMinter(now)).UUID, Version: 1, At: now, Meta: meta, Body: alert.ChannelCreated{ChannelSettings: settings},
		}
		if made, err = made.Evolve(begun); err != nil {
			return err
		}
		if err := tx.InsertChannel(ctx, made, secret); err != nil {
			return err
		}
		return tx.AppendEntityEvents(ctx, begun)
	})
	if err != nil {
		return alert.Channel{}, nil, err
	}
	return made, secret, nil
}

// DeleteChannel deletes a channel.
func (e *Engine) DeleteChannel(ctx context.Context, owner id.Tenant, name string, meta event.Meta) error {
	return e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		c, err := tx.LockChannel(ctx, owner, name)
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		over := event.Event{Tenant: owner, Subject: c.ID.UUID, Version: c.Version + 1, At: now, Meta: meta, Body: alert.ChannelDeleted{}}
		if c, err = c.Evolve(over); err != nil {
			return err
		}
		if err := tx.DeleteChannel(ctx, c, now); err != nil {
			return err
		}
		return tx.AppendEntityEvents(ctx, over)
	})
}
