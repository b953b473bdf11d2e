package run

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
)

// TestRunOfConfig folds what a config adds to its runs.
func TestRunOfConfig(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	config, of := id.Of[id.Config](uuid.New()), id.Of[id.Run](uuid.New())
	slot := now.Add(-time.Minute)
	fold := func(t *testing.T, bodies ...event.Body) (r Run) {
		t.Helper()
		for i, body := range bodies {
			next, err := r.Evolve(event.Event{Run: of, Subject: of.UUID, Version: int32(i + 1), At: now, Meta: event.Meta{Actor: "scheduler"}, Body: body})
			require.NoError(t, err)
			r = next
		}
		return r
	}

	t.Run("a run keeps its config and its slot", func(t *testing.T) {
		t.Parallel()
		r := fold(t, RunCreated{Config: &config, Slot: &slot, Tasks: make([]TaskSpec, 1)}, RunStarted{}, RunCancelRequested{})
		require.Equal(t, &config, r.Config)
		require.Equal(t, slot, r.Slot)
	})

	t.Run("a run that no slot has made has none", func(t *testing.T) {
		t.Parallel()
		r := fold(t, RunCreated{Config: &config, Tasks: make([]TaskSpec, 1)})
		require.Equal(t, &config, r.Config)
		require.Zero(t, r.Slot)
		require.Nil(t, fold(t, RunCreated{Tasks: make([]TaskSpec, 1)}).Config)
	})

	t.Run("a run waits for its lock until it starts", func(t *testing.T) {
		t.Parallel()
		created := RunCreated{Lock: "k", Behind: true, Tasks: make([]TaskSpec, 1)}
		r := fold(t, created)
		require.True(t, r.Behind)
		require.Equal(t, RunPending, r.State)
		require.Equal(t, "k", r.Lock)
		r = fold(t, created, RunStarted{})
		require.False(t, r.Behind)
		require.Equal(t, "k", r.Lock, "it has it then")
	})

	t.Run("an event from before there were configs has none", func(t *testing.T) {
		t.Parallel()
		text, err := json.Marshal(RunCreated{Tasks: []TaskSpec{}})
		require.NoError(t, err)
		for _, name := range []string{"behind", "config", "slot"} {
			require.NotContains(t, string(text), `"`+name+`"`)
		}
		body := RunCreated{Config: &config, Slot: &slot, Behind: true, Tasks: []TaskSpec{}}
		text, err = json.Marshal(body)
		require.NoError(t, err)
		var again RunCreated
		require.NoError(t, json.Unmarshal(text, &again))
		require.Equal(t, body, again)
	})
}
