package daemon_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
	"go.arco.dev/servo/internal/edge/rest"
)

// rawBytes is a codec that sends bytes as they are.
type rawBytes struct{}

func (rawBytes) Name() string { return "proto" }

func (rawBytes) Marshal(v any) ([]byte, error) {
	data, _ := v.([]byte)
	return data, nil
}

func (rawBytes) Unmarshal([]byte, any) error { return nil }

// TestUnreadableRequests: gRPC requests that cannot be decoded or are too large are refused with
// the caller's code and a problem that states what to do, in unary calls and in streams.
func TestUnreadableRequests(t *testing.T) {
	t.Parallel()
	conn := servertest.Start(t).Dial(t)
	text := func(of []byte) []byte { return append([]byte{0x0a, byte(len(of))}, of...) } // field 1
	long := append([]byte{0x0a, 0x81, 0x80, 0x80, 0x02}, bytes.Repeat([]byte("x"), rest.MaxBody+1)...)
	for name, c := range map[string]struct {
		data    []byte
		options []grpc.CallOption
		status  codes.Code
		code    string
	}{
		"bad UTF-8":             {text([]byte("a\xffb")), nil, codes.InvalidArgument, "INVALID_ARGUMENT"},
		"no message":            {[]byte{0xff, 0xff, 0xff}, nil, codes.InvalidArgument, "INVALID_ARGUMENT"},
		"truncated":             {[]byte{0x0a, 0x7f}, nil, codes.InvalidArgument, "INVALID_ARGUMENT"},
		"too large":             {long, nil, codes.ResourceExhausted, "TOO_LARGE"},
		"too large when opened": {long, []grpc.CallOption{grpc.UseCompressor(gzip.Name)}, codes.ResourceExhausted, "TOO_LARGE"},
	} {
		options := append([]grpc.CallOption{grpc.ForceCodec(rawBytes{})}, c.options...)
		for _, method := range []string{servov1.TenantService_GetTenant_FullMethodName, servov1.RunService_WatchRun_FullMethodName} {
			stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method, options...)
			require.NoError(t, err)
			_ = stream.SendMsg(c.data) // the answer names the error
			_ = stream.CloseSend()
			var reply []byte
			err = stream.RecvMsg(&reply)
			require.Equal(t, c.status, status.Code(err), "%s, %s: %v", name, method, err)
			details := status.Convert(err).Details()
			require.Len(t, details, 1, "%s, %s: %v", name, method, err)
			problem, ok := details[0].(*servov1.Problem)
			require.True(t, ok)
			require.Equal(t, c.code, problem.GetCode(), "%s, %s", name, method)
			require.NotEmpty(t, problem.GetMessage())
			require.NotEmpty(t, problem.GetRemedy())
		}
	}
}
