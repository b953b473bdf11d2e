package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
	"go.arco.dev/servo/internal/store"
)

// Unary is what every call goes through, over gRPC and over REST: a panic is caught, the
// caller known and permitted, the request checked, the error made one that people can read,
// and the call logged.
func (s *Server) Unary() grpc.UnaryServerInterceptor {
	return s.unary(func(ctx context.Context, method string) (identity, error) { return s.callers.identify(ctx, method) })
}

// unary is Unary for callers who are known in some way. A call of ours that is no method of the
// contract, a presigned one, is permitted by what it is.
func (s *Server) unary(identify func(ctx context.Context, method string) (identity, error)) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
		handler = s.paged(handler)
		began := time.Now()
		ctx, span := s.traced(ctx, info.FullMethod, tenantOf(req))
		defer func() {
			if caught := recover(); caught != nil {
				answer, err = nil, s.caught(ctx, info.FullMethod, caught)
			}
			err = s.finish(ctx, info.FullMethod, tenantOf(req), began, err)
			ended(span, err)
		}()
		who, err := identify(ctx, info.FullMethod)
		if err != nil {
			return nil, err
		}
		ctx = withCaller(ctx, who.as(s.methods[info.FullMethod], req))
		if who.presigned {
			if err := s.validator.check(req); err != nil {
				return nil, err
			}
			return handler(ctx, req)
		}
		if err := s.authorise(ctx, info.FullMethod, req); err != nil {
			s.audit(ctx, info.FullMethod, req, false, err)
			return nil, err
		}
		if err := s.checked(ctx, info.FullMethod, req); err != nil {
			return nil, err
		}
		if err := s.admit(ctx, info.FullMethod, req); err != nil {
			return nil, err
		}
		ctx, done := s.callers.whileAlive(ctx, who)
		defer done()
		answer, err = s.once(ctx, info.FullMethod, req, handler)
		err = s.explain(ctx, info.FullMethod, err)
		s.audit(ctx, info.FullMethod, req, true, err)
		return answer, err
	}
}

// Stream is what every stream goes through.
func (s *Server) Stream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		began := time.Now()
		ctx := stream.Context()
		checked := &checkedStream{ServerStream: stream, server: s, method: info.FullMethod}
		defer func() {
			if caught := recover(); caught != nil {
				err = s.caught(ctx, info.FullMethod, caught)
			}
			err = s.finish(ctx, info.FullMethod, checked.tenant, began, err)
		}()
		who, err := s.callers.identify(ctx, info.FullMethod)
		if err != nil {
			return err
		}
		alive, done := s.callers.whileAlive(withCaller(ctx, who.Caller), who)
		defer done()
		checked.ctx, checked.who, ctx = alive, who, alive
		seated := s.seated(info.FullMethod, checked)
		defer seated.done()
		return s.explain(ctx, info.FullMethod, handler(srv, seated))
	}
}

// checkedStream permits and checks each message that comes in.
type checkedStream struct {
	grpc.ServerStream

	ctx    context.Context //nolint:containedctx // of the stream, which gives it to its handler
	server *Server
	who    identity
	method string
	tenant string
}

// Context implements grpc.ServerStream.
func (c *checkedStream) Context() context.Context { return c.ctx }

// RecvMsg implements grpc.ServerStream.
func (c *checkedStream) RecvMsg(m any) error {
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	c.tenant = tenantOf(m)
	c.ctx = withCaller(c.ctx, c.who.as(c.server.methods[c.method], m))
	if err := c.server.authorise(c.ctx, c.method, m); err != nil {
		return err
	}
	return c.server.checked(c.ctx, c.method, m)
}

// tenantOf is the tenant that a request names, if it names one.
func tenantOf(req any) string {
	if named, ok := req.(interface{ GetTenant() string }); ok {
		return named.GetTenant()
	}
	return ""
}

var errPanic = errors.New("panic")

// caught logs a panic. Whoever called learns nothing of it.
func (s *Server) caught(ctx context.Context, method string, value any) error {
	s.log.ErrorContext(ctx, "a call panicked", "method", method, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
	return fault.New(fault.Internal, "something went wrong on our side", fault.Remedy("try again; if it stays, look at the server's log"), fault.Cause(errPanic))
}

// finish makes an error a status, and logs the call.
func (s *Server) finish(ctx context.Context, method, tenant string, began time.Time, err error) error {
	st := problem.Status(s.explain(ctx, method, err))
	if s.log.Enabled(ctx, slog.LevelDebug) {
		s.log.DebugContext(ctx, "call", "method", method, "code", st.Code().String(), "duration", time.Since(began), "tenant", tenant)
	}
	return st.Err()
}

// explain turns what went wrong underneath into what its caller may know, and logs the rest.
func (s *Server) explain(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := fault.As(err); ok {
		return err
	}
	if refused, ok := fault.As(context.Cause(ctx)); ok { // the caller's key has ended in between
		return refused
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch { // of the call itself, whatever the database made of it
	case errors.Is(ctx.Err(), context.Canceled):
		return status.Error(codes.Canceled, "the caller has gone")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the caller's time is over")
	}
	_, ours := errors.AsType[*store.MismatchError](err)
	switch trouble := store.Diagnose(err); {
	case trouble == store.Away || trouble == store.Collided:
		s.log.WarnContext(ctx, "the database is away", "method", method, "error", err)
		return fault.New(fault.Unavailable, "the database does not answer", fault.RetryAfter(RetryAfterAway),
			fault.Remedy("try again"), fault.Cause(err))
	case trouble == store.Poisoned && !ours:
		s.log.WarnContext(ctx, "a request carries a value that the database refuses", "method", method, "error", err)
		return fault.New(fault.InvalidArgument, "carries a value that cannot be stored", fault.Field("request"),
			fault.Remedy(`check texts for zero characters (\u0000) and numbers for their range`), fault.Cause(err))
	}
	s.log.ErrorContext(ctx, "a call failed", "method", method, "error", err)
	return fault.New(fault.Internal, "something went wrong on our side", fault.Remedy("try again; if it stays, look at the server's log"), fault.Cause(err))
}

// RetryAfterAway is when a caller may look again for a database that was away.
const RetryAfterAway = time.Second
