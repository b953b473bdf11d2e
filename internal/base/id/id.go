// Package id has a type for the id of each kind of thing, so that a run's id cannot be
// passed where a task's is wanted. Ids are UUIDv7, minted from a time that is handed in:
// the database's, so that ids sort by it whatever the clocks of the servers say.
package id

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/fault"
)

type (
	// Tenant is an isolated customer account.
	Tenant struct{ uuid.UUID }
	// Workspace is an environment inside a tenant.
	Workspace struct{ uuid.UUID }
	// Deployment is an immutable snapshot of assets and pipelines.
	Deployment struct{ uuid.UUID }
	// Run is one execution of a plan.
	Run struct{ uuid.UUID }
	// Task is one asset × partition inside a run.
	Task struct{ uuid.UUID }
	// Config is one tenant's use of a pipeline.
	Config struct{ uuid.UUID }
	// Alert is something that somebody must hear of.
	Alert struct{ uuid.UUID }
	// Channel is where alerts are heard.
	Channel struct{ uuid.UUID }
	// Subscription sends events on.
	Subscription struct{ uuid.UUID }
	// Event is something that was sent from outside.
	Event struct{ uuid.UUID }
	// Template is an expression of a schedule with a name.
	Template struct{ uuid.UUID }
	// Key is an API key.
	Key struct{ uuid.UUID }
	// Claim is one claim call of a worker; its repeat gets the same leases.
	Claim struct{ uuid.UUID }
)

// Kind is any of the id types.
type Kind interface {
	Tenant | Workspace | Deployment | Run | Task | Config | Alert | Channel | Subscription | Event | Template | Key | Claim
}

// Minter mints ids for one transaction: all carry its time, and each sorts after the
// one before it.
type Minter struct {
	millis uint64
	seq    uint16
	random [8]byte
}

// maxSequence is the 12 bits that a UUIDv7 leaves between its time and its random part.
const maxSequence = 0x0fff

// NewMinter mints from now.
func NewMinter(now time.Time) *Minter {
	return &Minter{millis: uint64(now.UnixMilli())}
}

// mint makes the next id. When a millisecond's 4,096 sequence numbers are used up it
// borrows the next millisecond, which keeps the order.
func (m *Minter) mint() uuid.UUID {
	if m.seq > maxSequence {
		m.seq = 0
		m.millis++
	}
	_, _ = rand.Read(m.random[:]) // never fails: crypto/rand panics instead

	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:8], m.millis<<16|0x7000|uint64(m.seq))
	copy(u[8:], m.random[:])
	u[8] = u[8]&0x3f | 0x80
	m.seq++
	return u
}

// New mints an id of kind K.
func New[K Kind](m *Minter) K { return K{m.mint()} }

// Of gives a bare UUID its kind.
func Of[K Kind](u uuid.UUID) K { return K{u} }

// Parse reads an id that a person or a program sent.
func Parse[K Kind](field, text string) (K, error) {
	u, err := uuid.Parse(text)
	if err != nil {
		return K{}, fault.New(fault.InvalidArgument, "is not a UUID", fault.Field(field),
			fault.Remedy("send the id as it was given, such as 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10"), fault.Cause(err))
	}
	return K{u}, nil
}

// Floor is the smallest UUIDv7 of a time: the bound of a partition by time.
func Floor(t time.Time) uuid.UUID {
	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:8], uint64(t.UnixMilli())<<16)
	return u
}

// Time is the time that a UUIDv7 was minted from.
func Time(u uuid.UUID) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(u[:8]) >> 16)).UTC()
}
