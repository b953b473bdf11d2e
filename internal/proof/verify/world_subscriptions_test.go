package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/subscription"
	"go.arco.dev/servo/internal/proof/verify"
)

// subscribe makes subscriptions of a tenant and of the installation, in each state.
func (c *calendar) subscribe(t testing.TB) {
	t.Helper()
	ctx, meta := t.Context(), event.Meta{Actor: "ann"}
	for name, owner := range map[string]id.Tenant{"audit": c.owner, "gone": c.owner, "asleep": c.owner, "operators": {}} {
		_, err := c.CreateSubscription(ctx, owner, subscription.Settings{
			Name: name, URL: "https://hooks.example.com/<x>", Types: []string{"run.*", "task.claimed"}, Pipeline: "daily",
		}, "beginning", meta)
		require.NoError(t, err)
	}
	require.NoError(t, c.PauseSubscription(ctx, c.owner, "asleep", "tonight", meta))
	require.NoError(t, c.PauseSubscription(ctx, c.owner, "audit", "", meta))
	require.NoError(t, c.ResumeSubscription(ctx, c.owner, "audit", meta))
	require.NoError(t, c.ReplaySubscription(ctx, id.Tenant{}, "operators", "now", meta))
	require.NoError(t, c.DeleteSubscription(ctx, c.owner, "gone", meta))
}

// TestSubscriptions breaks subscriptions and their events: verify reports each contradiction.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	name := breakable(t, (*world).scheduled)
	require.Equal(t, len(subscription.Events()), copyOf(t, name).Count(t, `SELECT count(DISTINCT type) FROM servo.entity_events WHERE type LIKE 'subscription.%'`))
	for _, c := range []struct {
		claim, sql    string
		kind          verify.Kind
		table, column string
	}{
		{"one that is gone", `DELETE FROM servo.subscriptions WHERE name = 'operators'`, verify.Missing, "subscriptions", ""},
		{"one that calls another URL", `UPDATE servo.subscriptions SET url = 'https://example.com/evil'`, verify.Differs, "subscriptions", "url"},
		{"one that asks for more", `UPDATE servo.subscriptions SET types = '{}'`, verify.Differs, "subscriptions", "types"},
		{"one that asks for another pipeline", `UPDATE servo.subscriptions SET pipeline = ''`, verify.Differs, "subscriptions", "pipeline"},
		{"one that sleeps for another reason", `UPDATE servo.subscriptions SET pause_reason = 'x' WHERE name = 'asleep'`, verify.Differs, "subscriptions", "pause_reason"},
		{
			"one that no event has made",
			`INSERT INTO servo.subscriptions SELECT (jsonb_populate_record(s, jsonb_build_object('id', gen_random_uuid(), 'name', 'x'))).* FROM servo.subscriptions s LIMIT 1`,
			verify.Surplus, "subscriptions", "",
		},
		{"one that is made twice", `UPDATE servo.entity_events SET type = 'subscription.created' WHERE type = 'subscription.paused'`, verify.Undecidable, "entity_events", "type"},
	} {
		t.Run(c.claim+" is found", func(t *testing.T) {
			t.Parallel()
			db := copyOf(t, name)
			db.Exec(t, c.sql)
			requireFound(t, look(t, db, verify.Options{}), c.kind, c.table, c.column)
		})
	}
}
