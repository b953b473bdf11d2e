package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/store/internal/db"
)

// Duty is the right to do work that only one server may do: holder and epoch of the time when it
// was taken.
type Duty struct {
	Name   string
	Holder string
	Epoch  int64
}

// ErrDutyLost means that another server holds the duty.
var ErrDutyLost = errors.New("the duty is held by another server")

// TakeDuty takes a duty that is free or expired, or renews the holder's own, for ttl. It uses a
// connection of its own, so that a renewal does not wait for a free connection.
func (s *Store) TakeDuty(ctx context.Context, name, holder string, ttl time.Duration) (duty Duty, err error) {
	err = s.again(ctx, func() (bool, error) {
		committing, err := s.attempt(ctx, s.urgent, pgx.TxOptions{BeginQuery: s.begin()}, func(ctx context.Context, tx *Tx) (err error) {
			duty, err = tx.takeDuty(ctx, name, holder, ttl)
			return err
		})
		return committing, s.refollow(ctx, err)
	})
	return duty, err
}

func (tx *Tx) takeDuty(ctx context.Context, name, holder string, ttl time.Duration) (Duty, error) {
	duty := Duty{Name: name, Holder: holder}
	renew := func() (now time.Time, err error) {
		if now, err = tx.Clock(ctx); err == nil {
			duty.Epoch, err = tx.q.RenewDuty(ctx, db.RenewDutyParams{Name: name, Holder: holder, Now: now, ExpiresAt: now.Add(ttl)})
		}
		return now, err
	}
	now, err := renew()
	if !errors.Is(err, pgx.ErrNoRows) {
		return duty, err
	}
	if _, err = tx.q.TakeDuty(ctx, db.TakeDutyParams{Name: name, Holder: holder, Now: now, ExpiresAt: noEvent}); err == nil {
		_, err = renew() // it may have waited for the previous holder: the duty lasts from now on
	}
	return duty, lostIfNone(err)
}

// ReleaseDuty lets the next server take the duty at once.
func (s *Store) ReleaseDuty(ctx context.Context, d Duty) error {
	return s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		return tx.q.ReleaseDuty(ctx, db.ReleaseDutyParams{Name: d.Name, Holder: d.Holder})
	})
}

// HoldDuty keeps other servers from taking the duty until this transaction ends.
func (tx *Tx) HoldDuty(ctx context.Context, d Duty) error {
	_, err := tx.q.HoldDuty(ctx, db.HoldDutyParams{Name: d.Name, Holder: d.Holder, Epoch: d.Epoch})
	return lostIfNone(err)
}

func lostIfNone(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrDutyLost
	}
	return err
}
