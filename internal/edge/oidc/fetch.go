package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"go.arco.dev/servo/internal/base/fault"
)

// How issuers are asked.
const (
	fetchPatience = 5 * time.Second // for one answer
	maxAnswer     = 1 << 20
	maxRedirects  = 3
	maxKeys       = 200
	minRSABits    = 2048
)

// newClient makes what asks an issuer.
func newClient(i Issuer) (*http.Client, error) {
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		base = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	transport := base.Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 1, fetchPatience
	if i.CA != "" {
		pem, err := os.ReadFile(i.CA)
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(pem) {
			return nil, fault.New(fault.InvalidArgument, i.CA+" has no certificate that can be read", fault.Field("ca"),
				fault.Remedy("name a PEM file with the authorities of "+i.URL), fault.Cause(err))
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &http.Client{Timeout: fetchPatience, Transport: limited{transport, maxAnswer}, CheckRedirect: atHome}, nil
}

// atHome follows redirects on one host only: where keys come from is not for anybody to say who
// can make an issuer redirect.
func atHome(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case req.URL.Scheme != first.Scheme || req.URL.Host != first.Host:
		return fmt.Errorf("%s redirects to another host, %s", first.Host, req.URL.Host)
	case len(via) > maxRedirects:
		return fmt.Errorf("%s redirects again and again", first.Host)
	}
	return nil
}

// limited reads no more of an answer than it may have.
type limited struct {
	http.RoundTripper

	most int
}

func (l limited) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := l.RoundTripper.RoundTrip(req)
	if err == nil {
		answer.Body = &limitedBody{ReadCloser: answer.Body, left: l.most}
	}
	return answer, err
}

type limitedBody struct {
	io.ReadCloser

	left int
}

var errTooLarge = errors.New("the answer is too large")

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		if n, err := b.ReadCloser.Read(make([]byte, 1)); n == 0 {
			return 0, err
		}
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// published is what an issuer says of itself.
type published struct {
	keys map[string][]jose.JSONWebKey // by their ids
	document
}

// document is what we read of a discovery document.
type document struct {
	Keys      string   `json:"jwks_uri"`
	Authorize string   `json:"authorization_endpoint"`
	Token     string   `json:"token_endpoint"`
	Methods   []string `json:"token_endpoint_auth_methods_supported"`
	NamesSelf bool     `json:"authorization_response_iss_parameter_supported"`
}

// fetch asks an issuer for its keys, by its discovery document, which must be its own.
func fetch(ctx context.Context, client *http.Client, issuer string) (found published, err error) {
	provider, err := gooidc.NewProvider(gooidc.ClientContext(ctx, client), issuer)
	if err == nil {
		err = provider.Claims(&found.document)
	}
	if err != nil {
		return published{}, fmt.Errorf("discovery: %w", err)
	}
	found.keys, err = fetchKeys(ctx, client, found.document, issuer)
	return found, err
}

func fetchKeys(ctx context.Context, client *http.Client, document document, issuer string) (map[string][]jose.JSONWebKey, error) {
	// An issuer on this machine may have keys on this machine; all others have encrypted ones.
	if reason := refusedEndpoint(document.Keys, issuer); reason != "" {
		return nil, fmt.Errorf("discovery: jwks_uri: %s", reason)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, document.Keys, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	answer, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("keys: %s answers %s", document.Keys, answer.Status)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&set); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	if set.Keys == nil || len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("keys: %s answers with no list, or with %d keys", document.Keys, len(set.Keys))
	}
	return usable(set.Keys), nil
}

// Probe asks an issuer for its keys, and says how many can be used. If people log in with it, it
// looks at what that needs, too.
func Probe(ctx context.Context, issuer Issuer) (int, error) {
	client, err := newClient(issuer)
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	found, err := fetch(ctx, client, issuer.URL)
	if err == nil && issuer.Login != nil {
		if _, err = issuer.Login.secret(); err == nil {
			err = found.canLogIn(issuer.URL)
		}
	}
	return len(found.keys), err
}

// usable are the keys that can be believed, by their ids: public ones, of asymmetric signatures.
// Others are none of our business.
func usable(raw []json.RawMessage) map[string][]jose.JSONWebKey {
	found := map[string][]jose.JSONWebKey{}
	for _, text := range raw {
		var key jose.JSONWebKey
		if json.Unmarshal(text, &key) != nil || key.KeyID == "" || key.Use != "" && key.Use != "sig" || !key.Valid() {
			continue
		}
		switch public := key.Key.(type) {
		case *rsa.PublicKey:
			if public.N.BitLen() < minRSABits {
				continue
			}
		case *ecdsa.PublicKey, ed25519.PublicKey:
		default:
			continue // private and symmetric ones: they are public now, and prove nothing
		}
		found[key.KeyID] = append(found[key.KeyID], key)
	}
	return found
}
