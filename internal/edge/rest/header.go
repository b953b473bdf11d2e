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

// requestID returns the caller's request id if it is safe for logs and headers, or a new one.
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

// allowedMetadata returns the metadata of the headers that services use. It drops all others, above all
// those with which callers could set gRPC metadata.
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
			return nil, fault.New(fault.InvalidArgument, "is set more than once", fault.Field(name), fault.Remedy("send the header once"))
		}
		if !printable(values[0]) {
			return nil, fault.New(fault.InvalidArgument, "contains characters that are not printable ASCII", fault.Field(name), fault.Remedy("use printable ASCII characters"))
		}
		md.Set(name, values[0])
	}
	// An invalid trace does not fail a request.
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

// outgoing returns the HTTP name of a header that services set: the state of rate limits, and whether an
// answer is a repeat. It drops all others.
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

// onlyAllowed replaces the gateway's mapping of headers.
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
