package verify

import (
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// Alerts and channels are entities with folds of their own, like configs.
const (
	kindAlert   tenant.Kind = "alert"
	kindChannel tenant.Kind = "alert channel"
)

func (c *entityCheck) alertRow(got store.AlertRow) error {
	return entityRow(c, c.tables.alerts, kindAlert, got.TenantID, got.ID, got, func(en *entity) store.AlertRow { return wantAlert(en.alert) })
}

func wantAlert(a alert.Alert) store.AlertRow {
	return store.AlertRow{
		TenantID: a.Tenant.UUID, ID: a.ID.UUID, Version: a.Version, Kind: string(a.Kind), Severity: int16(a.Severity), AboutID: a.About,
		Name: a.Name, Message: a.Message, RaisedAt: a.RaisedAt, ResolvedAt: timeOrNull(a.ResolvedAt),
	}
}

func (c *entityCheck) channelRow(got store.ChannelRow) error {
	return entityRow(c, c.tables.channels, kindChannel, got.TenantID, got.ID, got, func(en *entity) store.ChannelRow { return wantChannel(en.channel) })
}

func wantChannel(c alert.Channel) store.ChannelRow {
	return store.ChannelRow{
		TenantID: c.Tenant.UUID, ID: c.ID.UUID, Version: c.Version, Name: c.Name, Url: c.URL, Severity: int16(c.Severity),
		CreatedBy: c.CreatedBy, CreatedAt: c.CreatedAt, DeletedAt: timeOrNull(c.DeletedAt),
	}
}
