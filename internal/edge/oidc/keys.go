package oidc

import (
	"context"
	"crypto"
	"encoding/hex"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"go.arco.dev/servo/internal/base/fault"
)

// How long keys are trusted, and how often they are fetched.
const (
	refreshEach = 5 * time.Minute  // a withdrawn key is trusted for at most this long
	demandEach  = 10 * time.Second // minimum between fetches for unknown keys, so that forged tokens cannot flood the issuer
	keysLast    = 24 * time.Hour   // how long keys are trusted while the issuer is unreachable
	lookEach    = time.Second      // how often the loop checks for a due fetch
	firstRetry  = time.Second
	lastRetry   = time.Minute
)

// keyring has the keys of one issuer.
type keyring struct {
	issuer string
	client *http.Client
	log    *slog.Logger
	now    func() time.Time

	held atomic.Pointer[heldKeys] // nil until the first fetch succeeds

	mu       sync.Mutex
	running  chan struct{} // closed when the running fetch ends
	demanded time.Time     // when a call last started a fetch
	next     time.Time     // when the loop fetches next
	backoff  time.Duration
	trouble  bool // the last fetch has failed
}

// heldKeys are fetched keys.
type heldKeys struct {
	published

	print      string
	fetchedAt  time.Time
	generation uint64 // increases when keys are added or removed
}

// current returns the fetched keys; nil if the last successful fetch is too old.
func (k *keyring) current() *heldKeys {
	held := k.held.Load()
	if held == nil || k.now().Sub(held.fetchedAt) > keysLast {
		return nil
	}
	return held
}

// find returns the keys of an id. For an unknown id it fetches the keys, at most every demandEach. No
// keys and no error means that the issuer has no such key.
func (k *keyring) find(ctx context.Context, id string) ([]jose.JSONWebKey, *heldKeys, error) {
	held := k.current()
	if held != nil && len(held.keys[id]) > 0 {
		return held.keys[id], held, nil
	}
	k.demand(ctx)
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	held = k.current()
	if held != nil && len(held.keys[id]) > 0 {
		return held.keys[id], held, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if held == nil || k.trouble { // the key may be new
		return nil, nil, fault.New(fault.Unavailable, "the issuer of this token is unreachable", fault.RetryAfter(demandEach), fault.Remedy("retry, or use an API key"))
	}
	return nil, held, nil
}

// demand fetches the keys for a call, unless another call did so within demandEach, and waits for the
// result.
func (k *keyring) demand(ctx context.Context) {
	k.mu.Lock()
	running := k.running
	if running == nil && k.now().Sub(k.demanded) >= demandEach {
		k.demanded = k.now()
		running = k.startFetch(ctx)
	}
	k.mu.Unlock()
	if running == nil {
		return
	}
	select {
	case <-running:
	case <-ctx.Done():
	}
}

// tick fetches the keys if that is due.
func (k *keyring) tick(ctx context.Context) {
	k.mu.Lock()
	running := k.running
	if running == nil && !k.now().Before(k.next) {
		running = k.startFetch(ctx)
	}
	k.mu.Unlock()
	if running != nil {
		<-running // the fetch has its own deadline
	}
}

// startFetch fetches the keys in the background, because later callers may wait longer than the first.
// The lock is held.
func (k *keyring) startFetch(ctx context.Context) chan struct{} {
	done := make(chan struct{})
	k.running = done
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*fetchPatience)
		defer cancel()
		found, err := fetch(ctx, k.client, k.issuer)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.running = nil
		k.fetched(found, err)
	}()
	return done
}

// fetched stores the result of a fetch, or schedules a retry. The lock is held.
func (k *keyring) fetched(found published, err error) {
	now, before := k.now(), k.held.Load()
	if err != nil {
		k.trouble = true
		k.backoff = min(max(2*k.backoff, firstRetry), lastRetry)
		k.next = now.Add(k.backoff)
		known := 0
		if before != nil {
			known = len(before.keys)
		}
		k.log.Warn("cannot fetch the keys of an issuer", "issuer", k.issuer, "error", err, "known", known, "again_in", k.backoff)
		return
	}
	k.trouble, k.backoff, k.next = false, 0, now.Add(refreshEach)
	made := &heldKeys{published: found, print: fingerprint(found.keys), fetchedAt: now}
	switch {
	case before == nil:
	case before.print == made.print:
		made.generation = before.generation
	default:
		made.generation = before.generation + 1
	}
	if before == nil || made.generation != before.generation {
		k.log.Info("fetched new keys of an issuer", "issuer", k.issuer, "keys", len(found.keys))
	}
	k.held.Store(made)
}

// fingerprint returns a digest of a set of keys.
func fingerprint(keys map[string][]jose.JSONWebKey) string {
	sum := crypto.SHA256.New()
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		for _, key := range keys[id] {
			raw, _ := key.MarshalJSON() // it was read from JSON
			_, _ = sum.Write(raw)       // a hash never fails
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// refusedEndpoint returns why an endpoint of an issuer must not be called; empty if it may.
func refusedEndpoint(text, issuer string) string {
	if parsed, err := url.Parse(text); err == nil && parsed.RawQuery != "" {
		parsed.RawQuery = "" // endpoints may have a query
		text = parsed.String()
	}
	if reason := refusedURL(text); reason != "" {
		return reason
	}
	keys, _ := url.Parse(text) // it was parsed before
	own, err := url.Parse(issuer)
	if err != nil || keys.Scheme == "http" && own.Scheme != "http" {
		return "it is not encrypted"
	}
	return ""
}
