package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBodyDeadline: a body that trickles is given up after ten seconds, one that comes at a useful
// rate has a minute.
func TestBodyDeadline(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	after := func(read int64) time.Duration { return bodyDeadline(began, read).Sub(began) }
	require.Equal(t, 10*time.Second, after(0))
	require.Less(t, after(60), 11*time.Second, "a byte a second")
	require.Equal(t, 20*time.Second, after(640<<10))
	require.Equal(t, time.Minute, after(maxMessageBytes))
}
