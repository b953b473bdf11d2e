package verify_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/proof/verify"
)

func (c *calendar) send(t testing.TB, key, parameters string) engine.SentEvent {
	t.Helper()
	return value(c.SendEvent(t.Context(), engine.SendEvent{
		Tenant: c.owner, Name: "prices", Key: key, Parameters: json.RawMessage(parameters), Reason: "as agreed", Meta: event.Meta{Actor: "jo"},
	}))(t)
}

func (c *calendar) template(t testing.TB, name, cron string) {
	t.Helper()
	_, _, err := c.SetTemplate(t.Context(), engine.SetTemplate{Tenant: c.owner, Name: name, Cron: cron, Description: "as agreed", Meta: event.Meta{Actor: "jo"}})
	require.NoError(t, err)
}

// outside: events that made runs and some that did not, one that waits, and templates that are
// used, changed and gone.
func (c *calendar) outside(t testing.TB) {
	t.Helper()
	c.template(t, "early", "0 6 * * *")
	c.template(t, "gone", "0 7 * * *")
	c.save(t, "templated", config.Spec{Pipeline: "others", Trigger: config.Trigger{Template: "early"}}, nil)
	c.template(t, "early", "30 5 * * *")
	require.NoError(t, c.DeleteTemplate(t.Context(), c.owner, "gone", event.Meta{Actor: "ann"}))
	c.send(t, "1", `{}`)
	c.send(t, "2", `{}`)
	require.Equal(t, engine.Handled{Events: 2, Runs: 1}, value(c.HandleEvents(t.Context(), 100))(t))
	c.send(t, "3", ``)
}

func TestOutside(t *testing.T) {
	t.Parallel()
	name := breakable(t, (*world).scheduled)
	const pending = ` WHERE done_at IS NULL`
	for _, c := range []struct {
		claim, sql    string
		kind          verify.Kind
		table, column string
	}{
		{"an event that is gone before its time", `DELETE FROM servo.event_inbox` + pending, verify.Missing, "event_inbox", ""},
		{"an event that no log knows", `UPDATE servo.event_inbox SET id = gen_random_uuid()` + pending, verify.Surplus, "event_inbox", ""},
		{"an event without its tenant", `UPDATE servo.event_inbox SET tenant_id = gen_random_uuid()` + pending, verify.Surplus, "event_inbox", "tenant_id"},
		{"an event that is done before it was handled", `UPDATE servo.event_inbox SET done_at = servo.clock()` + pending, verify.Differs, "event_inbox", "done_at"},
		{"runs of an event that were not counted", `UPDATE servo.event_inbox SET runs = 7 WHERE done_at IS NOT NULL`, verify.Differs, "event_inbox", "runs"},
		{"an event with other parameters", `UPDATE servo.event_inbox SET parameters = '{"x": 1}'` + pending, verify.Differs, "event_inbox", "parameters"},
		{"an event that is handled twice", `UPDATE servo.entity_events SET type = 'event.handled' WHERE type = 'event.received'`, verify.Undecidable, "entity_events", "type"},
		{
			"an event of no workspace", `UPDATE servo.entity_events SET data = jsonb_set(data, '{workspace}', to_jsonb(gen_random_uuid())) WHERE type = 'event.received'`,
			verify.History, "entity_events", "data",
		},
		{"a template that is gone", `DELETE FROM servo.templates`, verify.Missing, "templates", ""},
		{"a template with another expression", `UPDATE servo.templates SET cron = '0 9 * * *'`, verify.Differs, "templates", "cron"},
		{
			"a template that was deleted", `INSERT INTO servo.templates SELECT tenant_id, subject_id, 'gone', 2, '0 7 * * *', '', '', recorded_at, recorded_at
				FROM servo.entity_events WHERE type = 'template.deleted'`, verify.Surplus, "templates", "",
		},
		{"a config that uses another template", `UPDATE servo.configs SET template = 'x' WHERE name = 'templated'`, verify.Differs, "configs", "template"},
	} {
		t.Run(c.claim+" is found", func(t *testing.T) {
			t.Parallel()
			db := copyOf(t, name)
			db.Exec(t, c.sql)
			requireFound(t, look(t, db, verify.Options{}), c.kind, c.table, c.column)
		})
	}

	t.Run("an event that was handled long ago may be forgotten", func(t *testing.T) {
		t.Parallel()
		db := copyOf(t, name)
		db.Exec(t, `UPDATE servo.event_inbox SET received_at = received_at - interval '8 days' WHERE done_at IS NOT NULL;
			UPDATE servo.entity_events SET recorded_at = recorded_at - interval '8 days' WHERE type = 'event.received' AND data->>'key' <> '3'`)
		require.EqualValues(t, 2, value(db.ForgetEvents(t.Context(), config.KeepEvents, 10))(t))
		require.Zero(t, look(t, db, verify.Options{}).Found)
	})
}
