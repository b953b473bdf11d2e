package daemon_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// TestCompressedMessages: a compressed message is answered, and is as long as what it becomes.
func TestCompressedMessages(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	conn := s.Dial(t)
	compressed := grpc.UseCompressor(gzip.Name)
	tenants, deployments := servov1.NewTenantServiceClient(conn), servov1.NewDeploymentServiceClient(conn)

	made, err := tenants.CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "acme"}, compressed)
	require.NoError(t, err)
	require.Equal(t, "acme", made.GetName())

	bomb, err := structpb.NewStruct(map[string]any{"version": 1, "x": strings.Repeat(" ", 64<<20)})
	require.NoError(t, err)
	_, err = deployments.Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: bomb}, compressed)
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)

	_, err = tenants.GetTenant(t.Context(), &servov1.GetTenantRequest{Tenant: "acme"}, compressed)
	require.NoError(t, err, "the connection is good for the next call")
}
