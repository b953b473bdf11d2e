// Package intercept has the interceptors of the API. Every call of gRPC and REST passes the same
// chain: trace, authenticate, authorise, validate, rate limit, idempotency, audit. Handlers are in
// package api.
package intercept

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/oidc"
	"go.arco.dev/servo/internal/edge/problem"
	"go.arco.dev/servo/internal/edge/ratelimit"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// Options configure a chain.
type Options struct {
	Store   *store.Store
	Engine  *engine.Engine
	Logger  *slog.Logger
	Tenants *TenantNames
	Tracer  trace.Tracer     // nil: calls are not traced
	Rates   ratelimit.Limits // per tenant; the zero value has no limits
	Open    bool             // calls need no key, and every caller may make every call
	Tokens  *oidc.Verifier   // verifies tokens of trusted issuers; nil trusts none
	Closing context.Context  //nolint:containedctx // ends when the server stops; waiting calls end with it
	Timing  Timing
}

// Timing has the durations and the clock of a chain. Tests shorten them.
type Timing struct {
	Now          func() time.Time // clock of the rate limits
	TwinPatience time.Duration    // how long a call waits for another one with the same idempotency key
	KeyUses      time.Duration    // how long uses of keys are collected before they are written
}

// DefaultTiming is the timing of servers.
func DefaultTiming() Timing {
	return Timing{Now: time.Now, TwinPatience: twinPatience, KeyUses: usedBatch}
}

// Chain is the interceptors of one server.
type Chain struct {
	options   Options
	store     *store.Store
	log       *slog.Logger
	validator *validator
	tenants   *TenantNames
	tokens    *tokenSealer
	rates     *limiter
	callers   *authenticator
	methods   map[string]access.Method
}

// New creates a chain. It compiles the rules of all requests, so that the first request does not
// pay for them. Rules that do not compile are a programming error and panic.
func New(options Options) *Chain {
	c := &Chain{
		options: options, store: options.Store, log: options.Logger, validator: newValidator(), tenants: options.Tenants,
		tokens: newTokenSealer(options.Store), methods: access.Methods(),
	}
	c.rates = newLimiter(&c.options)
	c.callers = newAuthenticator(&c.options)
	return c
}

// Close writes the last uses of keys and ends the background work.
func (c *Chain) Close() {
	c.callers.close()
	c.rates.close()
}

// SetTiming replaces the timing of a chain that has not been called yet.
func (c *Chain) SetTiming(change func(*Timing)) { change(&c.options.Timing) }

// Method returns the access rules of a call; false if the contract has no such call.
func (c *Chain) Method(name string) (access.Method, bool) {
	m, known := c.methods[name]
	return m, known
}

// ForgetKey drops a cached key that has changed on this server.
func (c *Chain) ForgetKey(publicID string) { c.callers.forget(publicID) }

// Unary returns the interceptor of calls that are no streams.
func (c *Chain) Unary() grpc.UnaryServerInterceptor {
	return c.unary(func(ctx context.Context, method string) (identity, error) { return c.callers.identify(ctx, method) })
}

// Presigned returns the interceptor of calls that come through a presigned URL. The URL permits
// one action on one attempt, so that the call is neither authorised, limited nor audited.
func (c *Chain) Presigned(actor string) grpc.UnaryServerInterceptor {
	return c.unary(func(context.Context, string) (identity, error) {
		return identity{Caller: access.Caller{Actor: actor}, presigned: true}, nil
	})
}

func (c *Chain) unary(identify func(ctx context.Context, method string) (identity, error)) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
		handler = c.sealPages(handler)
		began := time.Now()
		ctx, span := c.startSpan(ctx, info.FullMethod, tenantOf(req))
		defer func() {
			if caught := recover(); caught != nil {
				answer, err = nil, c.panicked(ctx, info.FullMethod, caught)
			}
			err = c.finish(ctx, info.FullMethod, tenantOf(req), began, err)
			endSpan(span, err)
		}()
		who, err := identify(ctx, info.FullMethod)
		if err != nil {
			return nil, err
		}
		ctx = withCaller(ctx, who.as(c.methods[info.FullMethod], req))
		if who.presigned {
			if err := c.validator.check(req); err != nil {
				return nil, err
			}
			return handler(ctx, req)
		}
		if err := c.authorise(ctx, info.FullMethod, req); err != nil {
			c.audit(ctx, info.FullMethod, req, false, err)
			return nil, err
		}
		if err := c.validate(ctx, info.FullMethod, req); err != nil {
			return nil, err
		}
		if err := c.limitRate(ctx, info.FullMethod, req); err != nil {
			return nil, err
		}
		ctx, done := c.callers.whileValid(ctx, who)
		defer done()
		answer, err = c.idempotent(ctx, info.FullMethod, req, handler)
		err = c.Explain(ctx, info.FullMethod, err)
		c.audit(ctx, info.FullMethod, req, true, err)
		return answer, err
	}
}

// Stream returns the interceptor of streams.
func (c *Chain) Stream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		began := time.Now()
		ctx := stream.Context()
		checked := &checkedStream{ServerStream: stream, chain: c, method: info.FullMethod}
		defer func() {
			if caught := recover(); caught != nil {
				err = c.panicked(ctx, info.FullMethod, caught)
			}
			err = c.finish(ctx, info.FullMethod, checked.tenant, began, err)
		}()
		who, err := c.callers.identify(ctx, info.FullMethod)
		if err != nil {
			return err
		}
		valid, done := c.callers.whileValid(withCaller(ctx, who.Caller), who)
		defer done()
		checked.ctx, checked.who, ctx = valid, who, valid
		counted := c.countStream(info.FullMethod, checked)
		defer counted.done()
		return c.Explain(ctx, info.FullMethod, handler(srv, counted))
	}
}

// checkedStream authorises and validates each received message.
type checkedStream struct {
	grpc.ServerStream

	ctx    context.Context //nolint:containedctx // of the stream, which gives it to its handler
	chain  *Chain
	who    identity
	method string
	tenant string
}

// Context implements grpc.ServerStream.
func (s *checkedStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *checkedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.tenant = tenantOf(m)
	s.ctx = withCaller(s.ctx, s.who.as(s.chain.methods[s.method], m))
	if err := s.chain.authorise(s.ctx, s.method, m); err != nil {
		return err
	}
	return s.chain.validate(s.ctx, s.method, m)
}

// tenantOf returns the tenant that a request names; empty if it names none.
func tenantOf(req any) string {
	if named, ok := req.(interface{ GetTenant() string }); ok {
		return named.GetTenant()
	}
	return ""
}

var errPanic = errors.New("panic")

// internalError hides a failure from the caller. The log has its cause.
func internalError(cause error) error {
	return fault.New(fault.Internal, "internal error", fault.Remedy("retry; if the error persists, check the server's log"), fault.Cause(cause))
}

// panicked logs a panic and returns the error for the caller.
func (c *Chain) panicked(ctx context.Context, method string, value any) error {
	c.log.ErrorContext(ctx, "a call panicked", "method", method, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
	return internalError(errPanic)
}

// finish turns an error into a status and logs the call.
func (c *Chain) finish(ctx context.Context, method, tenant string, began time.Time, err error) error {
	st := problem.Status(c.Explain(ctx, method, err))
	if c.log.Enabled(ctx, slog.LevelDebug) {
		c.log.DebugContext(ctx, "call", "method", method, "code", st.Code().String(), "duration", time.Since(began), "tenant", tenant)
	}
	return st.Err()
}

// Explain turns an error into one that the caller may read, and logs the error if it is internal.
func (c *Chain) Explain(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := fault.As(err); ok {
		return err
	}
	if refused, ok := fault.As(context.Cause(ctx)); ok { // the caller's key has expired meanwhile
		return refused
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch { // the call's own end explains errors of the database
	case errors.Is(ctx.Err(), context.Canceled):
		return status.Error(codes.Canceled, "the caller cancelled the call")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the caller's deadline has passed")
	}
	_, ours := errors.AsType[*store.MismatchError](err)
	switch trouble := store.Diagnose(err); {
	case trouble == store.Away || trouble == store.Collided:
		c.log.WarnContext(ctx, "database unavailable", "method", method, "error", err)
		return DatabaseUnavailable(err)
	case trouble == store.Poisoned && !ours:
		c.log.WarnContext(ctx, "the database refuses a value of a request", "method", method, "error", err)
		return fault.New(fault.InvalidArgument, "contains a value that cannot be stored", fault.Field("request"),
			fault.Remedy(`check texts for zero characters (\u0000) and numbers for their range`), fault.Cause(err))
	}
	c.log.ErrorContext(ctx, "a call failed", "method", method, "error", err)
	return internalError(err)
}

// retryAfterUnavailable is when a caller may retry after the database was unavailable.
const retryAfterUnavailable = time.Second

// DatabaseUnavailable is the error of a call that could not reach the database.
func DatabaseUnavailable(cause error) error {
	return fault.New(fault.Unavailable, "the database is unavailable", fault.RetryAfter(retryAfterUnavailable), fault.Remedy("retry"), fault.Cause(cause))
}

// Stopping is the error of a call that was waiting when the server began to stop.
func Stopping() error {
	return fault.New(fault.Unavailable, "this server is stopping", fault.RetryAfter(time.Second), fault.Remedy("retry; another server will answer"))
}
