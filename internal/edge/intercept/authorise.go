package api

import (
	"context"
	"net"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
)

type callerKey struct{}

// withCaller says in the context who calls.
func withCaller(ctx context.Context, c access.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// callerOf is who calls. Nobody may do nothing.
func callerOf(ctx context.Context) access.Caller {
	c, _ := ctx.Value(callerKey{}).(access.Caller)
	return c
}

// named is what a request names, as far as it says who may make it.
func named(req any) access.Request {
	r := access.Request{Tenant: tenantOf(req)}
	if of, ok := req.(interface{ GetWorkspace() string }); ok {
		r.Workspace = of.GetWorkspace()
	}
	if of, ok := req.(interface{ GetPools() []string }); ok {
		r.Pools = of.GetPools()
	}
	return r
}

// authorise reports whether the caller may make a call. It comes before the request is checked,
// so that whoever may not learns nothing about it.
func (s *Server) authorise(ctx context.Context, method string, req any) error {
	m, known := s.methods[method]
	if !known {
		return fault.New(fault.Forbidden, "nobody may make this call", fault.Remedy("compare the versions of client and server"))
	}
	return callerOf(ctx).May(m, named(req))
}

// checked reports whether a request can be, and whether the caller may ask for what it leaves out.
func (s *Server) checked(ctx context.Context, method string, req any) error {
	if err := s.validator.check(req); err != nil {
		return err
	}
	return callerOf(ctx).ForAll(s.methods[method], named(req))
}

// Operator reports whether a request that is no call of the contract comes from an operator of the
// installation.
func (s *Server) Operator(ctx context.Context, path string, authorization, apiKey []string) error {
	md := metadata.MD{}
	md.Set("authorization", authorization...)
	md.Set("x-api-key", apiKey...)
	who, err := s.callers.identify(metadata.NewIncomingContext(ctx, md), path)
	if err != nil {
		return s.explain(ctx, path, err)
	}
	m := access.Method{Permission: access.PlatformRead, Scope: access.OfPlatform}
	return who.as(m, nil).May(m, access.Request{})
}

// reaches refuses what is in a workspace that the caller's key is not for, as if it were not
// there.
func reaches(ctx context.Context, workspace, kind, name string) error {
	if callerOf(ctx).Reaches(workspace) {
		return nil
	}
	return access.Missing(kind, name)
}

// RemoteAddress is the metadata by which the REST edge says where a request came from. Only
// calls in this process are believed.
const RemoteAddress = "x-remote-address"

// addressOf is where a call came from.
func addressOf(ctx context.Context) string {
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr == nil {
		return ""
	}
	if from.Addr.Network() == "inproc" {
		return header(ctx, RemoteAddress)
	}
	if host, _, err := net.SplitHostPort(from.Addr.String()); err == nil {
		return host
	}
	return from.Addr.String()
}
