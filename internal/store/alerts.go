package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/store/internal/db"
)

// WatchAlone reports whether this transaction may evaluate alerts: only one at a time may.
func (tx *Tx) WatchAlone(ctx context.Context) (bool, error) { return tx.q.TryWatch(ctx) }

// Conditions returns all conditions that currently need an alert.
func (tx *Tx) Conditions(ctx context.Context, now time.Time) ([]alert.Condition, error) {
	rows, err := tx.q.Conditions(ctx, db.ConditionsParams{Now: now, Today: now.UTC().Format(time.DateOnly)})
	if err != nil {
		return nil, err
	}
	holding := column(rows, func(r db.ConditionsRow) alert.Condition {
		return alert.Condition{
			Key:       alert.Key{Tenant: id.Of[id.Tenant](r.TenantID), Kind: alert.Kind(r.Kind), About: r.AboutID},
			Workspace: r.Workspace, Name: r.Name, Count: int(r.Count), Since: r.Since, Reason: r.Reason,
		}
	})
	oldest, err := tx.q.OldestDue(ctx)
	if lag := now.Sub(oldest); err == nil && lag >= alert.LagAt {
		holding = append(holding, alert.Condition{Key: alert.Key{Kind: alert.ScheduleLag}, Since: oldest, Lag: lag})
	}
	return holding, err
}

func alertFromRow(r db.ServoAlert) alert.Alert {
	return alert.Alert{
		Tenant: id.Of[id.Tenant](r.TenantID), ID: id.Of[id.Alert](r.ID), Version: r.Version, Kind: alert.Kind(r.Kind), Severity: alert.Severity(r.Severity),
		About: r.AboutID, Name: r.Name, Message: r.Message, RaisedAt: r.RaisedAt, ResolvedAt: timeOf(r.ResolvedAt),
	}
}

// OpenAlerts returns the open alerts of all tenants.
func (tx *Tx) OpenAlerts(ctx context.Context) ([]alert.Alert, error) {
	return list(alertFromRow)(tx.q.OpenAlerts(ctx))
}

// ChangeAlerts writes raised and resolved alerts with their messages.
func (tx *Tx) ChangeAlerts(ctx context.Context, now time.Time, raised, resolved []alert.Alert, messages []alert.Message) error {
	if len(raised) > 0 {
		err := tx.q.InsertAlerts(ctx, db.InsertAlertsParams{
			TenantIds: column(raised, tenantOfAlert), Ids: column(raised, idOfAlert),
			Kinds:      column(raised, func(a alert.Alert) string { return string(a.Kind) }),
			Severities: column(raised, func(a alert.Alert) int16 { return int16(a.Severity) }),
			AboutIds:   column(raised, func(a alert.Alert) uuid.UUID { return a.About }),
			Names:      column(raised, func(a alert.Alert) string { return a.Name }),
			Messages:   column(raised, func(a alert.Alert) string { return a.Message }),
			Now:        now,
		})
		if err != nil {
			return err
		}
	}
	if len(resolved) > 0 {
		err := tx.q.ResolveAlerts(ctx, db.ResolveAlertsParams{Now: now, TenantIds: column(resolved, tenantOfAlert), Ids: column(resolved, idOfAlert)})
		if err != nil {
			return err
		}
	}
	if len(messages) == 0 {
		return nil
	}
	return tx.q.InsertDeliveries(ctx, db.InsertDeliveriesParams{
		TenantIds:        column(messages, func(m alert.Message) uuid.UUID { return m.Alert.Tenant.UUID }),
		AlertIds:         column(messages, func(m alert.Message) uuid.UUID { return m.Alert.ID.UUID }),
		Changes:          column(messages, func(m alert.Message) int16 { return int16(m.Change) }),
		ChannelTenantIds: column(messages, func(m alert.Message) uuid.UUID { return m.Channel.Tenant.UUID }),
		ChannelIds:       column(messages, func(m alert.Message) uuid.UUID { return m.Channel.ID.UUID }),
		Now:              now,
	})
}

func tenantOfAlert(a alert.Alert) uuid.UUID { return a.Tenant.UUID }
func idOfAlert(a alert.Alert) uuid.UUID     { return a.ID.UUID }

// ChannelsOf returns the channels of tenants; the zero tenant has those of the installation.
func (tx *Tx) ChannelsOf(ctx context.Context, tenants []id.Tenant) ([]alert.Channel, error) {
	return list(channelFromRow)(tx.q.ChannelsOf(ctx, column(tenants, func(t id.Tenant) uuid.UUID { return t.UUID })))
}

func channelFromRow(r db.ChannelsOfRow) alert.Channel {
	return alert.Channel{
		Tenant: id.Of[id.Tenant](r.TenantID), ID: id.Of[id.Channel](r.ID), Version: r.Version,
		ChannelSettings: alert.ChannelSettings{Name: r.Name, URL: r.Url, Severity: alert.Severity(r.Severity)},
		CreatedBy:       r.CreatedBy, CreatedAt: r.CreatedAt, DeletedAt: timeOf(r.DeletedAt),
	}
}

// InsertChannel writes a new channel with its secret.
func (tx *Tx) InsertChannel(ctx context.Context, c alert.Channel, secret []byte) error {
	err := tx.q.InsertChannel(ctx, db.InsertChannelParams{
		TenantID: c.Tenant.UUID, ID: c.ID.UUID, Name: c.Name, Url: c.URL, Severity: int16(c.Severity),
		Secret: secret, CreatedBy: c.CreatedBy, Now: c.CreatedAt,
	})
	return taken(err, "channel", c.Name)
}

// ChannelSecret reads a channel with the secret that its messages are signed with, and the
// database's time.
func (s *Store) ChannelSecret(ctx context.Context, tenant id.Tenant, name string) (c alert.Channel, secret []byte, now time.Time, err error) {
	err = s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		row, err := tx.q.ChannelSecret(ctx, db.ChannelSecretParams{TenantID: tenant.UUID, Name: name})
		if err != nil {
			return notFound(err, "channel", name)
		}
		c = alert.Channel{Tenant: tenant, ID: id.Of[id.Channel](row.ID), ChannelSettings: alert.ChannelSettings{Name: row.Name, URL: row.Url, Severity: alert.Severity(row.Severity)}}
		secret = row.Secret
		now, err = tx.Clock(ctx)
		return err
	})
	return c, secret, now, err
}

// LockChannel locks a channel by its name.
func (tx *Tx) LockChannel(ctx context.Context, tenant id.Tenant, name string) (alert.Channel, error) {
	row, err := tx.q.LockChannel(ctx, db.LockChannelParams{TenantID: tenant.UUID, Name: name})
	if err != nil {
		return alert.Channel{}, notFound(err, "channel", name)
	}
	return channelFromRow(db.ChannelsOfRow(row)), nil
}

// DeleteChannel deletes a locked channel. Its pending messages are dropped when they are due.
func (tx *Tx) DeleteChannel(ctx context.Context, c alert.Channel, now time.Time) error {
	return tx.q.DeleteChannel(ctx, db.DeleteChannelParams{Now: now, TenantID: c.Tenant.UUID, ID: c.ID.UUID})
}

// MessagesDue reports whether a message is due: one index lookup.
func (s *Store) MessagesDue(ctx context.Context) (bool, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (bool, error) {
		return tx.q.DeliveriesDue(ctx)
	})
}

// TakeMessages leases up to most messages that are due to this server.
func (tx *Tx) TakeMessages(ctx context.Context, now time.Time, lease time.Duration, most int) ([]alert.Message, error) {
	rows, err := tx.q.TakeDeliveries(ctx, db.TakeDeliveriesParams{Now: now, Until: now.Add(lease), Most: int32(most)}) //nolint:gosec // a batch size
	if err != nil {
		return nil, err
	}
	var ours []db.TakeDeliveriesRow
	for _, r := range rows {
		if r.Ours {
			ours = append(ours, r)
		}
	}
	if len(ours) == 0 {
		return nil, nil
	}
	found, err := tx.q.Messages(ctx, db.MessagesParams{
		TenantIds:        column(ours, func(r db.TakeDeliveriesRow) uuid.UUID { return r.TenantID }),
		AlertIds:         column(ours, func(r db.TakeDeliveriesRow) uuid.UUID { return r.AlertID }),
		ChannelTenantIds: column(ours, func(r db.TakeDeliveriesRow) uuid.UUID { return r.ChannelTenantID }),
		ChannelIds:       column(ours, func(r db.TakeDeliveriesRow) uuid.UUID { return r.ChannelID }),
	})
	type pair struct{ alert, channel uuid.UUID }
	byKey := make(map[pair]db.MessagesRow, len(found))
	for _, m := range found {
		byKey[pair{m.ID, m.ChannelID}] = m
	}
	return column(ours, func(r db.TakeDeliveriesRow) alert.Message {
		m := byKey[pair{r.AlertID, r.ChannelID}]
		return alert.Message{
			Alert: alertFromRow(db.ServoAlert{
				TenantID: m.TenantID, ID: m.ID, Version: m.Version, Kind: m.Kind, Severity: m.Severity, AboutID: m.AboutID, Name: m.Name,
				Message: m.Message, RaisedAt: m.RaisedAt, ResolvedAt: m.ResolvedAt,
			}),
			Tenant: m.Tenant, Change: alert.Change(r.Change), Secret: m.Secret, Tries: int(r.Tries) - 1, Since: r.CreatedAt,
			Channel: alert.Channel{
				Tenant: id.Of[id.Tenant](r.ChannelTenantID), ID: id.Of[id.Channel](r.ChannelID), DeletedAt: timeOf(m.DeletedAt),
				ChannelSettings: alert.ChannelSettings{Name: m.Channel, URL: m.Url},
			},
		}
	}), err
}

// Settled is the result of a delivery attempt: delivered, retried at a time, or dropped.
type Settled struct {
	Delivered time.Time
	Again     time.Time
	Error     string
}

// SettleMessage writes the result of a delivery attempt, unless another server has leased the
// message since. The message about an alert's end is due once the one about its beginning is
// delivered or dropped.
func (tx *Tx) SettleMessage(ctx context.Context, m alert.Message, now time.Time, s Settled) (counted bool, err error) {
	n, err := tx.q.SettleDelivery(ctx, db.SettleDeliveryParams{
		DueAt: orNil(s.Again), DeliveredAt: orNil(s.Delivered), Error: s.Error, TenantID: m.Alert.Tenant.UUID, AlertID: m.Alert.ID.UUID,
		ChannelID: m.Channel.ID.UUID, Change: int16(m.Change), Tries: int32(m.Tries + 1), //nolint:gosec // a few dozens
	})
	if err != nil || m.Change != alert.Begun || !s.Again.IsZero() {
		return n > 0, err
	}
	return n > 0, tx.q.ReleaseDelivery(ctx, db.ReleaseDeliveryParams{Now: now, TenantID: m.Alert.Tenant.UUID, AlertID: m.Alert.ID.UUID, ChannelID: m.Channel.ID.UUID})
}
