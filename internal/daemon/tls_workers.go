package daemon

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
)

// isWorkerCall names the calls that only workers make, as isWorkerPath does for REST. The list of
// workers is for people.
func isWorkerCall(method string) bool {
	name, ok := strings.CutPrefix(method, "/servo.v1.WorkerService/")
	return ok && name != "ListWorkers"
}

func isWorkerPath(path string) bool {
	return strings.HasPrefix(path, "/v1/workers:") || strings.HasPrefix(path, "/v1/tasks/")
}

// certified reports whether the caller has a certificate of a trusted authority.
func certified(state *tls.ConnectionState) error {
	if state != nil && len(state.VerifiedChains) > 0 {
		return nil
	}
	return fault.New(fault.Unauthenticated, "workers show a certificate to this server, and the call came without one",
		fault.Remedy("give the worker one with --tls-cert and --tls-key"))
}

// certifiedCalls asks workers for a certificate, where one is asked for.
func (d *Daemon) certifiedCalls(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if !isWorkerCall(info.FullMethod) {
		return handle(ctx, req)
	}
	var state *tls.ConnectionState
	if from, ok := peer.FromContext(ctx); ok {
		if shown, ok := from.AuthInfo.(credentials.TLSInfo); ok {
			state = &shown.State
		}
	}
	if err := certified(state); err != nil {
		return nil, problem.Status(err).Err()
	}
	return handle(ctx, req)
}

// certifiedPaths is the same for REST.
func (d *Daemon) certifiedPaths(next http.Handler) http.Handler {
	if d.config.TLS.ClientCA == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isWorkerPath(r.URL.Path) {
			if err := certified(r.TLS); err != nil {
				problem.Write(w, r, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
