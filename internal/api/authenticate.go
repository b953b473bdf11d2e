package api

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/metadata"

	"go.arco.dev/servo/internal/access"
	"go.arco.dev/servo/internal/fault"
	"go.arco.dev/servo/internal/id"
	"go.arco.dev/servo/internal/store"
)

// How long keys are believed and remembered. A key that was revoked is refused by every server
// after keysLast, and ends what it has open after the time of one more look: 5 s together.
const (
	keysLast   = 3 * time.Second
	lookAgain  = 2 * time.Second
	maxKnown   = 10_000 // keys that are remembered; past it all are forgotten and asked again
	maxUnknown = 10_000 // likewise ids that no key has
	readTime   = 5 * time.Second

	usedEach   = time.Minute     // how often the last use of one key is written at most
	usedBatch  = 5 * time.Second // how long uses are gathered before they are written
	usedClosed = 2 * time.Second // for the last of them, when the server stops
)

// authenticator knows callers by the keys that they show.
type authenticator struct {
	store *store.Store
	log   *slog.Logger
	open  bool // no keys are asked for

	reading singleflight.Group
	mu      sync.RWMutex
	known   map[string]*knownKey
	unknown map[string]time.Time // when it was asked for

	gather time.Duration
	useMu  sync.Mutex
	uses   []store.KeyUse
	timer  *time.Timer
	closed bool
}

// knownKey is a key that was read, and what we have said about it.
type knownKey struct {
	seen  atomic.Pointer[seenKey]
	noted atomic.Int64 // when its use was last noted, in nanoseconds
}

type seenKey struct {
	store.ShownKey

	readAt time.Time     // by our clock, before the read: what changed later may be missing
	ahead  time.Duration // of the database's clock
}

func newAuthenticator(s *store.Store, log *slog.Logger, open bool) *authenticator {
	return &authenticator{store: s, log: log, open: open, known: map[string]*knownKey{}, unknown: map[string]time.Time{}, gather: usedBatch}
}

// identity is who calls, and the key that says so.
type identity struct {
	access.Caller

	secret    access.Secret
	keyed     bool // by that
	presigned bool // by the URL that was called
}

// unauthenticated is the one answer to everybody whose key is not believed: why is for the log.
func unauthenticated() error {
	return fault.New(fault.Unauthenticated, "this call needs an API key that is known and alive",
		fault.Remedy("send Authorization: Bearer sk_… or x-api-key: sk_…; the command line takes SERVO_API_KEY or servo login"))
}

// identify says who makes a call.
func (a *authenticator) identify(ctx context.Context, method string) (identity, error) {
	if a.open {
		return identity{Caller: access.Open()}, nil
	}
	text, reason := shown(ctx)
	if reason != "" {
		return identity{}, a.refuse(ctx, method, "", reason)
	}
	secret, ok := access.ParseSecret(text)
	if !ok {
		return identity{}, a.refuse(ctx, method, "", "what was shown is not a key")
	}
	caller, reason, err := a.judge(ctx, secret)
	if err != nil {
		return identity{}, err
	}
	if reason != "" {
		return identity{}, a.refuse(ctx, method, secret.ID, reason)
	}
	return identity{Caller: caller, secret: secret, keyed: true}, nil
}

func (a *authenticator) refuse(ctx context.Context, method, key, reason string) error {
	a.log.InfoContext(ctx, "a caller is not known", "method", method, "key", key, "reason", reason, "address", addressOf(ctx))
	return unauthenticated()
}

// shown is the key that a call brings, or why there is none.
func shown(ctx context.Context) (text, reason string) {
	bearer, plain := metadata.ValueFromIncomingContext(ctx, "authorization"), metadata.ValueFromIncomingContext(ctx, "x-api-key")
	switch {
	case len(bearer)+len(plain) == 0:
		return "", "no key was shown"
	case len(bearer)+len(plain) > 1:
		return "", "several keys were shown"
	case len(plain) == 1:
		return plain[0], ""
	}
	scheme, text, _ := strings.Cut(bearer[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", "the authorization is not of the kind Bearer"
	}
	return strings.TrimLeft(text, " "), ""
}

// judge says whose key this is, or why it is not believed.
func (a *authenticator) judge(ctx context.Context, secret access.Secret) (caller access.Caller, reason string, err error) {
	known, err := a.find(ctx, secret.ID)
	if err != nil {
		return caller, "", err
	}
	if known == nil {
		_ = secret.Is(access.Digest{}) // as much work as for one that is known
		return caller, "no key has this id", nil
	}
	seen := known.seen.Load()
	if !secret.Is(seen.Digest) {
		return caller, "the secret is wrong", nil
	}
	now := time.Now().Add(seen.ahead)
	if state := seen.StateAt(now); state == access.Expired || state == access.Revoked {
		return caller, "the key is " + string(state), nil
	}
	a.used(known, seen, now) //nolint:contextcheck // it is written when the call is over
	return seen.Caller(seen.TenantName), "", nil
}

// find gives a key as it was at most keysLast ago; nil if there is none.
func (a *authenticator) find(ctx context.Context, publicID string) (*knownKey, error) {
	fresh := time.Now().Add(-keysLast)
	a.mu.RLock()
	known, missed := a.known[publicID], a.unknown[publicID]
	a.mu.RUnlock()
	if known != nil && known.seen.Load().readAt.After(fresh) {
		return known, nil
	}
	if missed.After(fresh) {
		return nil, nil //nolint:nilnil // no such key
	}
	// One reads for all that ask at the same time, for as long as the read takes and not only
	// as long as the first of them waits.
	answer := a.reading.DoChan(publicID, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
		defer cancel()
		return a.read(ctx, publicID)
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-answer:
		if r.Err != nil {
			return nil, r.Err
		}
		found, _ := r.Val.(*knownKey)
		return found, nil
	}
}

func (a *authenticator) read(ctx context.Context, publicID string) (*knownKey, error) {
	readAt := time.Now()
	shown, err := a.store.KeyByPublicID(ctx, publicID)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case fault.Is(err, fault.NotFound):
		if len(a.unknown) >= maxUnknown {
			clear(a.unknown)
		}
		a.unknown[publicID] = readAt
		return nil, nil //nolint:nilnil // no such key
	case err != nil:
		return nil, err
	}
	known := a.known[publicID]
	if known == nil {
		if len(a.known) >= maxKnown {
			clear(a.known)
		}
		known = &knownKey{}
		a.known[publicID] = known
	}
	delete(a.unknown, publicID)
	known.seen.Store(&seenKey{ShownKey: shown, readAt: readAt, ahead: shown.Now.Sub(readAt)})
	return known, nil
}

// forget makes the next look at a key a real one: it has changed here.
func (a *authenticator) forget(publicID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.known, publicID)
	delete(a.unknown, publicID)
}

// whileAlive ends the context of a call when the key that it was made with is not believed any
// more: streams and claims that wait may be open for long.
func (a *authenticator) whileAlive(ctx context.Context, who identity) (context.Context, func()) {
	if !who.keyed {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	ready := make(chan struct{})
	timer = time.AfterFunc(lookAgain, func() {
		<-ready
		_, reason, err := a.judge(ctx, who.secret)
		if err == nil && reason != "" { // a database that is away is no reason
			cancel(unauthenticated())
			return
		}
		if ctx.Err() == nil {
			timer.Reset(lookAgain)
		}
	})
	close(ready)
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// used notes that a key was used, to be written later together with others.
func (a *authenticator) used(known *knownKey, seen *seenKey, now time.Time) {
	last := known.noted.Load()
	if now.UnixNano()-last < int64(usedEach) || !known.noted.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	a.useMu.Lock()
	defer a.useMu.Unlock()
	if a.closed {
		return
	}
	a.uses = append(a.uses, store.KeyUse{Tenant: seen.Tenant, Key: seen.ID, At: now})
	if a.timer == nil {
		a.timer = time.AfterFunc(a.gather, func() { a.write(readTime) })
	}
}

// write writes the uses that were gathered. What cannot be written is lost: it is about keys
// that nobody needs any more, and a use more or less does not matter for that.
func (a *authenticator) write(within time.Duration) {
	a.useMu.Lock()
	uses := a.uses
	a.uses, a.timer = nil, nil
	a.useMu.Unlock()
	if len(uses) == 0 {
		return
	}
	latest := map[id.Key]store.KeyUse{}
	for _, u := range uses {
		if u.At.After(latest[u.Key].At) {
			latest[u.Key] = u
		}
	}
	uses = uses[:0]
	for _, u := range latest {
		uses = append(uses, u)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := a.store.TouchKeys(ctx, uses); err != nil {
		a.log.Debug("could not write when keys were last used", "error", err)
	}
}

// close writes the last uses.
func (a *authenticator) close() {
	a.useMu.Lock()
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
	a.useMu.Unlock()
	a.write(usedClosed)
}
