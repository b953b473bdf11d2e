package intercept_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/intercept"
)

func TestAuditedRequest(t *testing.T) {
	t.Parallel()
	secret := "sk_0123456789abcdef_" + strings.Repeat("A", 43)

	t.Run("secrets are left out, by their names and by their looks", func(t *testing.T) {
		t.Parallel()
		parameters, err := structpb.NewStruct(map[string]any{
			"password": "hunter2", "db": map[string]any{"API_KEY": "x1", "access_token": "x2", "host": "db1"}, "note": "use " + secret, "list": []any{secret}, secret: "y",
		})
		require.NoError(t, err)
		_, kept := intercept.Audited(&servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "p", Parameters: parameters})
		for _, gone := range []string{"hunter2", "x1", "x2", secret} {
			require.NotContains(t, kept, gone)
		}
		require.Contains(t, kept, "db1")
		require.Contains(t, kept, "sk_0123456789abcdef_…")
		subject, kept := intercept.Audited(&servov1.RevokeKeyRequest{Tenant: "acme", Key: secret, Reason: secret})
		require.Equal(t, "key/sk_0123456789abcdef_…", subject)
		require.NotContains(t, kept, secret)
	})

	t.Run("what is large is shortened, and what cannot be kept is replaced", func(t *testing.T) {
		t.Parallel()
		fields := map[string]any{}
		for i := range 2000 {
			fields[fmt.Sprint("field", i)] = strings.Repeat("x", 20)
		}
		large, err := structpb.NewStruct(fields)
		require.NoError(t, err)
		for _, req := range []proto.Message{
			&servov1.DeployRequest{Tenant: "acme", Manifest: large},
			&servov1.TriggerRunRequest{Tenant: strings.Repeat("\x00\xff", 1<<20), Pipeline: strings.Repeat("<", 1000), Note: strings.Repeat("\x01", 1000)},
			&servov1.ClaimRequest{Pools: strings.Split(strings.Repeat("pool ", 5000), " ")},
		} {
			subject, kept := intercept.Audited(req)
			require.LessOrEqual(t, len(kept), 4<<10)
			require.LessOrEqual(t, len(subject), 510)
			require.NotContains(t, kept, "\x00")
			require.NotContains(t, kept, `\u0000`)
		}
		_, kept := intercept.Audited(&servov1.DeployRequest{Tenant: "acme", Manifest: large})
		require.Contains(t, kept, "bytes]")
		require.Contains(t, kept, "acme")
	})
}
