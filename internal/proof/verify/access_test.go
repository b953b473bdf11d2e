package verify_test

import (
	"testing"

	"go.arco.dev/servo/internal/proof/verify"
)

// TestKeys breaks keys and their events: verify reports each contradiction.
func TestKeys(t *testing.T) {
	t.Parallel()
	name := breakable(t, (*world).scheduled)
	for _, c := range []struct {
		claim, sql    string
		kind          verify.Kind
		table, column string
	}{
		{"a key that is gone", `DELETE FROM servo.api_keys WHERE name = 'ci'`, verify.Missing, "api_keys", ""},
		{"a key of the installation that is gone", `DELETE FROM servo.api_keys WHERE name = 'ops'`, verify.Missing, "api_keys", ""},
		{"a key that may do more", `UPDATE servo.api_keys SET role = 'admin' WHERE name = 'ci'`, verify.Differs, "api_keys", "role"},
		{"a key that reaches further", `UPDATE servo.api_keys SET workspace = NULL WHERE name = 'ci'`, verify.Differs, "api_keys", "workspace"},
		{"a worker of another pool", `UPDATE servo.api_keys SET pools = '{other}' WHERE name = 'fleet'`, verify.Differs, "api_keys", "pools"},
		{"a revoked key that lives", `UPDATE servo.api_keys SET revoked_at = NULL WHERE name = 'gone'`, verify.Differs, "api_keys", "revoked_at"},
		{"a rotated key that lives on", `UPDATE servo.api_keys SET expires_at = NULL WHERE replaced_by IS NOT NULL`, verify.Differs, "api_keys", "expires_at"},
		{
			"a key that no event has made",
			`INSERT INTO servo.api_keys SELECT (jsonb_populate_record(k, jsonb_build_object('id', gen_random_uuid(), 'public_id', '0123456789abcdef', 'name', 'evil'))).*
			 FROM servo.api_keys k WHERE k.name = 'ops'`,
			verify.Surplus, "api_keys", "",
		},
		{"a key that is revoked before it is made", `UPDATE servo.entity_events SET type = 'key.revoked' WHERE type = 'key.created'`, verify.Undecidable, "entity_events", "type"},
	} {
		t.Run(c.claim+" is found", func(t *testing.T) {
			t.Parallel()
			db := copyOf(t, name)
			db.Exec(t, c.sql)
			requireFound(t, look(t, db, verify.Options{}), c.kind, c.table, c.column)
		})
	}
}
