package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// sendConfigs has the store send what looks at configs, decides about their slots and processes
// the results of their runs: for a batch of configs spread over the tenants.
func (w *world) sendConfigs(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	must(w.NextDue(ctx))(t)
	w.undone(t, func(tx *Tx) {
		rows, err := tx.Raw().Query(ctx, `SELECT tenant_id, id FROM servo.configs WHERE name < 'config 2' ORDER BY md5(id::text) LIMIT $1`, probe)
		require.NoError(t, err)
		var keys []store.ConfigKey
		var owner, of uuid.UUID
		_, err = pgx.ForEachRow(rows, []any{&owner, &of}, func() error {
			keys = append(keys, store.ConfigKey{Tenant: id.Of[id.Tenant](owner), Config: id.Of[id.Config](of)})
			return nil
		})
		require.NoError(t, err)
		require.Len(t, must(tx.LockDueConfigs(ctx, w.now.Add(24*time.Hour), probe))(t), probe)
		locked := must(tx.LockConfigs(ctx, keys))(t)
		require.Len(t, must(tx.LockFreeConfigs(ctx, keys))(t), len(locked))
		require.Len(t, locked, probe)
		require.Len(t, must(tx.LiveOfConfigs(ctx, keys))(t), probe)
		require.NotEmpty(t, must(tx.ListenersOf(ctx, keys))(t))

		var names []store.ConfigName
		var fired []store.FiredSlot
		var ranges []store.SkippedSlots
		changes := store.Changes{Now: w.now}
		for i := range locked {
			c := &locked[i]
			require.NotZero(t, c.Range.Outcome, "each is in a range")
			names = append(names, store.ConfigName{Tenant: c.Tenant, Workspace: c.Workspace, Name: c.Name})
			made := id.New[id.Run](w.mint)
			fired = append(fired, store.FiredSlot{ConfigKey: c.Key(), At: w.now, Run: made})
			ranges = append(ranges, skipped(*c, c.RangeFrom, w.now, 1))
			changes.Results = append(changes.Results, store.ConfigResult{ConfigKey: c.Key(), Run: made, State: run.RunSucceeded})
			c.DecidedUntil, c.DueAt, c.LastRun = w.now, c.DueAt.Add(time.Hour), &made
		}
		require.Len(t, must(tx.ConfigIDs(ctx, names))(t), probe)
		require.NoError(t, tx.SaveConfigs(ctx, locked))
		require.NoError(t, tx.MoveConfigs(ctx, locked))
		require.NoError(t, tx.WriteLedger(ctx, fired, ranges, w.now, "a"))
		require.NoError(t, tx.Apply(ctx, changes))
		require.NoError(t, tx.Flush(ctx))
		require.Len(t, must(tx.TakeConfigResults(ctx, probe))(t), probe)

		events := must(tx.TakeEvents(ctx, probe))(t)
		require.Len(t, events, probe)
		require.NotEmpty(t, must(tx.EventListeners(ctx, events, 5))(t))
		key := store.EventKey{Tenant: events[0].Tenant, Workspace: events[0].Workspace, Name: events[0].Name, Key: events[0].Key}
		found, known, err := tx.EventByKey(ctx, key)
		require.NoError(t, err)
		require.True(t, known)
		require.Equal(t, events[0], found)
		require.EqualValues(t, 50, must(tx.CountEventListeners(ctx, key))(t))
		found.ID, found.Key = id.New[id.Event](w.mint), "another"
		require.True(t, must(tx.InsertEvent(ctx, found))(t))
		require.NoError(t, tx.UpdateEvents(ctx, events))
		require.NoError(t, tx.Flush(ctx))
	})
}
