package netguard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"go.arco.dev/servo/internal/fault"
)

// Options say how calls are made. Zero fields have the defaults that stand beside them.
type Options struct {
	AllowPrivate bool // loopback and link-local addresses may be called

	DialTimeout   time.Duration // to connect; 5 s
	HeaderTimeout time.Duration // from the request to the first byte of its answer; Timeout
	Timeout       time.Duration // of the whole call; 30 s
	MaxBody       int64         // bytes of an answer's body that may be read; 1 MiB

	MaxConnsPerHost int           // open at once; no limit
	Resolver        *net.Resolver // the system's
}

// Limits of a call that need no choice.
const (
	maxHeaderBytes = 64 << 10
	idleTimeout    = 90 * time.Second
	maxIdle        = 100
	maxIdlePerHost = 10
)

// ErrTooLarge is what reading a body ends with when it is larger than allowed.
var ErrTooLarge = errors.New("the answer is larger than allowed")

// New makes a client that calls only what its guard lets it.
func New(o Options) *http.Client {
	set := func(field *time.Duration, value time.Duration) {
		if *field <= 0 {
			*field = value
		}
	}
	set(&o.DialTimeout, 5*time.Second)
	set(&o.Timeout, 30*time.Second)
	set(&o.HeaderTimeout, o.Timeout)
	if o.MaxBody <= 0 {
		o.MaxBody = 1 << 20
	}
	guard := NewGuard(o.AllowPrivate)
	dialer := &net.Dialer{
		Timeout: o.DialTimeout, Resolver: o.Resolver,
		// Here the name is resolved and the socket made: what it connects to is this address.
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			return guard.checkSocket(network, address)
		},
	}
	transport := &http.Transport{
		Proxy:                  nil, // a proxy would resolve names itself
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    o.DialTimeout,
		ResponseHeaderTimeout:  o.HeaderTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		MaxConnsPerHost:        o.MaxConnsPerHost,
		IdleConnTimeout:        idleTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // a small answer stays small
	}
	return &http.Client{
		Transport:     &limited{inner: transport, most: o.MaxBody},
		Timeout:       o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// limited makes the calls and bounds what is read of their answers.
type limited struct {
	inner *http.Transport
	most  int64
}

// RoundTrip implements http.RoundTripper.
func (l *limited) RoundTrip(request *http.Request) (*http.Response, error) {
	if s := request.URL.Scheme; s != "http" && s != "https" {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("%q is not http or https", s), fault.Field("url"),
			fault.Remedy("use an http or https URL"), fault.Cause(ErrRefused))
	}
	response, err := l.inner.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	response.Body = &bounded{ReadCloser: response.Body, left: l.most}
	return response, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the transport.
func (l *limited) CloseIdleConnections() { l.inner.CloseIdleConnections() }

// bounded reads so much and not more: a body that is cut short in silence would be taken for
// a whole one.
type bounded struct {
	io.ReadCloser

	left int64
}

// Read implements io.Reader.
func (b *bounded) Read(to []byte) (int, error) {
	if b.left < 0 {
		return 0, ErrTooLarge
	}
	if int64(len(to)) > b.left+1 { // one more, to see whether there is more
		to = to[:b.left+1]
	}
	n, err := b.ReadCloser.Read(to)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, ErrTooLarge
	}
	return n, err
}
