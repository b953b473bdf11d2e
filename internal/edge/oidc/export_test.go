package oidc

import (
	"context"
	"time"
)

// Tick is what the loops do each second.
func (v *Verifier) Tick(ctx context.Context) {
	for _, issuer := range v.issuers {
		issuer.keys.tick(ctx)
	}
}

// Known is how many tokens are remembered.
func (v *Verifier) Known() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.known)
}

// Hurry lets issuers answer codes within a time.
func (v *Verifier) Hurry(within time.Duration) {
	for _, t := range v.logins {
		t.login.http.Timeout = min(t.login.http.Timeout, within) // one that has no time at all keeps it
	}
}

// Crowd takes all seats of logins.
func (v *Verifier) Crowd() {
	for _, t := range v.logins {
		for range maxExchanges {
			t.login.seats <- struct{}{}
		}
	}
}
