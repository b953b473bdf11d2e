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

// How keys are kept.
const (
	refreshEach = 5 * time.Minute  // keys that went away are not believed for longer
	demandEach  = 10 * time.Second // how often an unknown key makes us ask: whoever makes them up must not use us against the issuer
	keysLast    = 24 * time.Hour   // without a word of the issuer
	lookEach    = time.Second      // whether it is time to ask again
	firstRetry  = time.Second
	lastRetry   = time.Minute
)

// keyring is the keys of one issuer.
type keyring struct {
	issuer string
	client *http.Client
	log    *slog.Logger
	now    func() time.Time

	held atomic.Pointer[heldKeys] // nil until the issuer has answered

	mu       sync.Mutex
	running  chan struct{} // closed when the fetch that is under way has ended
	demanded time.Time     // when a call has made us ask
	next     time.Time     // when we ask by ourselves
	backoff  time.Duration
	trouble  bool // the last fetch has failed
}

// heldKeys is what an issuer has answered.
type heldKeys struct {
	published

	print      string
	fetchedAt  time.Time
	generation uint64 // grows when keys come or go
}

// current is what is held, unless the issuer has been silent for too long.
func (k *keyring) current() *heldKeys {
	held := k.held.Load()
	if held == nil || k.now().Sub(held.fetchedAt) > keysLast {
		return nil
	}
	return held
}

// find gives the keys of an id. If there is none, the issuer is asked, not too often. None and
// no error means that the issuer has no such key.
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
	if held == nil || k.trouble { // the key may be a new one: nobody can say
		return nil, nil, fault.New(fault.Unavailable, "the issuer of this token cannot be reached", fault.RetryAfter(demandEach), fault.Remedy("try again, or use an API key"))
	}
	return nil, held, nil
}

// demand asks the issuer because a call needs it, unless that was done a moment ago, and waits
// for the answer.
func (k *keyring) demand(ctx context.Context) {
	k.mu.Lock()
	running := k.running
	if running == nil && k.now().Sub(k.demanded) >= demandEach {
		k.demanded = k.now()
		running = k.begin(ctx)
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

// tick asks the issuer if it is time to.
func (k *keyring) tick(ctx context.Context) {
	k.mu.Lock()
	running := k.running
	if running == nil && !k.now().Before(k.next) {
		running = k.begin(ctx)
	}
	k.mu.Unlock()
	if running != nil {
		<-running // it has its own time
	}
}

// begin asks in the background: others may wait for the same answer for longer than whoever was
// first. The lock is held.
func (k *keyring) begin(ctx context.Context) chan struct{} {
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
		k.took(found, err)
	}()
	return done
}

// took keeps an answer, or goes on without. The lock is held.
func (k *keyring) took(found published, err error) {
	now, before := k.now(), k.held.Load()
	if err != nil {
		k.trouble = true
		k.backoff = min(max(2*k.backoff, firstRetry), lastRetry)
		k.next = now.Add(k.backoff)
		known := 0
		if before != nil {
			known = len(before.keys)
		}
		k.log.Warn("the keys of an issuer could not be fetched", "issuer", k.issuer, "error", err, "known", known, "again_in", k.backoff)
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
		k.log.Info("took the keys of an issuer", "issuer", k.issuer, "keys", len(found.keys))
	}
	k.held.Store(made)
}

// fingerprint tells sets of keys apart.
func fingerprint(keys map[string][]jose.JSONWebKey) string {
	sum := crypto.SHA256.New()
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		for _, key := range keys[id] {
			raw, _ := key.MarshalJSON() // it was read from JSON
			_, _ = sum.Write(raw)       // a hash takes everything
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// refusedEndpoint says why a URL that an issuer names cannot be called; "" if it can.
func refusedEndpoint(text, issuer string) string {
	if parsed, err := url.Parse(text); err == nil && parsed.RawQuery != "" {
		parsed.RawQuery = "" // some have one
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
