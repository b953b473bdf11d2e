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

// CallsKept is how long an idempotency key stands for its answer.
const CallsKept = 24 * time.Hour

// Call is a call that carries an idempotency key.
type Call struct {
	Tenant id.Tenant // zero for the installation
	Key    string
	Method string
	Digest []byte // of who asks for what
}

// AnsweredCall is what the call of a key was answered. Same says that it is this very call;
// if not, the key was used for another one.
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

// forgottenAtOnce bounds one statement that forgets what is old.
const forgottenAtOnce = 1000

// ForgetAnsweredCalls deletes answers that nobody can ask for any more. More says that there
// may be others.
func (s *Store) ForgetAnsweredCalls(ctx context.Context) (n int64, more bool, err error) {
	err = s.engineAt(ctx, func(ctx context.Context, tx *Tx, now time.Time) error {
		n, err = tx.q.ForgetAnsweredCalls(ctx, db.ForgetAnsweredCallsParams{Before: now.Add(-CallsKept), Most: forgottenAtOnce})
		return err
	})
	return n, n == forgottenAtOnce, err
}

var (
	errTwin      = errors.New("store: a call with the same idempotency key is at work")
	errAnswered  = errors.New("store: the call of this idempotency key was answered meanwhile")
	errClaimBusy = errors.New("store: the transaction of a call with an idempotency key is used twice at once")
)

// Claim makes the effect of a call and its answer one transaction: the first transaction of the
// engine under its context is not committed but parked. What the call reads or writes
// afterwards goes through it, and Keep commits it together with the answer. Whoever makes a
// claim abandons it in the end, kept or not.
type Claim struct {
	store  *Store
	call   Call
	state  atomic.Int32
	raw    pgx.Tx
	tx     *Tx
	after  []func()
	spoilt error // the transaction is not what it should be any more
	twin   bool
}

// What a claim's transaction is doing.
const (
	claimFree   int32 = iota // there is none
	claimBegun               // the effect is being made
	claimParked              // the effect is there, for this call alone
	claimUsed                // parked, and somebody reads or writes in it
	claimOver
)

// Claim begins nothing yet.
func (s *Store) Claim(call Call) *Claim { return &Claim{store: s, call: call} }

type claimKey struct{}

// With is a context whose first transaction of the engine belongs to the claim.
func (c *Claim) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, claimKey{}, c)
}

func claimOf(ctx context.Context) *Claim {
	c, _ := ctx.Value(claimKey{}).(*Claim)
	return c
}

// Claimed reports whether the next transaction of the engine under a context is one with the
// answer of its call. What would be done elsewhere, together with others, must be done in it.
func Claimed(ctx context.Context) bool {
	c := claimOf(ctx)
	return c != nil && c.state.Load() != claimOver
}

// Uncommitted reports whether reads under a context see what may never be committed. Nobody
// remembers what they have seen.
func Uncommitted(ctx context.Context) bool {
	c := claimOf(ctx)
	if c == nil {
		return false
	}
	state := c.state.Load()
	return state == claimParked || state == claimUsed
}

// AfterCommit does what must not be done before the effect of a transaction that has just
// ended can be seen: at once, or when the call's claim is kept. It is not done if that fails.
func AfterCommit(ctx context.Context, do func()) {
	if c := claimOf(ctx); c != nil && Uncommitted(ctx) {
		c.after = append(c.after, do)
		return
	}
	do()
}

// Twin says that the effect was not made because another call with the key was at work.
func (c *Claim) Twin() bool { return c.twin }

// effect runs a transaction of the engine under the claim: the first is begun and parked,
// what follows is a part of it.
func (c *Claim) effect(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	switch state := c.state.Load(); {
	case state == claimFree && c.state.CompareAndSwap(claimFree, claimBegun):
		return c.begin(ctx, fn)
	case state == claimParked:
		return c.use(ctx, func(ctx context.Context, _ *Tx) error {
			point, err := c.raw.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = point.Rollback(ctx) }() // nothing, once it is committed
			if err := c.store.run(ctx, point, fn); err != nil {
				return err
			}
			return point.Commit(ctx)
		})
	case state == claimOver:
		return c.store.engine(ctx, fn)
	}
	return errClaimBusy
}

func (c *Claim) begin(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) (err error) {
	raw, err := c.store.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: c.store.begin()})
	if err != nil {
		c.state.Store(claimFree)
		return c.store.refollow(ctx, err)
	}
	parked := false
	defer func() {
		if !parked {
			rollback(ctx, raw)
			c.state.Store(claimFree)
		}
	}()
	tx := c.store.tx(raw)
	alone, err := tx.q.TryLockCall(ctx, db.TryLockCallParams{TenantID: c.call.Tenant.UUID, Key: c.call.Key})
	if err != nil {
		return err
	}
	if c.twin = !alone; c.twin {
		return errTwin
	}
	// A statement of its own: what was committed before the lock was free is in its snapshot.
	if _, _, known, err := tx.answeredCall(ctx, c.call); err != nil || known {
		return errors.Join(err, answered(known))
	}
	if err := c.store.run(ctx, raw, fn); err != nil {
		return err
	}
	c.raw, c.tx, parked = raw, tx, true
	c.state.Store(claimParked)
	return nil
}

func answered(known bool) error {
	if known {
		return errAnswered
	}
	return nil
}

// use lets somebody have the parked transaction for a while.
func (c *Claim) use(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	if !c.state.CompareAndSwap(claimParked, claimUsed) {
		return errClaimBusy
	}
	defer c.state.CompareAndSwap(claimUsed, claimParked)
	if c.spoilt != nil {
		return c.spoilt
	}
	return fn(ctx, c.tx)
}

// read runs a transaction that reads, in whatever role it enters, and comes back to the
// engine's.
func (c *Claim) read(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	return c.use(ctx, func(ctx context.Context, tx *Tx) error {
		err := fn(ctx, tx)
		c.spoilt = tx.q.EnterEngine(ctx)
		return errors.Join(err, c.spoilt)
	})
}

// Keep writes the answer, in the transaction of the effect if there is one, and commits. Kept
// is false if the key has got another answer meanwhile: then there was no effect either,
// unless it was made elsewhere. After an error it is not known whether there was one, and
// AnsweredCall says it.
func (c *Claim) Keep(ctx context.Context, answer []byte) (kept bool, err error) {
	if c.state.Load() != claimParked {
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
	c.state.Store(claimOver)
	return true, c.raw.Commit(ctx)
}

// Done does what waited for the commit. It is for whoever knows that there was one.
func (c *Claim) Done() {
	for _, do := range c.after {
		do()
	}
	c.after = nil
}

// Abandon takes back what is not kept. It is harmless afterwards.
func (c *Claim) Abandon(ctx context.Context) {
	if state := c.state.Swap(claimOver); state == claimParked || state == claimUsed {
		rollback(ctx, c.raw)
		c.after = nil
	}
}

const rollbackTime = 5 * time.Second

// rollback gives the connection back, also of a caller who is gone.
func rollback(ctx context.Context, raw pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	_ = raw.Rollback(ctx) // a connection on which even this fails is closed, which is the same
}
