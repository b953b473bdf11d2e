package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/engine"
)

func TestOneSuccessOfMany(t *testing.T) {
	t.Parallel()
	w := newClockwork(t)
	var manifest strings.Builder
	manifest.WriteString("version: 1\nassets:\n  - {key: s/one, exec: {command: [run]}}\n")
	for i := range 4000 {
		fmt.Fprintf(&manifest, "  - {key: big/a%d, exec: {command: [run]}}\n", i)
	}
	manifest.WriteString("pipelines:\n  - {name: single, select: [s/one]}\n  - {name: big, select: [\"big/*\"]}\n")
	w.deploy(t, manifest.String())
	w.save(t, "first", config.Spec{})
	for i := range 5 {
		w.save(t, fmt.Sprintf("after%d", i), config.Spec{Trigger: config.Trigger{Event: &config.Event{Config: "first"}}, Pipeline: "big"})
	}
	w.forward(t, time.Minute)
	w.fire(t)
	w.admit(t)
	for _, l := range w.claim(t, 1, true) {
		w.report(t, l, engine.Complete{})
	}
	taken, err := w.FoldResults(t.Context(), 1000)
	require.NoError(t, err)
	require.Equal(t, 1, taken)
	require.Equal(t, 3*4000, w.db.Count(t, `SELECT count(*) FROM servo.tasks WHERE asset LIKE 'big/%'`), "no transaction is larger than it may be")
	require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.config_results`), "the note stays")
	require.Equal(t, w.now, w.get(t, "first").LastSuccessAt)
	w.forward(t, time.Minute)
	for range 2 {
		w.fold(t)
	}
	require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.config_results`))
	require.Equal(t, w.now.Add(-time.Minute), w.get(t, "first").LastSuccessAt, "a success is counted once")
	for i := range 5 {
		require.Equal(t, 1, w.runsOf(t, fmt.Sprintf("after%d", i)))
	}
	verifytest.Clean(t, w.db)
}

func TestHeldConfigs(t *testing.T) {
	t.Parallel()
	w := newClockwork(t)
	w.save(t, "held", config.Spec{})
	w.save(t, "free", config.Spec{})
	w.save(t, "source", config.Spec{})
	w.save(t, "listens", config.Spec{Trigger: config.Trigger{Event: &config.Event{Config: "source"}}})
	w.forward(t, time.Minute)
	w.fire(t)
	w.admit(t)
	for _, l := range w.claim(t, 10, true) {
		w.report(t, l, engine.Complete{})
	}
	// An operator reads two configs in a transaction that stays open.
	conn := w.db.Connect(t)
	_, err := conn.Exec(t.Context(), `BEGIN; SELECT FROM servo.configs WHERE name IN ('held', 'listens') FOR UPDATE`)
	require.NoError(t, err)

	taken, err := w.FoldResults(t.Context(), 1000)
	require.NoError(t, err)
	require.Equal(t, 1, taken, "what has to do with them is left")
	require.Equal(t, w.now, w.get(t, "free").LastSuccessAt)
	require.True(t, w.get(t, "held").LastSuccessAt.IsZero())
	require.True(t, w.get(t, "source").LastSuccessAt.IsZero())
	taken, err = w.FoldResults(t.Context(), 1000)
	require.NoError(t, err)
	require.Zero(t, taken)

	_, err = conn.Exec(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
	w.fold(t)
	require.Equal(t, w.now, w.get(t, "held").LastSuccessAt)
	require.Equal(t, w.now, w.get(t, "source").LastSuccessAt)
	require.Equal(t, 1, w.runsOf(t, "listens"))
	require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.config_results`))
	verifytest.Clean(t, w.db)
}
