package worker

import (
	"encoding/binary"

	"github.com/google/uuid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// claimIDs makes the ids of a process's claims: the first half is random and the same for all, the rest
// counts upward. A heartbeat can so name all claims that are over by the first and the last. Guarded
// by Worker.mu.
type claimIDs struct {
	process [8]byte
	made    uint64
	settled uint64 // of those made: no lease of theirs will be taken any more
}

func newClaimIDs() claimIDs {
	ids := claimIDs{}
	random := uuid.New()
	copy(ids.process[:], random[:])
	ids.process[6] = ids.process[6]&0x0f | 0x80 // version 8: of one's own making
	return ids
}

// next is the id of a new claim. Those before it are over: claims are made one after the other.
func (c *claimIDs) next() string {
	c.settled = c.made
	c.made++
	return c.id(c.made).String()
}

// settle says that the last claim is over.
func (c *claimIDs) settle() { c.settled = c.made }

func (c *claimIDs) id(n uint64) (id uuid.UUID) {
	copy(id[:], c.process[:])
	binary.BigEndian.PutUint64(id[8:], n)
	id[8] = id[8]&0x3f | 0x80 // the variant
	return id
}

// over are the claims that are over; nil if there is none.
func (c *claimIDs) over() *servov1.ClaimRange {
	if c.settled == 0 {
		return nil
	}
	return &servov1.ClaimRange{First: c.id(1).String(), Last: c.id(c.settled).String()}
}
