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

// Limits of requests to issuers.
const (
	fetchPatience = 5 * time.Second // per request
	maxAnswer     = 1 << 20
	maxRedirects  = 3
	maxKeys       = 200
	minRSABits    = 2048
)

// newClient creates the HTTP client for an issuer.
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
			return nil, fault.New(fault.InvalidArgument, i.CA+" contains no readable certificate", fault.Field("ca"),
				fault.Remedy("set the PEM file with the certificate authorities of "+i.URL), fault.Cause(err))
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &http.Client{Timeout: fetchPatience, Transport: limited{transport, maxAnswer}, CheckRedirect: sameHostRedirects}, nil
}

// sameHostRedirects permits redirects within one host only: an open redirect of an issuer must not
// decide where keys come from.
func sameHostRedirects(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case req.URL.Scheme != first.Scheme || req.URL.Host != first.Host:
		return fmt.Errorf("%s redirects to another host, %s", first.Host, req.URL.Host)
	case len(via) > maxRedirects:
		return fmt.Errorf("%s redirects too often", first.Host)
	}
	return nil
}

// limited bounds the size of answers.
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

// published is the discovery document of an issuer with its keys.
type published struct {
	keys map[string][]jose.JSONWebKey // by id
	document
}

// document has the used fields of a discovery document.
type document struct {
	Keys      string   `json:"jwks_uri"`
	Authorize string   `json:"authorization_endpoint"`
	Token     string   `json:"token_endpoint"`
	Methods   []string `json:"token_endpoint_auth_methods_supported"`
	NamesSelf bool     `json:"authorization_response_iss_parameter_supported"`
}

// fetch requests the discovery document of an issuer and its keys.
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
	// Plain HTTP is permitted between an issuer and keys on this machine only.
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
	defer func() { _ = answer.Body.Close() }() // the body was only read
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("keys: %s returned %s", document.Keys, answer.Status)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&set); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	if set.Keys == nil || len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("keys: %s returned no list, or %d keys", document.Keys, len(set.Keys))
	}
	return usable(set.Keys), nil
}

// Probe requests the keys of an issuer and returns how many are usable. For an issuer with logins it
// also checks the endpoints and the secret.
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

// usable returns the public keys of asymmetric signatures by id, and drops all others.
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
			continue // a published private or symmetric key proves nothing
		}
		found[key.KeyID] = append(found[key.KeyID], key)
	}
	return found
}
