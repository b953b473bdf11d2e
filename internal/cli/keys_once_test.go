package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShownOnce(t *testing.T) {
	t.Parallel()
	require.Equal(t, "sk_1_2", shownOnce("sk_1_2"))
	require.Contains(t, shownOnce(""), "create another", "a repeat whose first answer was lost")
}
