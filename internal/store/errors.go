package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var errReadInPipeline = errors.New("store: a read was sent to the pipeline of writes")

// MismatchError means that a statement changed another number of rows than were locked.
type MismatchError struct {
	Statement string
	Want, Got int
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("store: %s touched %d rows instead of %d", e.Statement, e.Got, e.Want)
}

// IsLockTaken reports whether a run could not get a lock because another run took it first.
func IsLockTaken(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505" && pg.ConstraintName == "live_runs_lock"
}

// Trouble classifies a failed transaction by what can be done about it.
type Trouble int

const (
	// Broken is a bug in Servo: report it.
	Broken Trouble = iota
	// Collided transactions (deadlock, serialization) succeed when retried.
	Collided
	// Away means the database did not answer; whether the commit happened is unknown.
	Away
	// Poisoned means a value that the database rejects: find the command that contains it.
	Poisoned
)

// IsTransient reports whether a retry may succeed.
func IsTransient(err error) bool {
	trouble := Diagnose(err)
	return trouble == Collided || trouble == Away
}

// Diagnose classifies an error of a transaction.
func Diagnose(err error) Trouble {
	if _, ok := errors.AsType[*MismatchError](err); ok {
		return Poisoned
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return diagnoseCode(pg.Code)
	}
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return Broken
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), errors.As(err, &network), pgconn.SafeToRetry(err),
		errors.Is(err, pgx.ErrTxCommitRollback), strings.Contains(err.Error(), "conn closed"):
		return Away
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return Away
	}
	return Broken
}

// deadlock is PostgreSQL's code for a detected deadlock.
const deadlock = "40P01"

func diagnoseCode(code string) Trouble {
	switch {
	case code == "40001", code == deadlock, code == "55P03", code == clusterChanged:
		return Collided
	case code == "25P03", // idle in a transaction for too long
		strings.HasPrefix(code, "08"), strings.HasPrefix(code, "57P"), strings.HasPrefix(code, "53"):
		return Away
	case strings.HasPrefix(code, "22"), strings.HasPrefix(code, "23"), strings.HasPrefix(code, "54"):
		return Poisoned
	}
	return Broken
}
