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

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/oidc"
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
	// tokens knows people by those of trusted issuers; nil trusts none.
	tokens *oidc.Verifier

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

func newAuthenticator(config Config) *authenticator {
	return &authenticator{store: config.Store, log: config.Logger, open: config.Open, tokens: config.Tokens, known: map[string]*knownKey{}, unknown: map[string]time.Time{}, gather: usedBatch}
}

// identity is who calls, and the key or token that says so.
type identity struct {
	access.Caller

	secret    access.Secret
	keyed     bool           // by that
	presigned bool           // by the URL that was called
	person    *access.Person // whom a token speaks of; who that is for a call depends on its tenant
	token     string
}

// as is who calls for one request.
func (i identity) as(m access.Method, req any) access.Caller {
	if i.person != nil {
		return i.person.For(m, named(req))
	}
	return i.Caller
}

// unauthenticated is the one answer to everybody whose key or token is not believed: why is for
// the log.
func unauthenticated() error {
	return fault.New(fault.Unauthenticated, "this call needs an API key or a token that is known and alive",
		fault.Remedy("send Authorization: Bearer sk_… or x-api-key: sk_…; the command line takes SERVO_API_KEY or servo login"))
}

// identify says who makes a call.
func (a *authenticator) identify(ctx context.Context, method string) (identity, error) {
	if a.open {
		return identity{Caller: access.Open()}, nil
	}
	text, bearer, reason := shown(ctx)
	if reason != "" {
		return identity{}, a.refuse(ctx, method, "", reason)
	}
	secret, ok := access.ParseSecret(text)
	if !ok && bearer && a.tokens != nil && oidc.IsToken(text) {
		return a.recognise(ctx, method, text)
	}
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

// recognise says who shows a token.
func (a *authenticator) recognise(ctx context.Context, method, text string) (identity, error) {
	person, reason, err := a.tokens.Verify(ctx, text)
	if err != nil {
		return identity{}, err
	}
	if reason != "" {
		return identity{}, a.refuse(ctx, method, "", reason)
	}
	return identity{person: &person, token: text}, nil
}

func (a *authenticator) refuse(ctx context.Context, method, key, reason string) error {
	a.log.InfoContext(ctx, "a caller is not known", "method", method, "key", key, "reason", reason, "address", addressOf(ctx))
	return unauthenticated()
}

// shown is the key or, as a bearer's, the token that a call brings, or why there is none.
func shown(ctx context.Context) (text string, asBearer bool, reason string) {
	bearer, plain := metadata.ValueFromIncomingContext(ctx, "authorization"), metadata.ValueFromIncomingContext(ctx, "x-api-key")
	switch {
	case len(bearer)+len(plain) == 0:
		return "", false, "no key was shown"
	case len(bearer)+len(plain) > 1:
		return "", false, "several keys were shown"
	case len(plain) == 1:
		return plain[0], false, ""
	}
	scheme, text, _ := strings.Cut(bearer[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false, "the authorization is not of the kind Bearer"
	}
	return strings.TrimLeft(text, " "), true, ""
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
	caller = seen.Caller(seen.TenantName)
	caller.Pools = seen.Claims
	return caller, "", nil
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

// whileAlive ends the context of a call when the key or token that it was made with is not
// believed any more: streams and claims that wait may be open for long.
func (a *authenticator) whileAlive(ctx context.Context, who identity) (context.Context, func()) {
	if !who.keyed && who.person == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	ready := make(chan struct{})
	timer = time.AfterFunc(who.soon(), func() {
		<-ready
		reason, err := a.again(ctx, who)
		if err == nil && reason != "" { // a database or an issuer that is away is no reason
			cancel(unauthenticated())
			return
		}
		if ctx.Err() == nil {
			timer.Reset(who.soon())
		}
	})
	close(ready)
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// soon is when to look at a caller again: before long, and when the token ends.
func (i identity) soon() time.Duration {
	if i.person == nil {
		return lookAgain
	}
	return max(min(lookAgain, time.Until(i.person.ExpiresAt)), time.Millisecond)
}

// again says why a caller who was believed is not any more.
func (a *authenticator) again(ctx context.Context, who identity) (reason string, err error) {
	if who.person == nil {
		_, reason, err = a.judge(ctx, who.secret)
		return reason, err
	}
	if !time.Now().Before(who.person.ExpiresAt) { // whether or not the issuer can be reached
		return "the token has expired", nil
	}
	_, reason, err = a.tokens.Verify(ctx, who.token)
	return reason, err
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
