package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Delivery is the state of one message about an alert.
type Delivery struct {
	Channel   string
	Change    alert.Change
	Since     time.Time
	Tries     int
	Delivered time.Time // zero if it was not
	Again     time.Time // time of the next attempt; zero without one
	Error     string    // of the last attempt
}

// ownedBy reads the rows of a tenant with its role, those of the installation with the engine's.
func (s *Store) ownedBy(tenant id.Tenant) within {
	if tenant == (id.Tenant{}) {
		return s.engine
	}
	return s.tenant(tenant)
}

// AlertFilter selects alerts of a tenant. The zero tenant is the installation.
type AlertFilter struct {
	Tenant id.Tenant
	Kind   alert.Kind // "" is any
	Open   bool       // only open alerts
	Before id.Alert   // zero means from the newest
}

// Alerts lists alerts, the newest first.
func (s *Store) Alerts(ctx context.Context, f AlertFilter, most int) (found []alert.Alert, err error) {
	before := f.Before.UUID
	if before == uuid.Nil {
		before = uuid.Max
	}
	err = s.ownedBy(f.Tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		if f.Open {
			rows, err := tx.q.ListOpenAlerts(ctx, db.ListOpenAlertsParams{TenantID: f.Tenant.UUID, Before: before, Kind: string(f.Kind), Most: int32(most)}) //nolint:gosec // a page
			found = column(rows, alertFromRow)
			return err
		}
		rows, err := tx.q.ListAlerts(ctx, db.ListAlertsParams{TenantID: f.Tenant.UUID, Before: before, Kind: string(f.Kind), Most: int32(most)}) //nolint:gosec // a page
		found = column(rows, alertFromRow)
		return err
	})
	return found, err
}

// OwnedAlert is an alert with the name of its tenant; "" is the installation.
type OwnedAlert struct {
	alert.Alert

	TenantName string
}

// AllOpenAlerts lists the open alerts of all tenants and of the installation, the newest first. It
// uses Kind and Before of the filter.
func (s *Store) AllOpenAlerts(ctx context.Context, f AlertFilter, most int) ([]OwnedAlert, error) {
	before := f.Before.UUID
	if before == uuid.Nil {
		before = uuid.Max
	}
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]OwnedAlert, error) {
		return list(func(r db.ListAllOpenAlertsRow) OwnedAlert {
			return OwnedAlert{Alert: alertFromRow(r.ServoAlert), TenantName: r.Tenant}
		})(tx.q.ListAllOpenAlerts(ctx, db.ListAllOpenAlertsParams{Before: before, Kind: string(f.Kind), Most: int32(most)})) //nolint:gosec // a page
	})
}

// GetAlert reads an alert with the deliveries of its messages.
func (s *Store) GetAlert(ctx context.Context, tenant id.Tenant, of id.Alert) (found alert.Alert, sent []Delivery, err error) {
	err = s.ownedBy(tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		row, err := tx.q.GetAlert(ctx, db.GetAlertParams{TenantID: tenant.UUID, ID: of.UUID})
		if err != nil {
			return notFound(err, "alert", of.String())
		}
		found = alertFromRow(row)
		rows, err := tx.q.DeliveriesOf(ctx, db.DeliveriesOfParams{TenantID: tenant.UUID, AlertID: of.UUID})
		sent = column(rows, func(r db.DeliveriesOfRow) Delivery {
			return Delivery{
				Channel: r.Channel, Change: alert.Change(r.Change), Since: r.CreatedAt, Tries: int(r.Tries),
				Delivered: timeOf(r.DeliveredAt), Again: timeOf(r.DueAt), Error: r.Error,
			}
		})
		return err
	})
	return found, sent, err
}

// Channels lists the channels of a tenant, or those of the installation, by name.
func (s *Store) Channels(ctx context.Context, tenant id.Tenant) ([]alert.Channel, error) {
	return read(ctx, s.ownedBy(tenant), func(ctx context.Context, tx *Tx) ([]alert.Channel, error) {
		return tx.ChannelsOf(ctx, []id.Tenant{tenant})
	})
}
