package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/config"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/servotest/verifytest"
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
