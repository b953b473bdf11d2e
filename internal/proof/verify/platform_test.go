package verify_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/release"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/proof/verify"
	"go.arco.dev/servo/internal/store"
)

// installation has pools, keys and a switch with every event that they can have.
func installation(t testing.TB) *servotest.Database {
	t.Helper()
	db := servotest.DB(t)
	e := engine.New(db.Store, engine.Config{}, nil)
	t.Cleanup(e.Stop)
	meta := event.Meta{Actor: "test"}
	owner := value(e.CreateTenant(t.Context(), "acme", meta))(t)
	settings := platform.PoolSettings{Kind: platform.Push, URL: "https://workers.example.com", MaxConcurrency: 3, RatePerSecond: 0.1, TimeoutSeconds: 30, Owner: owner}
	for _, name := range []string{"gone", "remote"} {
		_, err := e.CreatePool(t.Context(), name, settings, meta)
		require.NoError(t, err)
	}
	require.NoError(t, e.DeletePool(t.Context(), "gone", 0, meta))
	_, err := e.ChangePool(t.Context(), "remote", 1, func(s *platform.PoolSettings) { s.RatePerSecond = 2.5 }, meta)
	require.NoError(t, err)
	key := value(e.CreateKey(t.Context(), 0, meta))(t)
	value(e.RotateKeys(t.Context(), time.Minute, time.Hour, meta))(t)
	value(e.RevokeKey(t.Context(), key.ID, "leaked", meta))(t)
	value(e.PauseDispatch(t.Context(), engine.Turn{Reason: "upgrade", By: "ann", Meta: meta}))(t)
	value(e.ResumeDispatch(t.Context(), engine.Turn{Reason: "done", By: "ann", Meta: meta}))(t)
	value(e.PauseDispatch(t.Context(), engine.Turn{Reason: "upgrade", By: "ann", Meta: meta}))(t)
	releases(t, e, meta)
	return db
}

// releases makes releases and channels with every event that they can have.
func releases(t testing.TB, e *engine.Engine, meta event.Meta) {
	t.Helper()
	for _, name := range []string{"v1", "v2", "gone"} {
		manifest := &asset.Manifest{Version: 1, Assets: []asset.Asset{{Key: "a/" + name, Exec: &asset.Exec{Command: []string{"run"}}}}}
		_, _, err := e.CreateRelease(t.Context(), engine.CreateRelease{Name: name, Note: "note", Manifest: manifest, Meta: meta})
		require.NoError(t, err)
	}
	require.NoError(t, e.DeleteRelease(t.Context(), "gone", meta))
	for _, name := range []string{"gone", "stable"} {
		value(e.CreateReleaseChannel(t.Context(), name, "v1", false, meta))(t)
	}
	require.NoError(t, e.DeleteReleaseChannel(t.Context(), "gone", meta))
	value(e.SetDefaultChannel(t.Context(), "stable", true, meta))(t)
	follower := value(e.CreateTenant(t.Context(), "follower", meta))(t)
	require.NoError(t, e.SetTenantLabels(t.Context(), follower, map[string]string{"tier": "internal"}, meta)) // of the first wave
	change := engine.ChangeRollout{Channel: "stable", Reason: "by hand", Meta: meta}
	roll := engine.RollChannel{Channel: "stable", Release: "v2", Waves: []int32{5000, 10_000}, First: "tier=internal", Meta: meta}
	value(e.Roll(t.Context(), roll))(t)
	value(e.PauseRollout(t.Context(), change))(t)
	value(e.ResumeRollout(t.Context(), change))(t)
	require.Equal(t, release.Rolling, value(e.AdvanceRollout(t.Context(), change))(t).State())
	require.Equal(t, release.Completed, value(e.AdvanceRollout(t.Context(), change))(t).State())
	value(e.RollBack(t.Context(), change))(t)
}

func TestPlatformColumns(t *testing.T) {
	t.Parallel()
	db := installation(t)
	requireClean(t, db)
	db.Exec(t, dropConstraints)
	db.Exec(t, spoil)
	for _, name := range verify.ComparedPlatform() {
		table, column, _ := strings.Cut(name, ".")
		db.Exec(t, `CREATE TABLE servo.kept AS TABLE servo.`+table)
		require.Equal(t, 1, db.Count(t, `SELECT servo.spoil($1, $2)`, table, column), column)
		report := look(t, db, verify.Options{})
		if column == "id" || column == "name" && table != "releases" { // the key of its events
			requireFound(t, report, verify.Missing, table, "")
			requireFound(t, report, verify.Surplus, table, "")
		} else {
			d := requireFound(t, report, verify.Differs, table, column)
			require.Contains(t, d.String(), "/", "it names the tenant")
		}
		db.Exec(t, `DELETE FROM servo.`+table+`; INSERT INTO servo.`+table+` TABLE servo.kept; DROP TABLE servo.kept`)
	}
	requireClean(t, db)
}

func TestPlatformRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		claim, sql    string
		kind          verify.Kind
		table, column string
	}{
		{"a pool that was deleted behind the events", `DELETE FROM servo.pools`, verify.Missing, "pools", ""},
		{"a key that was deleted", `DELETE FROM servo.signing_keys`, verify.Missing, "signing_keys", ""},
		{"a switch that was deleted", `DELETE FROM servo.switches`, verify.Missing, "switches", ""},
		{"a pool that no event has made", `INSERT INTO servo.pools (name, kind, version, created_at, updated_at) VALUES ('x', 'pull', 1, now(), now())`, verify.Surplus, "pools", ""},
		{"a pool that was deleted and is there again", `INSERT INTO servo.pools (name, kind, version, created_at, updated_at) VALUES ('gone', 'pull', 1, now(), now())`, verify.Surplus, "pools", ""},
		{"a gap in a stream", `DELETE FROM servo.platform_events WHERE subject = 'pool/remote' AND version = 1`, verify.Stream, "platform_events", "version"},
		{"an event of a later version", `UPDATE servo.platform_events SET schema = 99 WHERE subject = 'pool/remote'`, verify.Undecidable, "platform_events", "type"},
		{"an event that cannot happen", `UPDATE servo.platform_events SET type = 'pool.created' WHERE subject = 'pool/remote' AND version = 2`, verify.History, "platform_events", "type"},
		{"a position that was never given out", `UPDATE servo.platform_events SET position = 1000000 WHERE subject = 'pool/remote' AND version = 1`, verify.Invariant, "platform_events", "position"},
	} {
		t.Run(c.claim+" is found", func(t *testing.T) {
			t.Parallel()
			db := installation(t)
			db.Exec(t, c.sql)
			requireFound(t, look(t, db, verify.Options{}), c.kind, c.table, c.column)
		})
	}
}

const recordedPlatform = "testdata/platform/v2.json" // v1 has no releases

// platformHistory is the file: events as they were recorded, and what followed from them.
type platformHistory struct {
	Events []recordedPlatformEvent    `json:"events"`
	Folded map[string]platform.Entity `json:"folded"`
}

type recordedPlatformEvent struct {
	Subject string          `json:"subject"`
	Version int32           `json:"version"`
	At      time.Time       `json:"at"`
	Type    event.Type      `json:"type"`
	Schema  int16           `json:"schema"`
	Actor   string          `json:"actor"`
	Data    json.RawMessage `json:"data"`
}

func (h platformHistory) replay() (map[string]platform.Entity, []verify.Divergence) {
	rows := make([]store.PlatformEventRow, len(h.Events))
	for i, e := range h.Events {
		rows[i] = store.PlatformEventRow{Subject: e.Subject, Version: e.Version, RecordedAt: e.At, Type: string(e.Type), Schema: e.Schema, Actor: e.Actor, Data: e.Data}
	}
	return verify.ReplayPlatform(rows)
}

// TestRecordedPlatformReplays folds what an earlier version has written, and records it with
// -update if nothing is there yet.
func TestRecordedPlatformReplays(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(recordedPlatform); *update && err != nil {
		recordPlatform(t)
	}
	seen := map[event.Type]bool{}
	for _, file := range []string{"testdata/platform/v1.json", recordedPlatform} {
		var h platformHistory
		require.NoError(t, json.Unmarshal(value(os.ReadFile(file))(t), &h))
		for _, e := range h.Events {
			seen[e.Type] = true
		}
		folded, found := h.replay()
		require.Empty(t, found)
		require.JSONEq(t, string(value(json.Marshal(h.Folded))(t)), string(value(json.Marshal(folded))(t)))
	}
	for _, known := range platform.Events() {
		require.True(t, seen[known.Type], "no recorded history has %s: record one", known.Type)
	}
}

func recordPlatform(t testing.TB) {
	t.Helper()
	var h platformHistory
	require.NoError(t, installation(t).Snapshot(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		return tx.EachPlatformRow(ctx, store.PlatformRows{
			Event: func(r store.PlatformEventRow) error {
				h.Events = append(h.Events, recordedPlatformEvent{
					Subject: r.Subject, Version: r.Version, At: r.RecordedAt, Type: event.Type(r.Type), Schema: r.Schema, Actor: r.Actor, Data: r.Data,
				})
				return nil
			},
			Pool: func(store.PoolRow) error { return nil }, Key: func(store.SigningKeyRow) error { return nil }, Switch: func(store.SwitchRow) error { return nil },
			Release: func(store.ReleaseRow) error { return nil }, Channel: func(store.ReleaseChannelRow) error { return nil },
		})
	}))
	h.Folded, _ = h.replay()
	require.NoError(t, os.MkdirAll(filepath.Dir(recordedPlatform), 0o755))
	require.NoError(t, os.WriteFile(recordedPlatform, append(value(json.MarshalIndent(h, "", " "))(t), '\n'), 0o600))
}
