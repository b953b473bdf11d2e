package netguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

// Options configure calls. A zero field has the default that its comment names.
type Options struct {
	Guard *Guard // decides which addresses may be called; nil allows public ones only

	DialTimeout   time.Duration // to connect; 5 s
	HeaderTimeout time.Duration // from the request to the first byte of its answer; Timeout
	Timeout       time.Duration // of the whole call; 30 s, NoTimeout for none
	MaxBody       int64         // bytes of an answer's body that may be read; 1 MiB

	MaxConnsPerHost int // open at once; no limit
	MaxIdlePerHost  int // kept open without a call; 10
}

// NoTimeout is the Timeout of calls that end only with their context.
const NoTimeout = time.Duration(-1)

// The fixed limits of a call.
const (
	maxHeaderBytes = 64 << 10
	idleTimeout    = 90 * time.Second
	maxIdle        = 100
	maxIdlePerHost = 10
)

// ErrTooLarge is the error of reading a body that is larger than allowed.
var ErrTooLarge = errors.New("the answer is larger than allowed")

// New returns a client that calls only addresses that its guard allows.
func New(o Options) *http.Client {
	o.DialTimeout, o.Timeout = cmp.Or(o.DialTimeout, 5*time.Second), cmp.Or(o.Timeout, 30*time.Second)
	o.HeaderTimeout, o.MaxBody = cmp.Or(o.HeaderTimeout, o.Timeout), cmp.Or(o.MaxBody, 1<<20)
	o.HeaderTimeout, o.Timeout = max(o.HeaderTimeout, 0), max(o.Timeout, 0)
	guard := o.Guard
	dialer := &net.Dialer{
		Timeout: o.DialTimeout, Resolver: guard.rules().Resolver,
		// The name is resolved and the socket exists: it connects to this address.
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
		MaxIdleConns:           max(maxIdle, o.MaxIdlePerHost),
		MaxIdleConnsPerHost:    cmp.Or(o.MaxIdlePerHost, maxIdlePerHost),
		MaxConnsPerHost:        o.MaxConnsPerHost,
		IdleConnTimeout:        idleTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // a small answer stays small
	}
	return &http.Client{
		Transport:     &limited{inner: transport, guard: guard, most: o.MaxBody},
		Timeout:       o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// limited makes calls and limits the size of their responses.
type limited struct {
	inner *http.Transport
	guard *Guard
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
		return nil, l.guard.conceal(request.URL.Hostname(), err)
	}
	response.Body = &bounded{ReadCloser: response.Body, left: l.most}
	return response, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the transport.
func (l *limited) CloseIdleConnections() { l.inner.CloseIdleConnections() }

// bounded limits the size of a body. It returns an error beyond the limit, so that a truncated body
// is never taken for a complete one.
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
	if err != nil && !errors.Is(err, io.EOF) {
		err = withoutAddresses(err)
	}
	return n, err
}

// checkSocket refuses the address of a connection that is about to be opened.
func (g *Guard) checkSocket(network, address string) error {
	switch network {
	case "tcp4", "tcp6":
	default:
		return fault.New(fault.InvalidArgument, network+" is not TCP", fault.Field("url"), fault.Remedy("use an http or https URL"), fault.Cause(ErrRefused))
	}
	socket, err := netip.ParseAddrPort(address)
	if err != nil {
		return fault.New(fault.InvalidArgument, "is not an address", fault.Field("url"), fault.Remedy("use another URL"), fault.Cause(errors.Join(ErrRefused, err)))
	}
	return g.Check(socket.Addr())
}

// conceal replaces the failure of a call with one that reveals nothing about name resolution: neither
// the resolver nor its answer, nor whether the answer was refused.
func (g *Guard) conceal(host string, err error) error {
	_, unresolved := errors.AsType[*net.DNSError](err)
	refused := errors.Is(err, ErrRefused)
	if !unresolved && !refused {
		return withoutAddresses(err)
	}
	if refused {
		g.log("refused to call a host", host, err)
	}
	if f, ok := fault.As(err); ok {
		if _, is := literal(host); is {
			return f
		}
	}
	return ErrNoAddress
}

// callError is the failure of a connection, without the addresses of its ends.
type callError struct {
	message string
	timeout bool
	cause   error // for errors.Is alone
}

// Error implements error.
func (e *callError) Error() string { return e.message }

// Timeout implements net.Error, for http.Client.
func (e *callError) Timeout() bool { return e.timeout }

// Is compares the cause without unwrapping it, because its text contains addresses.
func (e *callError) Is(target error) bool { return errors.Is(e.cause, target) }

func withoutAddresses(err error) error {
	failed, ok := errors.AsType[*net.OpError](err)
	if !ok || failed.Err == nil {
		return err
	}
	return &callError{message: failed.Op + ": " + failed.Err.Error(), timeout: failed.Timeout(), cause: err}
}
