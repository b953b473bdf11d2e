package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/alert"
)

// listen makes channels that receive what follows, and one that was deleted.
func (c *calendar) listen(t testing.TB) {
	t.Helper()
	meta := event.Meta{Actor: "ann"}
	for name, owner := range map[string]id.Tenant{"on-call": c.owner, "gone": c.owner, "operators": {}} {
		_, _, err := c.CreateChannel(t.Context(), owner, alert.ChannelSettings{Name: name, URL: "https://hooks.example.com/<x>", Severity: alert.Medium}, meta)
		require.NoError(t, err)
	}
	require.NoError(t, c.DeleteChannel(t.Context(), c.owner, "gone", meta))
}

// watch raises and resolves what there is.
func (c *calendar) watch(t testing.TB) {
	t.Helper()
	require.False(t, value(c.Watch(t.Context()))(t))
}

// requireAlerts requires a history with alerts that are open and resolved, of a tenant and
// of the installation.
func (w *world) requireAlerts(t testing.TB) {
	t.Helper()
	const installation = `tenant_id = '00000000-0000-0000-0000-000000000000'`
	for _, some := range []string{
		`servo.alerts WHERE resolved_at IS NOT NULL AND ` + installation, `servo.alerts WHERE resolved_at IS NULL AND NOT ` + installation,
		`servo.alert_channels WHERE ` + installation, `servo.alert_channels WHERE deleted_at IS NOT NULL`, `servo.alert_deliveries WHERE change = 2`,
	} {
		require.NotZero(t, w.db.Count(t, `SELECT count(*) FROM `+some), some)
	}
	require.Equal(t, len(alert.Events()), w.db.Count(t, `SELECT count(DISTINCT type) FROM servo.entity_events WHERE type LIKE 'alert%'`))
}
