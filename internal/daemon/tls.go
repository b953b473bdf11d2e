package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/loop"
)

// tlsEvery is how often the files are looked at. A certificate that is renewed weeks before its
// end is served soon enough.
const tlsEvery = time.Minute

// TLS names the files that both listeners are encrypted with; without a certificate they speak
// plain text.
type TLS struct {
	Cert     string        // PEM: the server's certificate, then those that lead to its authority
	Key      string        // PEM: the certificate's private key
	ClientCA string        // PEM: authorities of client certificates; "" requires none
	Every    time.Duration // how often the files are looked at; 0 is a minute
}

// On reports whether the listeners are encrypted.
func (t TLS) On() bool { return t.Cert != "" }

// Scheme is how URLs of the server begin.
func (d *Daemon) Scheme() string {
	if d.config.TLS.On() {
		return "https://"
	}
	return "http://"
}

// certificates are the files as they are now. A file that is replaced is served from then on,
// without a restart; one that cannot be used leaves what was there.
type certificates struct {
	files TLS
	log   *slog.Logger
	loop  *loop.Loop

	mu      sync.Mutex // only one reads the files
	trouble string     // with the current files; logged once
	current atomic.Pointer[loaded]
}

// loaded is the content of the files.
type loaded struct {
	sum    [sha256.Size]byte
	config *tls.Config
	until  time.Time // the certificate ends
}

// startTLS reads the files and checks them for changes. Nil is plain text.
func startTLS(files TLS, log *slog.Logger) (*certificates, error) {
	for _, f := range []struct{ flag, value, other, otherValue string }{
		{"--tls-key", files.Key, "--tls-cert", files.Cert},
		{"--tls-cert", files.Cert, "--tls-key", files.Key},
		{"--tls-client-ca", files.ClientCA, "--tls-cert", files.Cert},
	} {
		if f.value != "" && f.otherValue == "" {
			return nil, fault.New(fault.InvalidArgument, "is missing", fault.Field(f.other), fault.Remedy("give it with "+f.flag+", or leave that out"))
		}
	}
	if !files.On() {
		return nil, nil //nolint:nilnil // plain text is no mistake
	}
	if files.Every == 0 {
		files.Every = tlsEvery
	}
	c := &certificates{files: files, log: log}
	first, err := files.read()
	if err != nil {
		return nil, err
	}
	c.current.Store(first)
	c.warnAbout(first)
	c.loop = loop.Start(loop.Config{Name: "tls", Every: files.Every, Logger: log, RunOnce: func(context.Context) (bool, error) {
		_ = c.reload() // it logs its error once
		return false, nil
	}})
	return c, nil
}

func (c *certificates) stop() {
	if c != nil {
		c.loop.Stop()
	}
}

// reload reads the files again, and serves them if they can be used.
func (c *certificates) reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, err := c.files.read()
	if err != nil {
		if c.trouble != err.Error() {
			c.log.Error("the TLS files cannot be used; the previous ones stay in use", slog.Any("error", err))
		}
		c.trouble = err.Error()
		return err
	}
	c.trouble = ""
	if next.sum != c.current.Load().sum {
		c.current.Store(next)
		c.log.Info("serving new TLS files", slog.String("certificate", c.files.Cert), slog.Time("until", next.until))
		c.warnAbout(next)
	}
	return nil
}

// warnAbout warns about a certificate that clients will refuse. The server starts with it, because
// its loops do not need TLS.
func (c *certificates) warnAbout(l *loaded) {
	if time.Now().After(l.until) {
		c.log.Warn("the certificate has expired: clients will refuse it", slog.String("certificate", c.files.Cert), slog.Time("until", l.until))
	}
}

// config is for a listener: each connection gets what the files hold then.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load().config, nil },
	}
}

// read reads the files, and names the flag of the one that is wrong.
func (t TLS) read() (*loaded, error) {
	var contents [3][]byte
	sum := sha256.New()
	for i, f := range []struct{ flag, path string }{{"--tls-cert", t.Cert}, {"--tls-key", t.Key}, {"--tls-client-ca", t.ClientCA}} {
		if f.path == "" {
			continue
		}
		data, err := os.ReadFile(f.path)
		if err != nil {
			return nil, fault.New(fault.InvalidArgument, oneLine(err), fault.Field(f.flag), fault.Remedy("name a PEM file that the server may read"), fault.Cause(err))
		}
		fmt.Fprintf(sum, "%d:", len(data))
		_, _ = sum.Write(data) // a hash takes everything
		contents[i] = data
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, refusePair(contents[0], t, err)
	}
	config.Certificates = []tls.Certificate{pair}
	if t.ClientCA != "" {
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
		if !config.ClientCAs.AppendCertsFromPEM(contents[2]) {
			return nil, fault.New(fault.InvalidArgument, t.ClientCA+" has no certificate", fault.Field("--tls-client-ca"), fault.Remedy("give certificates of authorities as PEM"))
		}
	}
	l := &loaded{config: config, until: pair.Leaf.NotAfter}
	sum.Sum(l.sum[:0])
	return l, nil
}

// refusePair returns a fault that names the invalid file. It never contains parts of the key.
func refusePair(cert []byte, t TLS, cause error) error {
	if !x509.NewCertPool().AppendCertsFromPEM(cert) {
		return fault.New(fault.InvalidArgument, t.Cert+" has no certificate", fault.Field("--tls-cert"), fault.Remedy("give the server's certificate as PEM"), fault.Cause(cause))
	}
	return fault.New(fault.InvalidArgument, t.Key+" is not the private key of "+t.Cert, fault.Field("--tls-key"),
		fault.Remedy("give the key that the certificate was made with, as PEM without a password"), fault.Cause(cause))
}

// errPlain is the error of reloading TLS files when none are set.
var errPlain = errors.New("the server speaks plain text")

// ReloadTLS reads the TLS files now. If they cannot be used, it returns the reason, and the previous
// ones stay in use.
func (d *Daemon) ReloadTLS() error {
	if d.tls == nil {
		return errPlain
	}
	return d.tls.reload()
}

// encrypted is what gRPC needs to know of it.
func (d *Daemon) encrypted() []grpc.ServerOption {
	if d.tls == nil {
		return nil
	}
	options := []grpc.ServerOption{grpc.Creds(credentials.NewTLS(d.tls.config()))}
	if d.config.TLS.ClientCA != "" {
		options = append(options, grpc.ChainUnaryInterceptor(d.certifiedCalls)) // no call of workers is a stream
	}
	return options
}
