package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGift(t *testing.T) {
	t.Parallel()
	var board stands
	served, left := board.add(&claimCommand{leases: make([]Lease, 1)}), board.add(&claimCommand{leases: make([]Lease, 1)})

	g := &gift{stands: []*standing{served}}
	g.end(true)
	g.end(false) // as whoever makes sure that nobody is left waiting does
	<-served.done
	require.Len(t, served.leases, 1, "what was committed stays given")

	(&gift{stands: []*standing{left}}).end(false)
	<-left.done
	require.Empty(t, left.leases, "nobody knows whether it was committed: it looks for itself")

	var none *gift
	none.end(true)
}
