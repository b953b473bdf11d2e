package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store/internal/db"
)

// PageTokenSecret is the name of the secret that page tokens are signed with.
const PageTokenSecret = "page_tokens"

// keepRates is how long unused rows of rates and streams are kept.
const keepRates = 10 * time.Minute

// InstallationSecret reads a secret that all servers of this database share.
func (s *Store) InstallationSecret(ctx context.Context, name string) ([]byte, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]byte, error) {
		return tx.q.InstallationSecret(ctx, name)
	})
}

// RateKey identifies a rate limit: calls of a class by a tenant, and within it in a scope. The zero
// tenant is the installation.
type RateKey struct {
	Tenant id.Tenant
	Class  int16
	Scope  string
}

// RateRequest requests a lease of calls.
type RateRequest struct {
	Want   int           // calls to lease
	Debt   int           // calls that passed before there was a lease for them
	Most   int           // calls in a window
	Window time.Duration // length of a window
}

// RateLease is the number of leased calls, with times by the database's clock.
type RateLease struct {
	Granted int
	Leased  int       // in this window, to all servers
	Window  time.Time // its beginning
	Now     time.Time
}

// LeaseRate leases calls of a rate limit to a server. It commits without waiting for the disk.
func (s *Store) LeaseRate(ctx context.Context, key RateKey, req RateRequest) (lease RateLease, err error) {
	err = s.engineAt(ctx, func(ctx context.Context, tx *Tx, now time.Time) error {
		window := now.Truncate(req.Window)
		row, err := tx.q.LeaseRate(ctx, db.LeaseRateParams{
			TenantID: key.Tenant.UUID, Class: key.Class, Scope: key.Scope, WindowAt: window, NextAt: window.Add(req.Window),
			Want: int32(req.Want), Debt: int32(req.Debt), Most: int32(req.Most), //nolint:gosec // limits that operators give
		})
		lease = RateLease{Granted: int(row.Granted), Leased: int(row.Leased), Window: row.WindowAt, Now: now}
		if row.WindowAt.After(now) { // another server has seen this window begin
			lease.Now = row.WindowAt
		}
		return err
	})
	return lease, err
}

// ReportStreams writes how many streams a server has open for a tenant, valid for ttl, and returns
// how many the other servers have.
func (s *Store) ReportStreams(ctx context.Context, tenant id.Tenant, holder uuid.UUID, open int, ttl time.Duration) (int, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (int, error) {
		if err := tx.q.LockStreams(ctx, tenant.String()); err != nil {
			return 0, err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return 0, err
		}
		sum, err := tx.q.ReportStreams(ctx, db.ReportStreamsParams{
			TenantID: tenant.UUID, Holder: holder, Streams: int32(open), ExpiresAt: now.Add(ttl), Now: now, //nolint:gosec // as many as are open
		})
		return int(sum), err
	})
}

// ForgetRates deletes rows of rates and streams that were not used for a while.
func (s *Store) ForgetRates(ctx context.Context) (forgotten int64, err error) {
	err = s.engineAt(ctx, func(ctx context.Context, tx *Tx, now time.Time) error {
		leases, err := tx.q.ForgetRateLeases(ctx, now.Add(-keepRates))
		if err != nil {
			return err
		}
		streams, err := tx.q.ForgetRateStreams(ctx, now.Add(-keepRates))
		forgotten = leases + streams
		return err
	})
	return forgotten, err
}
