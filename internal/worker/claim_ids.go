package worker

import (
	"encoding/binary"

	"github.com/google/uuid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// claimIDs creates the ids of a process's claims: the first half is random and the same for all, the
// rest is a counter. So a heartbeat can name all finished claims by the first and the last. Guarded
// by Worker.mu.
type claimIDs struct {
	process [8]byte
	made    uint64
	settled uint64 // the number of finished claims: the worker takes no more leases of them
}

func newClaimIDs() claimIDs {
	ids := claimIDs{}
	random := uuid.New()
	copy(ids.process[:], random[:])
	ids.process[6] = ids.process[6]&0x0f | 0x80 // version 8: custom
	return ids
}

// next returns the id of a new claim. Earlier claims are finished: there is one at a time.
func (c *claimIDs) next() string {
	c.settled = c.made
	c.made++
	return c.id(c.made).String()
}

// settle marks the last claim as finished.
func (c *claimIDs) settle() { c.settled = c.made }

func (c *claimIDs) id(n uint64) (id uuid.UUID) {
	copy(id[:], c.process[:])
	binary.BigEndian.PutUint64(id[8:], n)
	id[8] = id[8]&0x3f | 0x80 // the variant
	return id
}

// finished returns the finished claims; nil without any.
func (c *claimIDs) finished() *servov1.ClaimRange {
	if c.settled == 0 {
		return nil
	}
	return &servov1.ClaimRange{First: c.id(1).String(), Last: c.id(c.settled).String()}
}
