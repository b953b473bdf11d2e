// Package rest is the HTTP edge of the API: the contract's REST paths through grpc-gateway, with
// corrections of the gateway's defaults. It calls the services through a channel in the process, so that
// REST passes the same interceptors as gRPC. It refuses only what HTTP and JSON forbid; rules about runs
// and tenants are in other packages.
package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/fullstorydev/grpchan"
	"github.com/fullstorydev/grpchan/inprocgrpc"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/edge/problem"
)

// The limits of the edge.
const (
	MaxBody     = 4 << 20          // bytes of a request's body
	keepAlive   = 15 * time.Second // between two comments of a silent stream
	peekTimeout = 2 * time.Second  // how long a stream waits for its first message before it opens
	writeLimit  = 30 * time.Second // for one write to a stream
)

// Edge answers REST.
type Edge struct {
	mux       *runtime.ServeMux
	routes    map[string]*route // by method and pattern
	methods   []string          // that any path has
	runs      servov1.RunServiceClient
	log       *slog.Logger
	openapi   document
	docs      page
	keepAlive time.Duration
	peek      time.Duration
	gzips     sync.Pool // of *gzip.Writer: each has hundreds of kilobytes
}

// New returns the handler of all paths under /v1, and of /openapi.json.
func New(server *api.Server, log *slog.Logger) (http.Handler, error) {
	return Over(Inside(server), log)
}

// Over returns the same handler over an existing channel.
func Over(channel grpc.ClientConnInterface, log *slog.Logger) (http.Handler, error) {
	return over(channel, log)
}

// Inside returns a channel to the services within the process, through their interceptors.
func Inside(server *api.Server) grpc.ClientConnInterface {
	channel := (&inprocgrpc.Channel{}).WithServerUnaryInterceptor(server.Unary()).WithServerStreamInterceptor(server.Stream())
	server.Register(channel)
	return channel
}

// over builds the edge over any channel.
func over(channel grpc.ClientConnInterface, log *slog.Logger) (*Edge, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	e := &Edge{log: log, keepAlive: keepAlive, peek: peekTimeout, gzips: sync.Pool{New: newGzip}}
	// Services receive the metadata that this package allows, not the gateway's mapping of headers.
	channel = grpchan.InterceptClientConn(channel, onlyAllowedUnary, onlyAllowedStream)
	e.runs = servov1.NewRunServiceClient(channel)
	e.mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, newCodec()),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingHeaderMatcher(outgoing),
		runtime.WithOutgoingTrailerMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithErrorHandler(e.callFailed),
		runtime.WithRoutingErrorHandler(e.notRouted),
		runtime.WithMiddlewares(e.check),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithWriteContentLength(),
	)
	for _, service := range api.Services() {
		if err := service.Route(context.Background(), e.mux, channel); err != nil {
			return nil, err
		}
	}
	w := contractWritten()
	e.routes, e.methods, e.openapi, e.docs = w.routes, w.methods, w.openapi, w.docs
	return e, w.err
}

// written has the answers that depend on the contract only. It is read-only.
type written struct {
	routes  map[string]*route // by method and pattern
	methods []string          // that any path has
	openapi document
	docs    page
	err     error
}

// contractWritten returns the value that all edges of the process share, because it is expensive and
// depends on the contract only.
var contractWritten = sync.OnceValue(writeContract) //nolint:gochecknoglobals // see above

func writeContract() (w written) {
	w.routes, w.methods = routes()
	if w.openapi, w.err = newDocument(w.routes); w.err == nil {
		w.docs, w.err = newPage(w.openapi.root)
	}
	return w
}

// ServeHTTP answers a request.
func (e *Edge) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &writer{ResponseWriter: rw, edge: e, head: r.Method == http.MethodHead, compress: AcceptsGzip(r.Header)}
	request := &state{original: r, requestID: requestID(r.Header)}
	w.Header().Set(requestIDHeader, request.requestID)
	defer func() {
		if caught := recover(); caught != nil {
			e.panicked(w, r, caught)
		}
		w.end()
	}()
	if err := checkPath(r); err != nil {
		problem.Write(w, r, err)
		return
	}
	md, err := allowedMetadata(r.Header, request.requestID, r.RemoteAddr)
	if err != nil {
		problem.Write(w, r, err)
		return
	}
	request.metadata = md
	in := r.WithContext(context.WithValue(r.Context(), stateKey{}, request))
	switch {
	case r.URL.Path == openAPIPath:
		r.Pattern = openAPIPath
		e.openapi.ServeHTTP(w, in)
	case e.docs.has(r.URL.Path):
		r.Pattern = docsPath
		e.docs.ServeHTTP(w, in)
	case r.Method == http.MethodOptions:
		e.options(w, in)
	default:
		if r.Method == http.MethodHead {
			in.Method = http.MethodGet
		}
		in.Header = http.Header{} // the gateway would log headers that it cannot parse
		e.mux.ServeHTTP(w, in)
	}
}

// options answers with the methods of a path.
func (e *Edge) options(w http.ResponseWriter, r *http.Request) {
	allow := e.allowed(r)
	if allow == "" {
		problem.Write(w, r, noSuchPath(r))
		return
	}
	w.Header().Set("Allow", allow)
	w.WriteHeader(http.StatusNoContent)
}

// notRouted answers requests without a handler.
func (e *Edge) notRouted(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, _ int) {
	s := stateOf(r)
	if s.probing {
		return
	}
	allow := e.allowed(r)
	if allow == "" {
		problem.Write(w, r, noSuchPath(r))
		return
	}
	w.Header().Set("Allow", allow)
	problem.Write(w, r, fault.New(problem.MethodNotAllowed, fmt.Sprintf("%s is not supported at %s", s.original.Method, shorten(r.URL.Path)),
		fault.Remedy("use "+allow), fault.Value("allow", allow)))
}

func noSuchPath(r *http.Request) error {
	return fault.New(fault.NotFound, "no such path: "+shorten(r.URL.Path), fault.Remedy("compare the path with "+openAPIPath))
}

// callFailed answers a failed call.
func (e *Edge) callFailed(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if b, ok := r.Body.(*body); ok && b.refused != nil {
		err = b.refused // the generated code keeps only its text
	}
	if of, ok := runtime.ServerMetadataFromContext(ctx); ok {
		forward(w.Header(), of.HeaderMD)
	}
	problem.Write(w, r, err)
}

// panicked ends a request whose handler panicked in this package. An interceptor catches panics of
// services.
func (e *Edge) panicked(w *writer, r *http.Request, caught any) {
	if caught == http.ErrAbortHandler { //nolint:errorlint // it is this very value, never wrapped
		panic(caught)
	}
	e.log.ErrorContext(r.Context(), "a request panicked", "method", r.Method, "path", r.URL.Path,
		"panic", caught, "stack", string(debug.Stack()))
	if w.started {
		panic(http.ErrAbortHandler) // too late for an answer: the connection is closed
	}
	problem.Write(w, r, fmt.Errorf("panic: %v", caught))
}

// shorten shortens foreign text for a message.
func shorten(text string) string {
	const longest = 200
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
