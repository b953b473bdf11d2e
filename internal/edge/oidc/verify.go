package oidc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/loop"
	"go.arco.dev/servo/internal/domain/access"
)

// Limits of tokens.
const (
	maxToken = 16 << 10
	leeway   = 30 * time.Second // by which an issuer's clock may be ahead
	maxKnown = 10_000           // cached tokens; beyond it the cache is cleared
)

// Options configure a verifier.
type Options struct {
	Logger *slog.Logger
	Now    func() time.Time // nil is time.Now
}

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	now     func() time.Time
	log     *slog.Logger
	issuers map[string]*trusted
	logins  []*trusted // issuers with logins, in the order of the settings
	loops   []*loop.Loop

	mu    sync.RWMutex
	known map[[sha256.Size]byte]knownToken
}

// trusted is an issuer and its keys.
type trusted struct {
	Issuer

	keys  *keyring
	login *loginClient // nil without logins
}

// knownToken is a verified token.
type knownToken struct {
	access.Person

	by         *trusted
	generation uint64 // of the issuer's keys when it was verified
}

// NewVerifier creates a verifier. It sends no request to an issuer until it is started or verifies a
// token of it.
func NewVerifier(settings Settings, config Options) (*Verifier, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	v := &Verifier{now: config.Now, log: config.Logger, issuers: map[string]*trusted{}, known: map[[sha256.Size]byte]knownToken{}}
	for i, issuer := range settings.Issuers {
		client, err := newClient(issuer)
		if err != nil {
			return nil, fault.Under(fmt.Sprintf("issuers[%d]", i), err)
		}
		one := &trusted{Issuer: issuer, keys: &keyring{issuer: issuer.URL, client: client, log: config.Logger, now: config.Now}}
		v.issuers[issuer.URL] = one
		if issuer.Login == nil {
			continue
		}
		if one.login, err = newLoginClient(issuer.Login, client); err != nil {
			return nil, fault.Under(fmt.Sprintf("issuers[%d]", i), err)
		}
		v.logins = append(v.logins, one)
	}
	return v, nil
}

// Start fetches the keys of all issuers regularly. It retries unreachable issuers.
func (v *Verifier) Start(log *slog.Logger) {
	for _, issuer := range v.issuers {
		v.loops = append(v.loops, loop.Start(loop.Config{Name: "oidc", Every: lookEach, Logger: log, RunOnce: func(ctx context.Context) (bool, error) {
			issuer.keys.tick(ctx)
			return false, nil
		}}))
	}
}

// Stop ends the fetches that Start began.
func (v *Verifier) Stop() {
	if v == nil {
		return
	}
	for _, l := range v.loops {
		l.Stop()
	}
	for _, issuer := range v.issuers {
		issuer.keys.client.CloseIdleConnections()
	}
}

// IsToken reports whether a text has the shape of a token.
func IsToken(text string) bool { return strings.Count(text, ".") == 2 }

// Verify returns the subject of a token, or the reason for the log why the token is refused. An error
// means that it cannot decide now.
func (v *Verifier) Verify(ctx context.Context, text string) (person access.Person, reason string, err error) {
	if len(text) > maxToken {
		return access.Person{}, "the token is too long", nil
	}
	if strings.ContainsFunc(text, notInToken) { // decoders skip line ends; each token has one valid text
		return access.Person{}, "the token has invalid characters", nil
	}
	sum := sha256.Sum256([]byte(text))
	v.mu.RLock()
	known, ok := v.known[sum]
	v.mu.RUnlock()
	if ok && v.now().Before(known.ExpiresAt) {
		if held := known.by.keys.current(); held != nil && held.generation == known.generation {
			return known.Person, "", nil
		}
	}
	issuer, found := v.issuers[issuerOf(text)]
	if !found {
		return access.Person{}, "the token is of no trusted issuer", nil
	}
	person, generation, err := issuer.verify(ctx, text, v.now)
	if refused, is := errors.AsType[refusal](err); is {
		return access.Person{}, string(refused), nil
	}
	if err != nil {
		return access.Person{}, "", err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= maxKnown {
		clear(v.known)
	}
	v.known[sum] = knownToken{Person: person, by: issuer, generation: generation}
	return person, "", nil
}

func notInToken(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
}

// issuerOf returns the issuer that a token names. The signature is not verified yet.
func issuerOf(text string) string {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(raw, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// refusal is the reason why a token is refused.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// verify verifies a token that is not cached.
func (t *trusted) verify(ctx context.Context, text string, now func() time.Time) (access.Person, uint64, error) {
	var allowed []jose.SignatureAlgorithm
	for _, algorithm := range t.Algorithms {
		allowed = append(allowed, jose.SignatureAlgorithm(algorithm))
	}
	signed, err := jose.ParseSignedCompact(text, allowed)
	if err != nil {
		return access.Person{}, 0, refuse("cannot parse the token: %v", err)
	}
	header := signed.Signatures[0].Protected
	if kind, _ := header.ExtraHeaders[jose.HeaderType].(string); !identifies(kind) {
		return access.Person{}, 0, refuse("the token has the type %.50q", kind)
	}
	if header.KeyID == "" {
		return access.Person{}, 0, refuse("the token names no key")
	}
	keys, held, err := t.keys.find(ctx, header.KeyID)
	if err != nil {
		return access.Person{}, 0, err
	}
	if len(keys) == 0 {
		return access.Person{}, 0, refuse("the issuer has no key %.100q", header.KeyID)
	}
	verifier := gooidc.NewVerifier(t.URL, keySet{keys, allowed}, &gooidc.Config{SupportedSigningAlgs: t.Algorithms, SkipClientIDCheck: true, Now: now})
	id, err := verifier.Verify(ctx, text)
	if err != nil {
		return access.Person{}, 0, refuse("%v", err)
	}
	var raw json.RawMessage
	if err := id.Claims(&raw); err != nil {
		return access.Person{}, 0, refuse("%v", err)
	}
	person, err := t.checkClaims(id, raw, now())
	return person, held.generation, err
}

// checkClaims checks the claims of a token with a valid signature.
func (t *trusted) checkClaims(id *gooidc.IDToken, raw json.RawMessage, now time.Time) (access.Person, error) {
	var claims Claims
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&claims); err != nil {
		return access.Person{}, refuse("cannot parse the token claims: %v", err)
	}
	if err := canon.Check(raw); err != nil { // above all a claim that is set twice
		return access.Person{}, refuse("cannot parse the token claims: %v", err)
	}
	if err := claims.checkTypes(); err != nil {
		return access.Person{}, err
	}
	begins, err := claims.instant("nbf")
	if err != nil {
		return access.Person{}, err
	}
	issued, err := claims.instant("iat")
	if err != nil {
		return access.Person{}, err
	}
	forUs := func(audience string) bool { return slices.Contains(t.Audiences, audience) }
	switch ahead := now.Add(leeway); {
	case id.Issuer != t.URL:
		return access.Person{}, refuse("the token is of %.200q", id.Issuer)
	case !slices.ContainsFunc(id.Audience, forUs):
		return access.Person{}, refuse("the token is for %.200q", id.Audience)
	case !now.Before(id.Expiry):
		return access.Person{}, refuse("the token has expired at %s", id.Expiry)
	case begins.After(ahead):
		return access.Person{}, refuse("the token is not valid before %s", begins)
	case issued.After(ahead):
		return access.Person{}, refuse("the token was issued in the future, at %s", issued)
	}
	person, named := t.Person(claims)
	if !named {
		return access.Person{}, refuse("the token claim %q, which names people, is missing, not a text, or not verified", t.Subject)
	}
	person.ExpiresAt = id.Expiry
	return person, nil
}

// instant returns a token claim that is a time; zero if it is not set.
func (c Claims) instant(name string) (time.Time, error) {
	if c[name] == nil {
		return time.Time{}, nil
	}
	number, _ := c[name].(json.Number)
	seconds, err := number.Float64()
	if err != nil || math.Abs(seconds) > 1e11 {
		return time.Time{}, refuse("the token claim %s is not a time", name)
	}
	return time.Unix(int64(seconds), 0), nil
}

// identifies reports whether tokens of a type identify a caller. Issuers also sign other tokens.
func identifies(kind string) bool {
	switch strings.ToLower(strings.TrimPrefix(strings.ToLower(kind), "application/")) {
	case "", "jwt", "at+jwt":
		return true
	}
	return false
}

// keySet has the keys of one id, for go-oidc.
type keySet struct {
	keys    []jose.JSONWebKey
	allowed []jose.SignatureAlgorithm
}

// VerifySignature implements gooidc.KeySet. A key that names an algorithm verifies signatures of that
// algorithm only.
func (s keySet) VerifySignature(_ context.Context, text string) ([]byte, error) {
	signed, err := jose.ParseSignedCompact(text, s.allowed)
	if err != nil {
		return nil, err
	}
	err = errors.New("the key is for another algorithm")
	for _, key := range s.keys {
		if key.Algorithm != "" && key.Algorithm != signed.Signatures[0].Protected.Algorithm {
			continue
		}
		var payload []byte
		if payload, err = signed.Verify(&key); err == nil {
			return payload, nil
		}
	}
	return nil, err
}
