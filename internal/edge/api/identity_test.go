package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
)

// TestIdentity: the actor of a change is the owner of the key. What a caller writes about itself is a
// note.
func TestIdentity(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	key := func(name string) string {
		text, _ := g.key(t, "acme", access.Settings{Name: name, Role: access.Operator})
		return text
	}
	ann, bob := key("ann"), key("bob")
	runs := servov1.NewRunServiceClient(g.conn)
	req := &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "single", Note: "for bob, signed root"}
	as := func(key string) func(*servov1.TriggerRunRequest) (*servov1.TriggerRunResponse, error) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key, "idempotency-key", "nightly")
		return func(req *servov1.TriggerRunRequest) (*servov1.TriggerRunResponse, error) {
			return runs.TriggerRun(ctx, req)
		}
	}
	first, err := as(ann)(req)
	require.NoError(t, err)
	require.Contains(t, first.GetRun().GetTriggeredBy(), "ann")
	created := g.events(t, first.GetRun().GetId())[0]
	require.Equal(t, first.GetRun().GetTriggeredBy(), created.GetActor())
	require.Equal(t, "for bob, signed root", created.GetData().GetFields()["note"].GetStringValue())

	again, err := as(ann)(req)
	require.NoError(t, err)
	require.True(t, again.GetRepeatedRequest())
	_, err = as(bob)(req)
	requireRefused(t, err, codes.FailedPrecondition, "idempotency_key")
}
