// Package issuer is an OpenID Connect issuer for tests: a server on loopback with keys of its
// own, that publishes and signs what the test sets, also invalid content. People can log in there.
// Only the test trusts it.
package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/certs"
)

// Audience is the default audience of tokens.
const Audience = "servo"

// Issuer is one issuer.
type Issuer struct {
	URL string
	CA  string // the file of the authority that vouches for it, if it speaks TLS

	Documents atomic.Int64 // how often its discovery document was asked for
	Fetches   atomic.Int64 // how often its keys were asked for

	mu        sync.Mutex
	keys      []*Key
	made      int
	down      bool
	document  func(document map[string]any) // changes it
	published http.HandlerFunc              // instead of the keys

	logins provider
}

// Key is one of the issuer's.
type Key struct {
	ID      string
	Private crypto.Signer
	Alg     jose.SignatureAlgorithm
}

// New starts an issuer with one key, over plain text.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{}
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	i.URL = server.URL
	i.Rotate(t)
	return i
}

// NewTLS is New over TLS, with an authority of its own.
func NewTLS(t testing.TB) *Issuer {
	t.Helper()
	authority := certs.New(t)
	pair := authority.Issue(t, "issuer", time.Hour)
	loaded, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	require.NoError(t, err)
	i := &Issuer{CA: authority.File}
	server := httptest.NewUnstartedServer(i)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{loaded}}
	server.StartTLS()
	t.Cleanup(server.Close)
	i.URL = server.URL
	i.Rotate(t)
	return i
}

// Rotate makes a new key on P-256, which signs from now on. The old ones stay published.
func (i *Issuer) Rotate(t testing.TB) *Key {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return i.add(private, jose.ES256)
}

// RotateRSA is Rotate with an RSA key, which takes longer to make.
func (i *Issuer) RotateRSA(t testing.TB) *Key {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return i.add(private, jose.RS256)
}

func (i *Issuer) add(private crypto.Signer, alg jose.SignatureAlgorithm) *Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.made++
	key := &Key{ID: fmt.Sprintf("key-%d", i.made), Private: private, Alg: alg}
	i.keys = append(i.keys, key)
	return key
}

// Key is the one that signs.
func (i *Issuer) Key() *Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[len(i.keys)-1]
}

// Withdraw takes all keys back but the one that signs.
func (i *Issuer) Withdraw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = i.keys[len(i.keys)-1:]
}

// Down stops or resumes its answers.
func (i *Issuer) Down(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Discover changes the discovery document.
func (i *Issuer) Discover(change func(document map[string]any)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.document = change
}

// Publish sets the answer to requests for the keys.
func (i *Issuer) Publish(answer http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.published = answer
}

// Claims are those of a token that is right, with changes; nil takes one out.
func (i *Issuer) Claims(changes map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{"iss": i.URL, "aud": Audience, "sub": "jo", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	for name, value := range changes {
		if value == nil {
			delete(claims, name)
		} else {
			claims[name] = value
		}
	}
	return claims
}

// Token signs a token that is right but for these changes of its claims.
func (i *Issuer) Token(t testing.TB, changes map[string]any) string {
	t.Helper()
	text, err := i.signed(changes)
	require.NoError(t, err)
	return text
}

func (i *Issuer) signed(changes map[string]any) (string, error) {
	key := i.Key()
	return sign(key.Alg, key.Private, map[jose.HeaderKey]any{"kid": key.ID, "typ": "JWT"}, i.Claims(changes))
}

// Sign signs claims with any key.
func Sign(t testing.TB, alg jose.SignatureAlgorithm, key any, header map[jose.HeaderKey]any, claims map[string]any) string {
	t.Helper()
	text, err := sign(alg, key, header, claims)
	require.NoError(t, err)
	return text
}

func sign(alg jose.SignatureAlgorithm, key any, header map[jose.HeaderKey]any, claims map[string]any) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, &jose.SignerOptions{ExtraHeaders: header})
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// Unsigned returns a token without a signature, with this header.
func Unsigned(t testing.TB, header, claims map[string]any) string {
	t.Helper()
	part := func(members map[string]any) string {
		raw, err := json.Marshal(members)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	return part(header) + "." + part(claims) + "."
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	down, change, published := i.down, i.document, i.published
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, key := range i.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Private.Public(), KeyID: key.ID, Algorithm: string(key.Alg), Use: "sig"})
	}
	i.mu.Unlock()
	var answer any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		i.Documents.Add(1)
		document := map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
			"authorization_response_iss_parameter_supported": true,
		}
		if change != nil {
			change(document)
		}
		answer = document
	case "/keys":
		i.Fetches.Add(1)
		answer = set
		if published != nil && !down {
			published(w, r)
			return
		}
	case "/authorize", "/token":
		if !down {
			i.login(w, r)
			return
		}
	default:
		http.NotFound(w, r)
		return
	}
	if down {
		http.Error(w, "down", http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // who asked has gone
}
