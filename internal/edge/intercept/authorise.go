package intercept

import (
	"context"
	"net"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
)

type callerKey struct{}

// withCaller adds the caller to a context.
func withCaller(ctx context.Context, c access.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// Caller returns the caller of a call. The zero caller may do nothing.
func Caller(ctx context.Context) access.Caller {
	c, _ := ctx.Value(callerKey{}).(access.Caller)
	return c
}

// named returns the parts of a request that access rules look at.
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

// authorise refuses a call that the caller may not make. It runs before validation, so that a
// caller without permission learns nothing about the request.
func (c *Chain) authorise(ctx context.Context, method string, req any) error {
	m, known := c.methods[method]
	if !known {
		return fault.New(fault.Forbidden, "unknown method "+method, fault.Remedy("check that client and server have the same version"))
	}
	return Caller(ctx).May(m, named(req))
}

// validate checks a request against the rules of the contract, and whether the caller may leave out
// what it leaves out.
func (c *Chain) validate(ctx context.Context, method string, req any) error {
	if err := c.validator.check(req); err != nil {
		return err
	}
	return Caller(ctx).ForAll(c.methods[method], named(req))
}

// Operator refuses an HTTP request outside the contract unless an operator of the installation
// sends it.
func (c *Chain) Operator(ctx context.Context, path string, authorization, apiKey []string) error {
	md := metadata.MD{}
	md.Set("authorization", authorization...)
	md.Set("x-api-key", apiKey...)
	who, err := c.callers.identify(metadata.NewIncomingContext(ctx, md), path)
	if err != nil {
		return c.Explain(ctx, path, err)
	}
	m := access.Method{Permission: access.PlatformRead, Scope: access.OfPlatform}
	return who.as(m, nil).May(m, access.Request{})
}

// Reaches returns a not-found error for a workspace that the caller may not access, so that it
// cannot distinguish it from one that does not exist.
func Reaches(ctx context.Context, workspace, kind, name string) error {
	if Caller(ctx).Reaches(workspace) {
		return nil
	}
	return access.Missing(kind, name)
}

// RemoteAddress is the metadata key in which the REST edge passes the address of a caller. It is
// ignored in calls from outside this process.
const RemoteAddress = "x-remote-address"

// addressOf returns the address of the caller.
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
