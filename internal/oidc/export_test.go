package oidc

import "context"

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
