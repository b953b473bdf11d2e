// Package id has one type for the id of each kind of entity, so that a run's id cannot be passed as a
// task's. Ids are UUIDv7 with the time of the database, so that they sort by it regardless of the
// clocks of the servers.
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
	// Release is a manifest of the installation. A run of a release has its id as deployment.
	Release struct{ uuid.UUID }
	// Run is one execution of a plan.
	Run struct{ uuid.UUID }
	// Task is one asset × partition inside a run.
	Task struct{ uuid.UUID }
	// Config is one tenant's use of a pipeline.
	Config struct{ uuid.UUID }
	// Alert is a condition that operators are notified of.
	Alert struct{ uuid.UUID }
	// Channel is a URL that receives alerts.
	Channel struct{ uuid.UUID }
	// Subscription sends events to a URL.
	Subscription struct{ uuid.UUID }
	// Event is an external event.
	Event struct{ uuid.UUID }
	// Template is a named schedule.
	Template struct{ uuid.UUID }
	// Key is an API key.
	Key struct{ uuid.UUID }
	// Backfill covers a set of partitions with runs.
	Backfill struct{ uuid.UUID }
	// Claim is one claim call of a worker; a repeated call gets the same leases.
	Claim struct{ uuid.UUID }
)

// Kind is any of the id types.
type Kind interface {
	Tenant | Workspace | Deployment | Release | Run | Task | Config | Alert | Channel | Subscription | Event | Template | Key | Backfill | Claim
}

// Minter creates the ids of one transaction: all have its time, and each sorts after the one before.
type Minter struct {
	millis uint64
	seq    uint16
	random [8]byte
}

// maxSequence is the largest value of the 12 bits between the time and the random part of a UUIDv7.
const maxSequence = 0x0fff

// NewMinter returns a minter for a time.
func NewMinter(now time.Time) *Minter {
	return &Minter{millis: uint64(now.UnixMilli())}
}

// mint creates the next id. After the 4,096 sequence numbers of a millisecond it continues with the
// next millisecond, which keeps the order.
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

// New creates an id of kind K.
func New[K Kind](m *Minter) K { return K{m.mint()} }

// Of converts a UUID to an id of kind K.
func Of[K Kind](u uuid.UUID) K { return K{u} }

// Parse parses an id from a request.
func Parse[K Kind](field, text string) (K, error) {
	u, err := uuid.Parse(text)
	if err != nil {
		return K{}, fault.New(fault.InvalidArgument, "is not a UUID", fault.Field(field),
			fault.Remedy("send the id as Servo returned it, such as 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10"), fault.Cause(err))
	}
	return K{u}, nil
}

// Floor returns the smallest UUIDv7 of a time: the bound of a partition by time.
func Floor(t time.Time) uuid.UUID {
	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:8], uint64(t.UnixMilli())<<16)
	return u
}

// Time returns the time of a UUIDv7.
func Time(u uuid.UUID) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(u[:8]) >> 16)).UTC()
}
