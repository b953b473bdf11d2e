package api

import (
	"context"

	"google.golang.org/grpc"

	"go.arco.dev/servo/internal/api/problem"
)

// Unary is what every call goes through, over gRPC and over REST.
func (s *Server) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		answer, err := handler(ctx, req)
		return answer, problem.Status(err).Err()
	}
}

// Stream is what every stream goes through.
func (s *Server) Stream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return problem.Status(handler(srv, stream)).Err()
	}
}
