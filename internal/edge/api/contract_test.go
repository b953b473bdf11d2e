package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
)

// methods are all calls of the contract.
func methods(t testing.TB) []protoreflect.MethodDescriptor {
	t.Helper()
	var found []protoreflect.MethodDescriptor
	for _, call := range intercept.Calls() {
		found = append(found, call)
	}
	require.NotEmpty(t, found)
	return found
}

func TestContract(t *testing.T) {
	t.Parallel()
	b := setupBare(t, engine.Config{})

	for _, method := range methods(t) {
		t.Run(string(method.FullName())+" is implemented", func(t *testing.T) {
			t.Parallel()
			kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
			require.NoError(t, err)
			answer, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
			require.NoError(t, err)
			path := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
			for _, req := range []proto.Message{kind.New().Interface(), filled(kind.New(), "missing")} {
				if method.IsStreamingServer() {
					stream, err := b.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, path)
					require.NoError(t, err)
					require.NoError(t, stream.SendMsg(req))
					require.NoError(t, stream.CloseSend())
					err = stream.RecvMsg(answer.New().Interface())
					require.NotContains(t, []codes.Code{codes.OK, codes.Unimplemented, codes.Internal, codes.Unknown}, status.Code(err), "%v", err)
					continue
				}
				err = b.conn.Invoke(t.Context(), path, req, answer.New().Interface())
				require.NotContains(t, []codes.Code{codes.Unimplemented, codes.Internal, codes.Unknown}, status.Code(err), "%v", err)
			}
		})
	}
}

// filled is a request that passes the checks: it reaches its handler.
func filled(m protoreflect.Message, tenant string) proto.Message {
	set := func(name string, value any) {
		if fd := m.Descriptor().Fields().ByName(protoreflect.Name(name)); fd != nil {
			m.Set(fd, protoreflect.ValueOf(value))
		}
	}
	for _, name := range []string{"run", "task", "deployment", "claim_id", "alert", "event", "backfill"} {
		set(name, uuid.NewString())
	}
	set("tenant", tenant)
	set("name", "acme")
	if fd := m.Descriptor().Fields().ByName("lease"); fd != nil && fd.Kind() == protoreflect.StringKind {
		set("lease", "nothing")
	}
	set("attempt", int32(1))
	set("asset", "a/b")
	set("worker_id", "w")
	set("config", "nightly")
	set("channel", "no-such-channel")
	set("release", "no-such-release")
	switch req := m.Interface().(type) {
	case *servov1.DeployRequest:
		req.Manifest = &structpb.Struct{}
	case *servov1.ClaimRequest:
		req.Max, req.Pools = 1, []string{"default"}
	case *servov1.ReportRequest:
		req.Items = []*servov1.ReportItem{{Lease: "x", Action: &servov1.ReportItem_Start{Start: &servov1.Start{}}}}
	case *servov1.FanOutTaskRequest:
		req.Tasks = []*servov1.FanOutTask{{Asset: "a/b"}}
	case *servov1.FailTaskRequest:
		req.Error = &servov1.Failure{Code: "X"}
	case *servov1.ListTasksRequest:
		req.Asset = ""
	case *servov1.SetQuotasRequest:
		req.Quotas = &servov1.Quotas{MaxConcurrentRuns: proto.Int32(1)}
	case *servov1.CreateConfigRequest:
		req.Spec = &servov1.ConfigSpec{}
	case *servov1.UpdateConfigRequest:
		req.Spec = &servov1.ConfigSpec{}
	case *servov1.ApplyConfigsRequest:
		req.Configs = []*servov1.ConfigInput{{Name: "nightly", Spec: &servov1.ConfigSpec{}}}
	case *servov1.PreviewScheduleRequest:
		req.Trigger = &servov1.ConfigTrigger{Cron: "0 2 * * *"}
	case *servov1.RescheduleConfigRequest:
		req.Slot = timestamppb.New(time.Unix(2_000_000_000, 0))
	case *servov1.SearchRequest:
		req.Q = "night"
	case *servov1.ReleaseLockRequest:
		req.Key = "default/daily"
	case *servov1.SetTemplateRequest:
		req.Cron = "0 6 * * *"
	case *servov1.SendEventRequest:
		req.DedupeKey = "1"
	case *servov1.ReplaySubscriptionRequest:
		req.From = "now"
	case *servov1.CreateKeyRequest:
		req.Role = "viewer"
	case *servov1.RotateKeyRequest:
		req.Key = "no-such-key"
	case *servov1.RevokeKeyRequest:
		req.Key = "no-such-key"
	case *servov1.CreatePoolRequest:
		req.Kind = servov1.Pool_PULL
	case *servov1.UpdatePoolRequest:
		req.Pool = "no-such-pool"
	case *servov1.GetPoolRequest:
		req.Pool = "no-such-pool"
	case *servov1.DeletePoolRequest:
		req.Pool = "no-such-pool"
	case *servov1.RevokeSigningKeyRequest:
		req.Key = "no-such-key"
	case *servov1.TriggerRunsRequest:
		req.Runs = []*servov1.RunTrigger{{Pipeline: "p"}}
	case *servov1.CopyDeploymentRequest:
		req.To = "lab"
	case *servov1.DiffDeploymentsRequest:
		req.To = uuid.NewString()
	case *servov1.CreateReleaseRequest:
		req.Manifest = &structpb.Struct{}
	case *servov1.DiffReleasesRequest:
		req.To = "no-such-release"
	case *servov1.GetMaterializationRequest:
		req.Version = 1
	case *servov1.FollowChannelRequest:
		req.Workspace = "default"
	case *servov1.FollowChannelByLabelRequest:
		req.Label = "tier=internal"
	}
	return m.Interface()
}

func TestUnknownTenants(t *testing.T) {
	t.Parallel()
	b := setupBare(t, engine.Config{})
	for _, method := range methods(t) {
		if method.Input().Fields().ByName("tenant") == nil || method.IsStreamingServer() {
			continue
		}
		t.Run(string(method.Name())+" of a missing tenant is not found", func(t *testing.T) {
			t.Parallel()
			kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
			require.NoError(t, err)
			answer, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
			require.NoError(t, err)
			for _, name := range []string{"missing", "No Body", "no\x00body"} {
				req := filled(kind.New(), name)
				if deploy, ok := req.(*servov1.DeployRequest); ok {
					deploy.Manifest = manifestOf(t, manifestText)
				}
				err = b.conn.Invoke(t.Context(), fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name()), req, answer.New().Interface())
				requireRefused(t, err, codes.NotFound, "tenant")
			}
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	b := setupBare(t, engine.Config{})
	call := func(ctx context.Context, handler grpc.UnaryHandler) error {
		_, err := b.server.Unary()(ctx, &servov1.GetTenantRequest{Tenant: "acme"}, &grpc.UnaryServerInfo{FullMethod: servov1.TenantService_GetTenant_FullMethodName}, handler)
		return err
	}
	fails := func(err error) grpc.UnaryHandler { return func(context.Context, any) (any, error) { return nil, err } }
	secret := errors.New("password is swordfish")

	t.Run("a panic is ours: it is logged with its stack, and not shown", func(t *testing.T) {
		t.Parallel()
		err := call(t.Context(), func(context.Context, any) (any, error) { panic("swordfish") })
		require.Equal(t, codes.Internal, status.Code(err))
		require.NotContains(t, err.Error(), "swordfish")
		require.Equal(t, "INTERNAL", problemOf(t, err).GetCode())
		logged := b.log.with("a call panicked")
		require.Len(t, logged, 1)
		require.Equal(t, "swordfish", logged[0]["panic"])
		require.Contains(t, logged[0]["stack"], "contract_test.go")
	})

	t.Run("a stream's panic too", func(t *testing.T) {
		t.Parallel()
		other := setupBare(t, engine.Config{})
		err := other.server.Stream()(nil, silentStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/stream"},
			func(any, grpc.ServerStream) error { panic("swordfish") })
		require.Equal(t, codes.Internal, status.Code(err))
		require.Len(t, other.log.with("a call panicked"), 1)
	})

	t.Run("what is no fault is logged once and not shown", func(t *testing.T) {
		t.Parallel()
		err := call(t.Context(), fails(secret))
		require.Equal(t, codes.Internal, status.Code(err))
		require.NotContains(t, err.Error(), "swordfish")
		logged := b.log.with("a call failed")
		require.Len(t, logged, 1)
		require.Equal(t, servov1.TenantService_GetTenant_FullMethodName, logged[0]["method"])
		require.Equal(t, secret.Error(), logged[0]["error"])
	})

	t.Run("an unreachable database is worth another try", func(t *testing.T) {
		t.Parallel()
		p := requireRefused(t, call(t.Context(), fails(fmt.Errorf("read: %w", io.ErrUnexpectedEOF))), codes.Unavailable, "")
		require.Positive(t, p.GetRetryAfter().AsDuration())
		require.Len(t, b.log.with("database unavailable"), 1)
	})

	t.Run("a caller that has gone gets no error of the database", func(t *testing.T) {
		t.Parallel()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, codes.Canceled, status.Code(call(gone, fails(secret))))
	})

	t.Run("a fault and a status stay what they are", func(t *testing.T) {
		t.Parallel()
		err := call(t.Context(), fails(fmt.Errorf("deep: %w", fault.New(fault.Stale, "gone", fault.Field("lease"), fault.Remedy("stop")))))
		requireRefused(t, err, codes.Aborted, "lease")
		require.Equal(t, codes.DataLoss, status.Code(call(t.Context(), fails(status.Error(codes.DataLoss, "lost")))))
	})

	t.Run("each call is in the log of who debugs", func(t *testing.T) {
		t.Parallel()
		other := setupBare(t, engine.Config{})
		_, err := other.tenants.GetTenant(t.Context(), &servov1.GetTenantRequest{Tenant: "missing"})
		require.Error(t, err)
		logged := other.log.with("call")
		require.Len(t, logged, 1)
		require.NotEmpty(t, logged[0]["duration"])
		delete(logged[0], "duration")
		require.Equal(t, map[string]string{"level": "DEBUG", "method": "/servo.v1.TenantService/GetTenant", "code": "NotFound", "tenant": "missing"}, logged[0])
	})
}

// silentStream is a stream that nothing comes through.
type silentStream struct {
	grpc.ServerStream

	ctx context.Context
}

func (s silentStream) Context() context.Context { return s.ctx }

func TestMetadata(t *testing.T) {
	t.Parallel()
	b := setup(t)
	trigger := func(ctx context.Context) (*servov1.TriggerRunResponse, error) {
		return b.runs.TriggerRun(ctx, &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "single"})
	}

	t.Run("events record the actor and the caller's trace", func(t *testing.T) {
		t.Parallel()
		const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
		answer, err := trigger(metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-00f067aa0ba902b7-01"))
		require.NoError(t, err)
		created := b.events(t, answer.GetRun().GetId())[0]
		require.Equal(t, "open", created.GetActor())
		require.Equal(t, trace, created.GetTrace())
	})

	t.Run("a key that is too long or there twice is refused", func(t *testing.T) {
		t.Parallel()
		_, err := trigger(metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", strings.Repeat("k", 256)))
		requireRefused(t, err, codes.InvalidArgument, "idempotency_key")
		_, err = trigger(metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "a", "idempotency-key", "b"))
		requireRefused(t, err, codes.InvalidArgument, "idempotency_key")
		_, err = trigger(metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", strings.Repeat("k", 255)))
		require.NoError(t, err)
	})
}
