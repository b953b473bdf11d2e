package verify_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/proof/verify"
	"go.arco.dev/servo/internal/store"
)

// update records histories of this version: go test ./internal/proof/verify -run TestRecord -update.
// What is recorded is never written again. A later version of Servo records into a
// directory of its own, beside those that it must still be able to read.
var update = flag.Bool("update", false, "record the missing histories")

const recorded = "testdata/histories/v1"

// history is a file: events as they were recorded, and the rows that followed from them.
type history struct {
	Events []recordedEvent             `json:"events"`
	Rows   map[string][]map[string]any `json:"rows"`
}

type recordedEvent struct {
	Tenant  id.Tenant       `json:"tenant"`
	Run     id.Run          `json:"run,omitzero"`
	Subject uuid.UUID       `json:"subject"`
	Version int32           `json:"version"`
	At      time.Time       `json:"at"`
	Type    event.Type      `json:"type"`
	Schema  int16           `json:"schema"`
	Actor   string          `json:"actor,omitempty"`
	Trace   string          `json:"trace,omitempty"`
	Data    json.RawMessage `json:"data"`
}

func (e recordedEvent) row() store.EventRow {
	return store.EventRow{
		TenantID: e.Tenant.UUID, RunID: e.Run.UUID, SubjectID: e.Subject, Version: e.Version, RecordedAt: e.At,
		Type: string(e.Type), Schema: e.Schema, Actor: e.Actor, Trace: e.Trace, Data: e.Data,
	}
}

func recordedFrom(row store.EventRow) recordedEvent {
	return recordedEvent{
		Tenant: id.Of[id.Tenant](row.TenantID), Run: id.Of[id.Run](row.RunID), Subject: row.SubjectID, Version: row.Version, At: row.RecordedAt,
		Type: event.Type(row.Type), Schema: row.Schema, Actor: row.Actor, Trace: row.Trace, Data: row.Data,
	}
}

// replay folds the events of a file with the code of today.
func (h history) replay() (map[string][]map[string]any, []verify.Divergence) {
	rows := make([]store.EventRow, len(h.Events))
	for i, e := range h.Events {
		rows[i] = e.row()
	}
	if h.Events[0].Run == (id.Run{}) {
		return verify.ReplayEntities(rows)
	}
	return verify.Replay(store.RunKey{Tenant: h.Events[0].Tenant, Run: h.Events[0].Run}, rows)
}

func TestRecordedHistoriesReplay(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/histories/*/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	seen := map[event.Type]bool{}
	for _, name := range files {
		var h history
		require.NoError(t, json.Unmarshal(value(os.ReadFile(name))(t), &h), name)
		for _, e := range h.Events {
			seen[e.Type] = true
		}
		rows, found := h.replay()
		require.Empty(t, found, name)
		require.JSONEq(t, string(value(json.Marshal(h.Rows))(t)), string(value(json.Marshal(knownThen(rows, h.Rows)))(t)), name)
	}
	for _, apart := range platform.Events() { // recorded in a file of their own
		seen[apart.Type] = true
	}
	for known := range store.Codec().Types() {
		require.True(t, seen[known], "no recorded history has %s: record one", known)
	}
}

// knownThen leaves out the columns that tables did not have when a history was recorded, and
// the table that there was not: it is always there since, if only without rows.
func knownThen(rows, then map[string][]map[string]any) map[string][]map[string]any {
	if _, known := then["live_runs"]; !known {
		delete(rows, "live_runs")
	}
	for table, recorded := range then {
		for _, row := range rows[table] {
			maps.DeleteFunc(row, func(column string, _ any) bool { _, known := recorded[0][column]; return !known })
		}
	}
	return rows
}

// TestRecord writes down what this version does, once.
func TestRecord(t *testing.T) {
	t.Parallel()
	if !*update {
		return // the replay above is the test
	}
	require.NoError(t, os.MkdirAll(recorded, 0o755))
	w := newWorld(t)
	w.rich(t)
	require.NoError(t, w.db.Snapshot(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		keep := func(h *history) func(store.EventRow) error {
			return func(row store.EventRow) error {
				h.Events = append(h.Events, recordedFrom(row))
				return nil
			}
		}
		for name, owner := range map[string]id.Tenant{
			"entities":            w.tenant,
			"entities-bounded":    value(w.db.TenantByName(ctx, boundedTenant))(t),
			"entities-controlled": value(w.db.TenantByName(ctx, controlledTenant))(t),
			"entities-scheduled":  value(w.db.TenantByName(ctx, scheduledTenant))(t),
		} {
			var entities history
			require.NoError(t, tx.EachEntityEvent(ctx, []id.Tenant{owner}, keep(&entities)))
			for i := range entities.Events { // the query gives the subject as the run, too
				entities.Events[i].Run = id.Run{}
			}
			record(t, name, entities)
		}
		var alerts history
		require.NoError(t, tx.EachEntityEvent(ctx, []id.Tenant{{}, value(w.db.TenantByName(ctx, scheduledTenant))(t)}, func(row store.EventRow) error {
			if row.RunID = uuid.Nil; !strings.HasPrefix(row.Type, "alert") {
				return nil
			}
			return keep(&alerts)(row)
		}))
		record(t, "entities-alerts", alerts)
		var keys history
		require.NoError(t, tx.EachEntityEvent(ctx, []id.Tenant{{}, value(w.db.TenantByName(ctx, scheduledTenant))(t)}, func(row store.EventRow) error {
			if row.RunID = uuid.Nil; !strings.HasPrefix(row.Type, "key.") {
				return nil
			}
			return keep(&keys)(row)
		}))
		record(t, "entities-keys", keys)
		var subscriptions history
		require.NoError(t, tx.EachEntityEvent(ctx, []id.Tenant{{}, value(w.db.TenantByName(ctx, scheduledTenant))(t)}, func(row store.EventRow) error {
			if row.RunID = uuid.Nil; !strings.HasPrefix(row.Type, "subscription.") {
				return nil
			}
			return keep(&subscriptions)(row)
		}))
		record(t, "entities-subscriptions", subscriptions)
		var outside history
		require.NoError(t, tx.EachEntityEvent(ctx, []id.Tenant{value(w.db.TenantByName(ctx, scheduledTenant))(t)}, func(row store.EventRow) error {
			if row.RunID = uuid.Nil; !strings.HasPrefix(row.Type, "event.") && !strings.HasPrefix(row.Type, "template.") {
				return nil
			}
			return keep(&outside)(row)
		}))
		record(t, "entities-outside", outside)
		runs := value(tx.RunsAfter(ctx, store.RunKey{}, nil, 1000))(t)
		for i, r := range runs {
			var h history
			key := store.RunKey{Tenant: id.Of[id.Tenant](r.TenantID), Run: id.Of[id.Run](r.ID)}
			require.NoError(t, tx.EachEvent(ctx, []store.RunKey{key}, keep(&h)))
			record(t, fmt.Sprintf("%02d-%s-%s", i, r.Pipeline, strings.ToLower(run.State(r.State).String())), h)
		}
		return nil
	}))
}

func record(t testing.TB, name string, h history) {
	t.Helper()
	file := filepath.Join(recorded, name+".json")
	if _, err := os.Stat(file); err == nil {
		return // never written again
	}
	var found []verify.Divergence
	h.Rows, found = h.replay()
	require.Empty(t, found, name)
	data := value(json.MarshalIndent(h, "", " "))(t)
	require.NoError(t, os.WriteFile(file, append(data, '\n'), 0o600))
}
