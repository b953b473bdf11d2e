// Package certs creates certificates for tests: an authority for one test and certificates that it
// signs, as PEM files. Only the test trusts them.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates.
type Authority struct {
	File string // its own certificate
	Pool *x509.CertPool

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	a := &Authority{File: filepath.Join(t.TempDir(), "ca.pem"), Pool: x509.NewCertPool(), key: key}
	a.cert, err = x509.ParseCertificate(raw)
	require.NoError(t, err)
	a.Pool.AddCert(a.cert)
	write(t, a.File, "CERTIFICATE", raw)
	return a
}

// Pair is a certificate and its key.
type Pair struct{ Cert, Key string }

// Issue makes a certificate for this machine, as a server and as a client, that ends after so
// much time.
func (a *Authority) Issue(t testing.TB, name string, lasts time.Duration) Pair {
	t.Helper()
	dir := t.TempDir()
	p := Pair{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	a.IssueTo(t, p, name, lasts)
	return p
}

// IssueTo is Issue in place of existing files: a renewal.
func (a *Authority) IssueTo(t testing.TB, p Pair, name string, lasts time.Duration) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	end := time.Now().Add(lasts)
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore: end.Add(-48 * time.Hour), NotAfter: end,
	}, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	write(t, p.Cert, "CERTIFICATE", raw)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	write(t, p.Key, "PRIVATE KEY", der)
}

// Shown is the name in the certificate that an address shows now; "" if it
// shows none of this authority.
func (a *Authority) Shown(address string) string {
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: a.Pool, MinVersion: tls.VersionTLS12})
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }() // it was looked at
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	return n
}

func write(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
