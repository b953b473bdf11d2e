package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
)

// handlers keeps what is registered, so that a call can be made without its frame.
type handlers map[string]func(ctx context.Context, req proto.Message, around grpc.UnaryServerInterceptor) (any, error)

// RegisterService implements grpc.ServiceRegistrar.
func (h handlers) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, method := range desc.Methods {
		h["/"+desc.ServiceName+"/"+method.MethodName] = func(ctx context.Context, req proto.Message, around grpc.UnaryServerInterceptor) (any, error) {
			return method.Handler(impl, ctx, func(into any) error {
				to, _ := into.(proto.Message)
				proto.Merge(to, req)
				return nil
			}, around)
		}
	}
}

// BenchmarkAuthenticated is what the frame of a call costs: the caller known and permitted, the
// request checked, counted and traced. "frame" is all of it around a handler that does nothing;
// the others are a call that reads a run, from the bare handler to both edges.
func BenchmarkAuthenticated(b *testing.B) {
	g := setupGuarded(b)
	run := g.trigger(b, "single").GetId()
	key := g.roleKey(b, access.Viewer)
	request := &servov1.GetRunRequest{Tenant: "acme", Run: run}
	const method = servov1.RunService_GetRun_FullMethodName
	known := handlers{}
	g.api.Register(known)
	arrived := metadata.NewIncomingContext(b.Context(), metadata.Pairs("x-api-key", key))
	frame := g.api.Unary()
	measure := func(name string, call func() error) {
		b.Run(name, func(b *testing.B) {
			require.NoError(b, call())
			b.ReportAllocs()
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	measure("frame", func() error {
		_, err := frame(arrived, request, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return &servov1.Run{}, nil })
		return err
	})
	measure("handler", func() error {
		_, err := known[method](arrived, request, nil)
		return err
	})
	measure("handler and frame", func() error {
		_, err := known[method](arrived, request, frame)
		return err
	})
	client, sent := servov1.NewRunServiceClient(g.conn), metadata.AppendToOutgoingContext(b.Context(), "x-api-key", key)
	measure("gRPC", func() error {
		_, err := client.GetRun(sent, request)
		return err
	})
	measure("REST", func() error {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, g.web.URL+"/v1/tenants/acme/runs/"+run, strings.NewReader(""))
		if err != nil {
			return err
		}
		req.Header.Set("X-Api-Key", key)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return err
	})
}
