package oidc_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest/issuer"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/oidc"
)

// clock is a clock that only tests move.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func trusting(of ...*issuer.Issuer) oidc.Settings {
	var s oidc.Settings
	for _, i := range of {
		s.Issuers = append(s.Issuers, oidc.Issuer{
			URL: i.URL, Audiences: []string{"other", issuer.Audience}, Algorithms: []string{"RS256", "ES256"}, Subject: "sub", CA: i.CA,
			Rules: []oidc.Rule{{Claim: "groups", Value: "ops", Grant: access.Grant{Role: access.Operator, Tenant: "acme"}}},
		})
	}
	return s
}

func verifier(t testing.TB, of ...*issuer.Issuer) (*oidc.Verifier, *clock) {
	t.Helper()
	c := &clock{at: time.Now()}
	v, err := oidc.NewVerifier(trusting(of...), oidc.Options{Now: c.now})
	require.NoError(t, err)
	t.Cleanup(v.Stop)
	return v, c
}

func accepted(t testing.TB, v *oidc.Verifier, text string) access.Person {
	t.Helper()
	token, reason, err := v.Verify(t.Context(), text)
	require.NoError(t, err)
	require.Empty(t, reason)
	return token
}

func refused(t testing.TB, v *oidc.Verifier, text, why string) {
	t.Helper()
	token, reason, err := v.Verify(t.Context(), text)
	require.NoError(t, err)
	require.NotEmpty(t, reason)
	require.Regexp(t, why, reason)
	require.Empty(t, token)
}

func unreachable(t testing.TB, v *oidc.Verifier, text string) {
	t.Helper()
	_, reason, err := v.Verify(t.Context(), text)
	require.Empty(t, reason)
	f, ok := fault.As(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, fault.Unavailable, f.Code)
	require.Positive(t, f.RetryAfter)
}

func TestVerify(t *testing.T) {
	t.Parallel()

	t.Run("a valid token has its subject, its grants, and its expiry", func(t *testing.T) {
		t.Parallel()
		i := issuer.New(t)
		v, _ := verifier(t, i)
		ends := time.Now().Add(time.Hour).Truncate(time.Second)
		token := accepted(t, v, i.Token(t, map[string]any{"groups": []string{"ops"}, "exp": ends.Unix()}))
		require.True(t, ends.Equal(token.ExpiresAt))
		token.ExpiresAt = time.Time{}
		require.Equal(t, access.Person{Actor: "oidc/jo", Grants: []access.Grant{{Role: access.Operator, Tenant: "acme"}}}, token)
	})

	t.Run("a key of RSA is as good as one on a curve", func(t *testing.T) {
		t.Parallel()
		i := issuer.New(t)
		v, c := verifier(t, i)
		accepted(t, v, i.Token(t, nil))
		c.pass(time.Minute)
		require.Equal(t, jose.RS256, i.RotateRSA(t).Alg)
		accepted(t, v, i.Token(t, nil))
	})

	t.Run("several audiences and access tokens are as good", func(t *testing.T) {
		t.Parallel()
		i := issuer.New(t)
		key := i.Key()
		v, _ := verifier(t, i)
		accepted(t, v, i.Token(t, map[string]any{"aud": []string{"others", issuer.Audience}}))
		accepted(t, v, issuer.Sign(t, key.Alg, key.Private, map[jose.HeaderKey]any{"kid": key.ID, "typ": "at+JWT"}, i.Claims(nil)))
		accepted(t, v, issuer.Sign(t, key.Alg, key.Private, map[jose.HeaderKey]any{"kid": key.ID}, i.Claims(nil)))
	})

	t.Run("an issuer with an authority of its own is reached over TLS", func(t *testing.T) {
		t.Parallel()
		i := issuer.NewTLS(t)
		v, _ := verifier(t, i)
		accepted(t, v, i.Token(t, nil))
		settings := trusting(i)
		settings.Issuers[0].CA = ""
		second, err := oidc.NewVerifier(settings, oidc.Options{})
		require.NoError(t, err)
		unreachable(t, second, i.Token(t, nil))
		settings.Issuers[0].CA = "nowhere.pem"
		_, err = oidc.NewVerifier(settings, oidc.Options{})
		f, ok := fault.As(err)
		require.True(t, ok)
		require.Equal(t, "issuers[0].ca", f.Violation.Field)
	})

	t.Run("a token is verified once, and not accepted after its expiry", func(t *testing.T) {
		t.Parallel()
		i := issuer.New(t)
		v, c := verifier(t, i)
		text := i.Token(t, nil)
		accepted(t, v, text)
		accepted(t, v, text)
		require.Equal(t, 1, v.Known())
		c.pass(time.Hour + time.Second)
		refused(t, v, text, "expired")
	})
}

func TestRefused(t *testing.T) {
	t.Parallel()
	i, other := issuer.New(t), issuer.New(t)
	key := i.RotateRSA(t)
	public, err := x509.MarshalPKIXPublicKey(key.Private.Public())
	require.NoError(t, err)
	rsaKey, ok := key.Private.Public().(*rsa.PublicKey)
	require.True(t, ok)
	strange, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	named := map[jose.HeaderKey]any{"kid": key.ID, "typ": "JWT"}
	claims := i.Claims(map[string]any{"groups": []string{"ops"}})
	from := func(changes map[string]any) string { return i.Token(t, changes) }
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	raw := func(format string) string {
		return signRaw(t, key, `{"alg":"RS256","kid":"`+key.ID+`"}`, strings.ReplaceAll(fmt.Sprintf(format, i.URL), `"servo"`, fmt.Sprintf("%q", issuer.Audience)))
	}
	good := from(nil)
	parts := strings.Split(good, ".")

	for name, c := range map[string]struct{ text, why string }{
		"for another audience":          {from(map[string]any{"aud": "elsewhere"}), "is for"},
		"without an audience":           {from(map[string]any{"aud": nil}), "is for"},
		"for part of our name":          {from(map[string]any{"aud": "serv"}), "is for"},
		"expired":                       {from(map[string]any{"exp": at(-time.Second)}), "expired"},
		"without an end":                {from(map[string]any{"exp": nil}), "expired"},
		"not valid yet":                 {from(map[string]any{"nbf": at(2 * time.Minute)}), "not valid before"},
		"issued in the future":          {from(map[string]any{"iat": at(2 * time.Minute)}), "issued in the future"},
		"issued at no time":             {from(map[string]any{"iat": "today"}), "."},
		"without a subject":             {from(map[string]any{"sub": nil}), "names people"},
		"not signed":                    {issuer.Unsigned(t, map[string]any{"alg": "none", "kid": key.ID}, claims), "cannot parse"},
		"not signed, in capitals":       {issuer.Unsigned(t, map[string]any{"alg": "NONE", "kid": key.ID}, claims), "cannot parse"},
		"not signed, but claims it":     {issuer.Unsigned(t, map[string]any{"alg": "RS256", "kid": key.ID}, claims), "."},
		"a MAC with our key as PEM":     {issuer.Sign(t, jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), named, claims), "cannot parse"},
		"a MAC with our key as DER":     {issuer.Sign(t, jose.HS256, public, named, claims), "cannot parse"},
		"a MAC with our key as PKCS #1": {issuer.Sign(t, jose.HS256, x509.MarshalPKCS1PublicKey(rsaKey), named, claims), "cannot parse"},
		"a MAC with our modulus":        {issuer.Sign(t, jose.HS512, rsaKey.N.Bytes(), named, claims), "cannot parse"},
		"by an algorithm not allowed":   {issuer.Sign(t, jose.EdDSA, edwards, named, claims), "cannot parse"},
		"by another way with our key":   {issuer.Sign(t, jose.PS256, key.Private, named, claims), "cannot parse"},
		"by a key of another kind":      {issuer.Sign(t, jose.ES256, curve, named, claims), "another algorithm"},
		"by another key with our kid":   {issuer.Sign(t, jose.RS256, strange, named, claims), "verify signature"},
		"by another key, sent along":    {issuer.Sign(t, jose.RS256, strange, map[jose.HeaderKey]any{"kid": key.ID, "jwk": jose.JSONWebKey{Key: strange.Public(), KeyID: key.ID}}, claims), "verify signature"},
		"by another key at a URL":       {issuer.Sign(t, jose.RS256, strange, map[jose.HeaderKey]any{"kid": key.ID, "jku": other.URL + "/keys"}, claims), "verify signature"},
		"with an unknown kid":           {issuer.Sign(t, jose.RS256, key.Private, map[jose.HeaderKey]any{"kid": "who"}, claims), "no key"},
		"with a kid like a path":        {issuer.Sign(t, jose.RS256, key.Private, map[jose.HeaderKey]any{"kid": "../../dev/null"}, claims), "no key"},
		"without a kid":                 {issuer.Sign(t, jose.RS256, key.Private, nil, claims), "names no key"},
		"something else that is signed": {issuer.Sign(t, jose.RS256, key.Private, map[jose.HeaderKey]any{"kid": key.ID, "typ": "logout+jwt"}, claims), "type"},
		"with what must be understood":  {issuer.Sign(t, jose.RS256, key.Private, map[jose.HeaderKey]any{"kid": key.ID, "crit": []string{"x"}, "x": 1}, claims), "."},
		"of an issuer not trusted":      {other.Token(t, nil), "no trusted issuer"},
		"of an issuer with a slash":     {from(map[string]any{"iss": i.URL + "/"}), "no trusted issuer"},
		"of an issuer, in another's":    {other.Token(t, map[string]any{"iss": i.URL}), "verify signature"},
		"with a payload that is new":    {parts[0] + "." + strings.Split(from(map[string]any{"sub": "boss"}), ".")[1] + "." + parts[2], "verify signature"},
		"without its signature":         {parts[0] + "." + parts[1] + ".", "."},
		"with an end that is text":      {raw(`{"iss":%q,"sub":"jo","aud":"servo","exp":"9999999999"}`), "exp has a wrong type"},
		"with an end that is null":      {raw(`{"iss":%q,"sub":"jo","aud":"servo","exp":null}`), "."},
		"with a beginning that is text": {raw(`{"iss":%q,"sub":"jo","aud":"servo","exp":9999999999,"nbf":"1"}`), "nbf"},
		"with a beginning that is null": {raw(`{"iss":%q,"sub":"jo","aud":"servo","exp":9999999999,"nbf":null}`), "nbf"},
		"issued at a text":              {raw(`{"iss":%q,"sub":"jo","aud":"servo","exp":9999999999,"iat":"1"}`), "."},
		"issued at true":                {raw(`{"iss":%q,"sub":"jo","aud":"servo","exp":9999999999,"iat":true}`), "."},
		"for an object":                 {raw(`{"iss":%q,"sub":"jo","aud":{"servo":1},"exp":9999999999}`), "."},
		"for a list with a number":      {raw(`{"iss":%q,"sub":"jo","aud":["servo",1],"exp":9999999999}`), "."},
		"of a number":                   {raw(`{"iss":%q,"sub":1,"aud":"servo","exp":9999999999}`), "."},
		"verified by a text":            {raw(`{"iss":%q,"sub":"jo","aud":"servo","exp":9999999999,"email":"a@b.c","email_verified":"true"}`), "email_verified has a wrong type"},
		"verified by a number":          {raw(`{"iss":%q,"sub":"jo","aud":"servo","exp":9999999999,"email_verified":1}`), "email_verified has a wrong type"},
		"with a claim twice":            {raw(`{"iss":%q,"sub":"boss","sub":"jo","aud":"servo","exp":9999999999}`), "sub"},
		"with an inner claim twice":     {raw(`{"iss":%q,"sub":"jo","aud":"servo","exp":9999999999,"r":{"a":1,"a":2}}`), "duplicate key"},
		"with an end in capitals":       {raw(`{"iss":%q,"sub":"jo","aud":"servo","exp":1,"EXP":9999999999}`), "."},
		"with a group in two spellings": {raw(`{"iss":%q,"sub":"jo","aud":"servo","exp":9999999999,"groups":[],"Groups":["ops"]}`), "differ in case"},
		"with a header twice":           {signRaw(t, key, `{"alg":"RS256","kid":"x","kid":"`+key.ID+`"}`, fmt.Sprintf(`{"iss":%q,"sub":"jo","aud":"servo","exp":9999999999}`, i.URL)), "duplicate key"},
		"huge":                          {from(map[string]any{"groups": strings.Repeat("x", 16<<10)}), "too long"},
		"no token":                      {"a.b.c", "no trusted issuer"},
		"dots":                          {"..", "no trusted issuer"},
		"five parts":                    {good + ".x.y", "no trusted issuer"},
		"with line ends":                {parts[0] + "." + parts[1] + ".\n" + parts[2], "."},
	} {
		t.Run("a token is refused: "+name, func(t *testing.T) {
			t.Parallel()
			v, _ := verifier(t, i)
			accepted(t, v, good)
			refused(t, v, c.text, c.why)
			require.Equal(t, 1, v.Known())
			accepted(t, v, good)
		})
	}
}

// signRaw signs a token as it is written: libraries would not write such ones.
func signRaw(t testing.TB, key *issuer.Key, header, payload string) string {
	t.Helper()
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
	sum := sha256.Sum256([]byte(text))
	signature, err := key.Private.Sign(rand.Reader, sum[:], crypto.SHA256)
	require.NoError(t, err)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func TestIsToken(t *testing.T) {
	t.Parallel()
	require.True(t, oidc.IsToken("a.b.c"))
	require.True(t, oidc.IsToken("a.b."))
	require.False(t, oidc.IsToken("a.b"))
	require.False(t, oidc.IsToken("sk_0123456789abcdef_AAAA"))
}

func TestKeys(t *testing.T) {
	t.Parallel()

	signed := func(t testing.TB, i *issuer.Issuer, kid string) string {
		t.Helper()
		return issuer.Sign(t, i.Key().Alg, i.Key().Private, map[jose.HeaderKey]any{"kid": kid}, i.Claims(nil))
	}

	t.Run("a thousand invented kids make one question to the issuer, and one more after ten seconds", func(t *testing.T) {
		t.Parallel()
		i := issuer.New(t)
		v, c := verifier(t, i)
		v.Tick(t.Context())
		require.EqualValues(t, 1, i.Fetches.Load())
		for range 1000 {
			refused(t, v, signed(t, i, uuid.NewString()), "no key")
		}
		require.EqualValues(t, 2, i.Fetches.Load())
		require.EqualValues(t, 2, i.Documents.Load())
		c.pass(11 * time.Second)
		for range 10 {
			refused(t, v, signed(t, i, uuid.NewString()), "no key")
		}
		require.EqualValues(t, 3, i.Fetches.Load())
	})

	t.Run("fifty first tokens of a new key at once are all accepted, with one request for keys", func(t *testing.T) {
		t.Parallel()
		i := issuer.New(t)
		v, _ := verifier(t, i)
		v.Tick(t.Context())
		i.Rotate(t)
		var all sync.WaitGroup
		reasons := make([]string, 50)
		for n := range reasons {
			text := i.Token(t, map[string]any{"sub": fmt.Sprint(n)})
			all.Go(func() {
				_, reason, err := v.Verify(t.Context(), text)
				reasons[n] = fmt.Sprint(reason, err)
			})
		}
		all.Wait()
		for _, reason := range reasons {
			require.Equal(t, fmt.Sprint("", error(nil)), reason)
		}
		require.EqualValues(t, 2, i.Fetches.Load())
	})

	t.Run("a new key is accepted at once, and a withdrawn one until the next refresh", func(t *testing.T) {
		t.Parallel()
		i := issuer.New(t)
		v, c := verifier(t, i)
		old := i.Token(t, nil)
		accepted(t, v, old)
		c.pass(time.Minute)
		i.Rotate(t)
		accepted(t, v, i.Token(t, nil))
		accepted(t, v, old)
		i.Withdraw()
		c.pass(5 * time.Minute)
		v.Tick(t.Context())
		refused(t, v, old, "no key")
		accepted(t, v, i.Token(t, nil))
	})

	t.Run("an issuer that is down is done without for a day", func(t *testing.T) {
		t.Parallel()
		i := issuer.New(t)
		v, c := verifier(t, i)
		long := i.Token(t, map[string]any{"exp": time.Now().Add(72 * time.Hour).Unix()})
		accepted(t, v, long)
		i.Down(true)
		for range 23 {
			c.pass(time.Hour)
			v.Tick(t.Context())
		}
		accepted(t, v, long)
		accepted(t, v, i.Token(t, map[string]any{"exp": time.Now().Add(72 * time.Hour).Unix(), "sub": "al"}))
		unreachable(t, v, signed(t, i, "new")) // it may be a new one
		c.pass(2 * time.Hour)
		unreachable(t, v, long)
		i.Down(false)
		c.pass(time.Minute)
		accepted(t, v, long)
	})

	t.Run("an issuer that was never reached is tried again, later and later", func(t *testing.T) {
		t.Parallel()
		i := issuer.New(t)
		i.Down(true)
		v, c := verifier(t, i)
		unreachable(t, v, i.Token(t, nil))
		asked := i.Documents.Load()
		unreachable(t, v, i.Token(t, nil))
		require.Equal(t, asked, i.Documents.Load(), "not again within ten seconds")
		v.Tick(t.Context())
		for range 3600 {
			c.pass(time.Second)
			v.Tick(t.Context())
		}
		require.Less(t, i.Documents.Load()-asked, int64(70))
		i.Down(false)
		c.pass(time.Minute)
		v.Tick(t.Context())
		accepted(t, v, i.Token(t, map[string]any{"exp": c.now().Add(time.Hour).Unix()}))
	})

	t.Run("a caller that does not wait is released", func(t *testing.T) {
		t.Parallel()
		i := issuer.New(t)
		v, _ := verifier(t, i)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := v.Verify(ctx, i.Token(t, nil))
		require.ErrorIs(t, err, context.Canceled)
	})

	for name, lie := range map[string]func(i, other *issuer.Issuer){
		"its document is another's": func(i, other *issuer.Issuer) {
			i.Discover(func(d map[string]any) { d["issuer"] = other.URL })
		},
		"its document has a slash more": func(i, _ *issuer.Issuer) {
			i.Discover(func(d map[string]any) { d["issuer"] = i.URL + "/" })
		},
		"its keys are no URL": func(i, _ *issuer.Issuer) { i.Discover(func(d map[string]any) { d["jwks_uri"] = "file:///etc/passwd" }) },
		"its keys are at a network": func(i, _ *issuer.Issuer) {
			i.Discover(func(d map[string]any) { d["jwks_uri"] = "http://192.0.2.1/keys" })
		},
		"it has no keys": func(i, _ *issuer.Issuer) { i.Discover(func(d map[string]any) { delete(d, "jwks_uri") }) },
		"it sends us elsewhere": func(i, other *issuer.Issuer) {
			i.Publish(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL+"/keys", http.StatusFound) })
		},
		"it sends us round and round": func(i, _ *issuer.Issuer) {
			i.Publish(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", http.StatusFound) })
		},
		"it never ends": func(i, _ *issuer.Issuer) {
			i.Publish(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"keys": [`))
				for range 3 << 10 {
					_, _ = w.Write([]byte(strings.Repeat(" ", 1<<10)))
				}
				_, _ = w.Write([]byte(`]}`))
			})
		},
		"it talks nonsense": func(i, _ *issuer.Issuer) {
			i.Publish(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`<html>`)) })
		},
		"it has a list of nothing": func(i, _ *issuer.Issuer) {
			i.Publish(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) })
		},
	} {
		t.Run("keys are not taken: "+name, func(t *testing.T) {
			t.Parallel()
			i, other := issuer.New(t), issuer.New(t)
			lie(i, other)
			v, _ := verifier(t, i)
			unreachable(t, v, i.Token(t, nil))
			require.Zero(t, other.Fetches.Load())
		})
	}

	t.Run("keys that prove nothing are left out, and the others taken", func(t *testing.T) {
		t.Parallel()
		i := issuer.New(t)
		weak, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // that is what is refused
		require.NoError(t, err)
		strong, err := rsa.GenerateKey(rand.Reader, 2048)
		require.NoError(t, err)
		key := func(k jose.JSONWebKey) string {
			raw, err := k.MarshalJSON()
			require.NoError(t, err)
			return string(raw)
		}
		mine := i.Key()
		published := strings.Join([]string{
			key(jose.JSONWebKey{Key: &weak.PublicKey, KeyID: "weak"}), key(jose.JSONWebKey{Key: strong, KeyID: "private"}),
			key(jose.JSONWebKey{Key: []byte("secret"), KeyID: "symmetric"}), key(jose.JSONWebKey{Key: &strong.PublicKey, KeyID: "encryption", Use: "enc"}),
			key(jose.JSONWebKey{Key: &strong.PublicKey, KeyID: "other", Algorithm: "RS512"}), `{"kty": "XYZ", "kid": "x"}`, `7`,
			key(jose.JSONWebKey{Key: mine.Private.Public(), KeyID: mine.ID}),
		}, ",")
		i.Publish(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys": [` + published + `]}`)) })
		v, _ := verifier(t, i)
		accepted(t, v, i.Token(t, nil))
		for kid, by := range map[string]*rsa.PrivateKey{"private": strong, "encryption": strong, "other": strong} {
			refused(t, v, issuer.Sign(t, jose.RS256, by, map[jose.HeaderKey]any{"kid": kid}, i.Claims(nil)), ".")
		}
		refused(t, v, signed(t, i, "weak"), "no key")
	})

	t.Run("two issuers are not interchangeable", func(t *testing.T) {
		t.Parallel()
		one, other := issuer.New(t), issuer.New(t)
		v, _ := verifier(t, one, other)
		accepted(t, v, one.Token(t, nil))
		accepted(t, v, other.Token(t, nil))
		refused(t, v, one.Token(t, map[string]any{"iss": other.URL}), "verify signature")
		refused(t, v, other.Token(t, map[string]any{"iss": one.URL}), "verify signature")
	})

	t.Run("what was started can be stopped", func(t *testing.T) {
		t.Parallel()
		i := issuer.New(t)
		v, err := oidc.NewVerifier(trusting(i), oidc.Options{})
		require.NoError(t, err)
		v.Start(nil)
		accepted(t, v, i.Token(t, nil))
		v.Stop()
		(*oidc.Verifier)(nil).Stop()
	})
}

func BenchmarkVerify(b *testing.B) {
	i := issuer.New(b)
	v, _ := verifier(b, i)
	text := i.Token(b, map[string]any{"groups": []string{"ops"}})
	accepted(b, v, text)
	b.Run("known", func(b *testing.B) {
		for b.Loop() {
			_, _, _ = v.Verify(b.Context(), text)
		}
	})
}
