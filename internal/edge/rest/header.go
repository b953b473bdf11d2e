package rest

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/intercept"
)

const requestIDHeader = "X-Request-Id"

// state is what the edge knows of a request.
type state struct {
	original  *http.Request
	requestID string
	metadata  metadata.MD
	probing   bool // only to see whether the path has a handler
	found     bool // it has
}

type stateKey struct{}

func stateOf(r *http.Request) *state {
	s, _ := r.Context().Value(stateKey{}).(*state)
	return s
}

// requestID is the caller's, if it can stand in a log and a header as it is, or a new one.
func requestID(h http.Header) string {
	const longest = 128
	if given := h.Values(requestIDHeader); len(given) == 1 && given[0] != "" && len(given[0]) <= longest && !strings.ContainsFunc(given[0], notInID) {
		return given[0]
	}
	return uuid.NewString()
}

func notInID(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("-_.:/+=", r)
}

// allowedMetadata is all that a service may know of a request's headers. Nothing else is
// let through: least of all what would let a caller write metadata of his own.
func allowedMetadata(h http.Header, requestID, from string) (metadata.MD, error) {
	md := metadata.MD{"x-request-id": {requestID}}
	if host, _, err := net.SplitHostPort(from); err == nil {
		md.Set(intercept.RemoteAddress, host)
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "Idempotency-Key"} {
		values := h.Values(name)
		if len(values) == 0 {
			continue
		}
		if len(values) > 1 {
			return nil, fault.New(fault.InvalidArgument, "is there more than once", fault.Field(name), fault.Remedy("send the header once"))
		}
		if !printable(values[0]) {
			return nil, fault.New(fault.InvalidArgument, "has characters that are not printable ASCII", fault.Field(name), fault.Remedy("use letters, digits and signs"))
		}
		md.Set(name, values[0])
	}
	// A trace that cannot be read is no reason to refuse a request.
	if parent := h.Values("Traceparent"); len(parent) == 1 && printable(parent[0]) {
		md.Set("traceparent", parent[0])
		if traceState := strings.Join(h.Values("Tracestate"), ","); traceState != "" && printable(traceState) {
			md.Set("tracestate", traceState)
		}
	}
	return md, nil
}

func printable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// outgoing says under which name a service's header goes out: how the caller stands by his
// limits, that an answer was given before, and nothing else.
func outgoing(key string) (string, bool) {
	switch key {
	case intercept.RateLimit:
		return "RateLimit-Limit", true
	case intercept.RateRemaining:
		return "RateLimit-Remaining", true
	case intercept.RateReset:
		return "RateLimit-Reset", true
	case intercept.Replayed:
		return "Idempotency-Replayed", true
	}
	return "", false
}

// forward copies what may go out.
func forward(to http.Header, from metadata.MD) {
	for key, values := range from {
		if name, ok := outgoing(key); ok && len(values) > 0 {
			to.Set(name, values[0])
		}
	}
}

// onlyAllowed replaces what the gateway has made of the headers.
func onlyAllowed(ctx context.Context) context.Context {
	md := metadata.MD{}
	if s, ok := ctx.Value(stateKey{}).(*state); ok {
		md = s.metadata
	}
	return metadata.NewOutgoingContext(ctx, md)
}

func onlyAllowedUnary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return invoke(onlyAllowed(ctx), method, req, reply, conn, options...)
}

func onlyAllowedStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, stream grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	return stream(onlyAllowed(ctx), desc, conn, method, options...)
}
