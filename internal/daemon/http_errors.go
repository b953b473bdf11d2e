package daemon

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
)

// explainingListener accepts connections on which net/http's own refusals become problems.
// net/http writes them as text straight to the connection, before any handler is called.
type explainingListener struct {
	net.Listener
}

// Accept implements net.Listener.
func (l explainingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &explainingConn{Conn: conn}, nil
}

// explainingConn replaces refusals that are written while no handler answers. Answers of handlers
// pass as they are. Under TLS it sees encrypted bytes and replaces only the refusal of plain HTTP.
type explainingConn struct {
	net.Conn

	answering atomic.Bool
}

// Write implements net.Conn.
func (c *explainingConn) Write(p []byte) (int, error) {
	if c.answering.Load() {
		return c.Conn.Write(p)
	}
	status := refusedStatus(p)
	if status < http.StatusBadRequest {
		return c.Conn.Write(p)
	}
	if _, err := c.Conn.Write(refusal(status)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite lets net/http end an answer without a reset, which could take it from its reader.
func (c *explainingConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// refusedStatus is the status of an HTTP/1 answer; 0 if the bytes begin none.
func refusedStatus(answer []byte) int {
	const before, digits = len("HTTP/1.x "), 3
	if !bytes.HasPrefix(answer, []byte("HTTP/1.")) || len(answer) < before+digits {
		return 0
	}
	status, err := strconv.Atoi(string(answer[before : before+digits]))
	if err != nil {
		return 0
	}
	return status
}

// refusal is the whole answer to a request that net/http refuses with a status.
func refusal(status int) []byte {
	var err error
	switch status {
	case http.StatusRequestHeaderFieldsTooLarge:
		err = fault.New(problem.TooLarge, fmt.Sprintf("the request line and headers have more than %d bytes", maxHeaderBytes),
			fault.Remedy("send fewer or shorter headers"), fault.Value("limit", maxHeaderBytes))
	case http.StatusNotImplemented:
		err = fault.New(problem.Unimplemented, "unsupported transfer encoding", fault.Field("Transfer-Encoding"), fault.Remedy("send the body with Content-Length, or chunked"))
	case http.StatusHTTPVersionNotSupported:
		err = fault.New(fault.InvalidArgument, "unsupported version of HTTP", fault.Remedy("send HTTP/1.1"))
	case http.StatusExpectationFailed:
		err = fault.New(fault.InvalidArgument, "unsupported expectation", fault.Field("Expect"), fault.Remedy("send Expect: 100-continue, or no such header"))
	default:
		err = fault.New(fault.InvalidArgument, "the request is not valid HTTP/1.1, or is plain HTTP where TLS is needed",
			fault.Remedy("send one Host header, valid headers and an escaped path; use https:// if the server has a certificate"))
	}
	return problem.Answer(status, err)
}

// explained marks the connections on which a handler answers.
func explained(server *http.Server, listener net.Listener) net.Listener {
	type connKey struct{}
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		if c, ok := conn.(*explainingConn); ok && state == http.StateIdle {
			c.answering.Store(false)
		}
	}
	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*explainingConn); ok {
			c.answering.Store(true)
		}
		next.ServeHTTP(w, r)
	})
	return explainingListener{listener}
}

// cleanPaths refuses paths that http.ServeMux would redirect with a page of its own. Pages keep
// the redirect: a browser follows it.
func cleanPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given := r.URL.EscapedPath(); !strings.HasPrefix(given, "/ui/") && r.Method != http.MethodConnect && !isClean(given) {
			problem.Write(w, r, fault.New(fault.InvalidArgument, "the path has empty, . or .. segments", fault.Remedy("send the path without them, beginning with one slash")))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isClean(given string) bool {
	return given == "/" || path.Clean("/"+given) == strings.TrimSuffix(given, "/")
}
