package intercept

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/metadata"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/oidc"
	"go.arco.dev/servo/internal/store"
)

// How long keys are trusted and cached. Every server refuses a revoked key after keysLast, and ends
// its open calls at the next check: within 5 s together.
const (
	keysLast   = 3 * time.Second
	checkEach  = 2 * time.Second
	maxKnown   = 10_000 // cached keys; beyond it the cache is cleared
	maxUnknown = 10_000 // likewise ids without a key
	readTime   = 5 * time.Second

	usedEach   = time.Minute     // how often the last use of one key is written at most
	usedBatch  = 5 * time.Second // how long uses are collected before they are written
	usedClosed = 2 * time.Second // for the last of them, when the server stops
)

// authenticator identifies callers by their API keys and tokens.
type authenticator struct {
	*Options

	reading singleflight.Group
	mu      sync.RWMutex
	known   map[string]*knownKey
	unknown map[string]time.Time // when it was read

	useMu  sync.Mutex
	uses   []store.KeyUse
	timer  *time.Timer
	closed bool
}

// knownKey is a cached key.
type knownKey struct {
	seen  atomic.Pointer[seenKey]
	noted atomic.Int64 // when its use was last recorded, in nanoseconds
}

// seenKey is a key as it was read.
type seenKey struct {
	store.ShownKey

	readAt time.Time     // by the server's clock, before the read: later changes may be missing
	ahead  time.Duration // by which the database's clock is ahead
}

func newAuthenticator(options *Options) *authenticator {
	return &authenticator{Options: options, known: map[string]*knownKey{}, unknown: map[string]time.Time{}}
}

// identity is a caller with the key or token that proves it.
type identity struct {
	access.Caller

	secret    access.Secret
	keyed     bool           // identified by the secret
	presigned bool           // identified by the URL
	person    *access.Person // the subject of a token; its role depends on the tenant of the call
	token     string
}

// as returns the caller of one request.
func (i identity) as(m access.Method, req any) access.Caller {
	if i.person != nil {
		return i.person.For(m, named(req))
	}
	return i.Caller
}

// unauthenticated is the error of every failed authentication. The reason is logged and not
// returned, so that callers cannot probe for keys.
func unauthenticated() error {
	return fault.New(fault.Unauthenticated, "authentication failed: the API key or token is missing, unknown, expired or revoked",
		fault.Remedy("send Authorization: Bearer sk_… or x-api-key: sk_…; with the command line set SERVO_API_KEY or run servo login"))
}

// identify returns the caller of a call.
func (a *authenticator) identify(ctx context.Context, method string) (identity, error) {
	if a.Open {
		return identity{Caller: access.Open()}, nil
	}
	text, bearer, reason := credential(ctx)
	if reason != "" {
		return identity{}, a.refuse(ctx, method, "", reason)
	}
	secret, ok := access.ParseSecret(text)
	if !ok && bearer && a.Tokens != nil && oidc.IsToken(text) {
		return a.identifyByToken(ctx, method, text)
	}
	if !ok {
		return identity{}, a.refuse(ctx, method, "", "the credential is not an API key")
	}
	caller, reason, err := a.checkKey(ctx, secret)
	if err != nil {
		return identity{}, err
	}
	if reason != "" {
		return identity{}, a.refuse(ctx, method, secret.ID, reason)
	}
	return identity{Caller: caller, secret: secret, keyed: true}, nil
}

// identifyByToken returns the subject of a token.
func (a *authenticator) identifyByToken(ctx context.Context, method, text string) (identity, error) {
	person, reason, err := a.Tokens.Verify(ctx, text)
	if err != nil {
		return identity{}, err
	}
	if reason != "" {
		return identity{}, a.refuse(ctx, method, "", reason)
	}
	return identity{person: &person, token: text}, nil
}

func (a *authenticator) refuse(ctx context.Context, method, key, reason string) error {
	a.Logger.InfoContext(ctx, "authentication failed", "method", method, "key", key, "reason", reason, "address", addressOf(ctx))
	return unauthenticated()
}

// credential returns the API key or bearer token of a call, or the reason why there is none.
func credential(ctx context.Context) (text string, asBearer bool, reason string) {
	bearer, plain := metadata.ValueFromIncomingContext(ctx, "authorization"), metadata.ValueFromIncomingContext(ctx, "x-api-key")
	switch {
	case len(bearer)+len(plain) == 0:
		return "", false, "the call has no API key"
	case len(bearer)+len(plain) > 1:
		return "", false, "the call has several API keys"
	case len(plain) == 1:
		return plain[0], false, ""
	}
	scheme, text, _ := strings.Cut(bearer[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false, "the authorization scheme is not Bearer"
	}
	return strings.TrimLeft(text, " "), true, ""
}

// checkKey returns the caller of a key, or the reason why the key is refused.
func (a *authenticator) checkKey(ctx context.Context, secret access.Secret) (caller access.Caller, reason string, err error) {
	known, err := a.find(ctx, secret.ID)
	if err != nil {
		return caller, "", err
	}
	if known == nil {
		_ = secret.Is(access.Digest{}) // as much work as for a known key
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
	a.recordUse(known, seen, now) //nolint:contextcheck // it is written after the call
	caller = seen.Caller(seen.TenantName)
	caller.Pools = seen.Claims
	return caller, "", nil
}

// find returns a key as it was at most keysLast ago; nil if there is none.
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
	// Concurrent calls share one read. It has its own deadline, because the first caller may leave
	// before the others.
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
	shown, err := a.Store.KeyByPublicID(ctx, publicID)
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

// forget drops a key from the cache.
func (a *authenticator) forget(publicID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.known, publicID)
	delete(a.unknown, publicID)
}

// whileValid ends the context of a call when its key or token becomes invalid: streams and waiting
// claims may be open for long.
func (a *authenticator) whileValid(ctx context.Context, who identity) (context.Context, func()) {
	if !who.keyed && who.person == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	ready := make(chan struct{})
	timer = time.AfterFunc(who.nextCheck(), func() {
		<-ready
		reason, err := a.recheck(ctx, who)
		if err == nil && reason != "" { // an unreachable database or issuer invalidates nothing
			cancel(unauthenticated())
			return
		}
		if ctx.Err() == nil {
			timer.Reset(who.nextCheck())
		}
	})
	close(ready)
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// nextCheck returns when to check a caller again: after checkEach, or when the token expires.
func (i identity) nextCheck() time.Duration {
	if i.person == nil {
		return checkEach
	}
	return max(min(checkEach, time.Until(i.person.ExpiresAt)), time.Millisecond)
}

// recheck returns why the key or token of a caller has become invalid.
func (a *authenticator) recheck(ctx context.Context, who identity) (reason string, err error) {
	if who.person == nil {
		_, reason, err = a.checkKey(ctx, who.secret)
		return reason, err
	}
	if !time.Now().Before(who.person.ExpiresAt) { // even if the issuer cannot be reached
		return "the token has expired", nil
	}
	_, reason, err = a.Tokens.Verify(ctx, who.token)
	return reason, err
}

// recordUse records that a key was used. Uses are written later, together.
func (a *authenticator) recordUse(known *knownKey, seen *seenKey, now time.Time) {
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
		a.timer = time.AfterFunc(a.Timing.KeyUses, func() { a.write(readTime) })
	}
}

// write writes the collected uses. Uses that cannot be written are dropped: they serve to find
// unused keys, and one use more or less does not matter for that.
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
	if err := a.Store.TouchKeys(ctx, uses); err != nil {
		a.Logger.Debug("cannot write the last uses of keys", "error", err)
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
