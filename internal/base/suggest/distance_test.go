package suggest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDistance(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[abc]{0,7}`)
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		limit := rapid.IntRange(0, 8).Draw(t, "limit")
		var c comparer
		c.distance("leaves something", "in the memory", 9)
		got, want := c.distance(a, b, limit), naive(a, b)
		if want <= limit {
			require.Equal(t, want, got)
		} else {
			require.Greater(t, got, limit)
		}
	})
}

// naive is the definition, tried in all ways.
func naive(a, b string) int {
	switch {
	case a == "":
		return len(b)
	case b == "":
		return len(a)
	}
	least := min(naive(a[1:], b), naive(a, b[1:])) + 1
	if a[0] == b[0] {
		least = min(least, naive(a[1:], b[1:]))
	} else {
		least = min(least, naive(a[1:], b[1:])+1)
	}
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		least = min(least, naive(a[2:], b[2:])+1)
	}
	return least
}
