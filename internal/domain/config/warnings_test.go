package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/config"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	warned := func(policy config.CatchupPolicy, slots int, overlap config.Overlap) []string {
		return config.Spec{Overlap: overlap, Catchup: config.Catchup{Policy: policy, MaxSlots: slots}}.Filled(time.Unix(1e9, 0)).Warnings()
	}
	require.Contains(t, warned(config.CatchupAll, 0, "")[0], "only the oldest missed slot")
	require.Contains(t, warned(config.CatchupAll, 9, config.OverlapBufferOne)[0], "two oldest")
	require.Contains(t, warned(config.CatchupAll, 9, config.OverlapCancelRunning)[0], "but the newest")
	require.Empty(t, warned(config.CatchupAll, 1, config.OverlapSkip), "one slot meets no other")
	require.Empty(t, warned(config.CatchupAll, 9, config.OverlapBufferAll))
	require.Empty(t, warned(config.CatchupAll, 9, config.OverlapAllow))
	require.Empty(t, warned("", 0, ""))
	require.Empty(t, warned(config.CatchupNone, 0, config.OverlapSkip))
}
