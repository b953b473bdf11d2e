package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHandoffEnds(t *testing.T) {
	t.Parallel()
	var claims waitingClaims
	served, left := claims.add(&claimCommand{}), claims.add(&claimCommand{})
	open := &openClaim{leases: make([]Lease, 1)}

	h := &handoff{taken: []takenClaim{{served, open}}}
	h.end(true)
	h.end(false) // a second end changes nothing
	<-served.done
	require.Len(t, served.leases, 1, "a committed handoff gives its leases")

	(&handoff{taken: []takenClaim{{left, open}}}).end(false)
	<-left.done
	require.Empty(t, left.leases, "the commit is uncertain: the claim looks itself")

	var none *handoff
	none.end(true)
}
