package store

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store/internal/db"
)

// CallsKept is how long the answer of an idempotency key is kept.
const CallsKept = 24 * time.Hour

// Call is a call that carries an idempotency key.
type Call struct {
	Tenant id.Tenant // zero for the installation
	Key    string
	Method string
	Digest []byte // of the caller and the request
}

// AnsweredCall returns the answer of the call of a key. Same is true if it is the same call;
// otherwise the key was used for another one.
func (s *Store) AnsweredCall(ctx context.Context, of Call) (answer []byte, same, known bool, err error) {
	err = s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		answer, same, known, err = tx.answeredCall(ctx, of)
		return err
	})
	return answer, same, known, err
}

func (tx *Tx) answeredCall(ctx context.Context, of Call) (answer []byte, same, known bool, err error) {
	row, err := tx.q.AnsweredCall(ctx, db.AnsweredCallParams{TenantID: of.Tenant.UUID, Key: of.Key, Keep: CallsKept.Seconds()})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, false, nil
	}
	return row.Answer, bytes.Equal(row.Digest, of.Digest), err == nil, err
}

// insertAnsweredCall reports whether the key was free.
func (tx *Tx) insertAnsweredCall(ctx context.Context, of Call, answer []byte) (bool, error) {
	if answer == nil { // an empty message is an answer
		answer = []byte{}
	}
	n, err := tx.q.InsertAnsweredCall(ctx, db.InsertAnsweredCallParams{
		TenantID: of.Tenant.UUID, Key: of.Key, Method: of.Method, Digest: of.Digest, Answer: answer, Keep: CallsKept.Seconds(),
	})
	return n == 1, err
}

// forgottenAtOnce bounds one statement that deletes old rows.
const forgottenAtOnce = 1000

// ForgetAnsweredCalls deletes expired answers. More is true if there may be others.
func (s *Store) ForgetAnsweredCalls(ctx context.Context) (n int64, more bool, err error) {
	err = s.engineAt(ctx, func(ctx context.Context, tx *Tx, now time.Time) error {
		n, err = tx.q.ForgetAnsweredCalls(ctx, db.ForgetAnsweredCallsParams{Before: now.Add(-CallsKept), Most: forgottenAtOnce})
		return err
	})
	return n, n == forgottenAtOnce, err
}

var (
	errDuplicateCall = errors.New("store: a call with the same idempotency key is running")
	errAnswered      = errors.New("store: the call of this idempotency key was answered meanwhile")
	errCallBusy      = errors.New("store: the transaction of a call with an idempotency key is used concurrently")
)

// CallTx makes the effect of an idempotent call and its answer one transaction. The first
// transaction of the engine under its context is not committed but parked. All later reads and
// writes of the call use it, and Keep commits it together with the answer. The caller must call
// Abandon at the end, kept or not.
type CallTx struct {
	store     *Store
	call      Call
	state     atomic.Int32
	raw       pgx.Tx
	tx        *Tx
	after     []func()
	broken    error // the role of the transaction could not be restored
	duplicate bool
}

// The states of a call's transaction.
const (
	callFree   int32 = iota // not begun
	callBegun               // the effect is being written
	callParked              // the effect is written and visible to this call only
	callUsed                // parked, and a read or write uses it
	callOver
)

// CallTx returns the transaction of a call, which begins later.
func (s *Store) CallTx(call Call) *CallTx { return &CallTx{store: s, call: call} }

type callTxKey struct{}

// With returns a context whose first transaction of the engine is the call's.
func (c *CallTx) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, callTxKey{}, c)
}

func callOf(ctx context.Context) *CallTx {
	c, _ := ctx.Value(callTxKey{}).(*CallTx)
	return c
}

// InCall reports whether the next transaction of the engine under a context is that of an
// idempotent call. Then its work cannot be batched with that of other calls.
func InCall(ctx context.Context) bool {
	c := callOf(ctx)
	return c != nil && c.state.Load() != callOver
}

// Uncommitted reports whether reads under a context see uncommitted rows. Their results must not be
// cached.
func Uncommitted(ctx context.Context) bool {
	c := callOf(ctx)
	if c == nil {
		return false
	}
	state := c.state.Load()
	return state == callParked || state == callUsed
}

// AfterCommit runs a function once the effect of the last transaction is visible: immediately, or
// after the commit of the call's transaction. It does not run if that fails.
func AfterCommit(ctx context.Context, do func()) {
	if c := callOf(ctx); c != nil && Uncommitted(ctx) {
		c.after = append(c.after, do)
		return
	}
	do()
}

// Duplicate reports whether the call had no effect because another call with the key was running.
func (c *CallTx) Duplicate() bool { return c.duplicate }

// effect runs a transaction of the engine in the call: it begins and parks the first one, and runs
// later ones as parts of it.
func (c *CallTx) effect(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	switch state := c.state.Load(); {
	case state == callFree && c.state.CompareAndSwap(callFree, callBegun):
		return c.begin(ctx, fn)
	case state == callParked:
		return c.use(ctx, func(ctx context.Context, _ *Tx) error {
			point, err := c.raw.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = point.Rollback(ctx) }() // no effect after the commit
			if err := c.store.run(ctx, point, fn); err != nil {
				return err
			}
			return point.Commit(ctx)
		})
	case state == callOver:
		return c.store.engine(ctx, fn)
	}
	return errCallBusy
}

func (c *CallTx) begin(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) (err error) {
	raw, err := c.store.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: c.store.begin()})
	if err != nil {
		c.state.Store(callFree)
		return c.store.refollow(ctx, err)
	}
	parked := false
	defer func() {
		if !parked {
			rollback(ctx, raw)
			c.state.Store(callFree)
		}
	}()
	tx := c.store.tx(raw)
	alone, err := tx.q.TryLockCall(ctx, db.TryLockCallParams{TenantID: c.call.Tenant.UUID, Key: c.call.Key})
	if err != nil {
		return err
	}
	if c.duplicate = !alone; c.duplicate {
		return errDuplicateCall
	}
	// A separate statement: its snapshot includes commits before the lock was released.
	if _, _, known, err := tx.answeredCall(ctx, c.call); err != nil || known {
		return errors.Join(err, answered(known))
	}
	if err := c.store.run(ctx, raw, fn); err != nil {
		return err
	}
	c.raw, c.tx, parked = raw, tx, true
	c.state.Store(callParked)
	return nil
}

func answered(known bool) error {
	if known {
		return errAnswered
	}
	return nil
}

// use runs a function in the parked transaction.
func (c *CallTx) use(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	if !c.state.CompareAndSwap(callParked, callUsed) {
		return errCallBusy
	}
	defer c.state.CompareAndSwap(callUsed, callParked)
	if c.broken != nil {
		return c.broken
	}
	return fn(ctx, c.tx)
}

// read runs a function that reads in the parked transaction, in any role, and then restores the
// engine's role.
func (c *CallTx) read(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	return c.use(ctx, func(ctx context.Context, tx *Tx) error {
		err := fn(ctx, tx)
		c.broken = tx.q.EnterEngine(ctx)
		return errors.Join(err, c.broken)
	})
}

// Keep writes the answer, in the transaction of the effect if there is one, and commits. Kept is
// false if the key has another answer by now: then the effect is rolled back too. After an error
// the result is unknown, and AnsweredCall returns it.
func (c *CallTx) Keep(ctx context.Context, answer []byte) (kept bool, err error) {
	if c.state.Load() != callParked {
		err = c.store.engine(ctx, func(ctx context.Context, tx *Tx) error {
			kept, err = tx.insertAnsweredCall(ctx, c.call, answer)
			return err
		})
		return kept, err
	}
	err = c.use(ctx, func(ctx context.Context, tx *Tx) error {
		kept, err = tx.insertAnsweredCall(ctx, c.call, answer)
		return err
	})
	if err != nil || !kept {
		c.Abandon(ctx)
		return false, err
	}
	c.state.Store(callOver)
	return true, c.raw.Commit(ctx)
}

// Done runs the functions of AfterCommit. The caller must know that the transaction was committed.
func (c *CallTx) Done() {
	for _, do := range c.after {
		do()
	}
	c.after = nil
}

// Abandon rolls the transaction back unless it was kept.
func (c *CallTx) Abandon(ctx context.Context) {
	if state := c.state.Swap(callOver); state == callParked || state == callUsed {
		rollback(ctx, c.raw)
		c.after = nil
	}
}

const rollbackTime = 5 * time.Second

// rollback releases the connection, also after the caller's context has ended.
func rollback(ctx context.Context, raw pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	_ = raw.Rollback(ctx) // if this fails the connection is closed, which has the same effect
}
