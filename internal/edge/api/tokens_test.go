package api_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/edge/intercept"
)

func TestCut(t *testing.T) {
	t.Parallel()
	req := &servov1.ListTenantsRequest{PageSize: 3}
	kept, next, err := api.Cut(req, []string{"a", "b", "c", "d"})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, kept)
	require.Equal(t, "c", next)

	_, next, err = api.Cut(req, []string{"a", "b", "c"})
	require.NoError(t, err)
	require.Empty(t, next, "that was all")

	heavy := strings.Repeat("h", api.MaxPageBytes-1)
	kept, next, err = api.Cut(req, []string{heavy, "i", "jj"})
	require.NoError(t, err)
	require.Equal(t, []string{heavy, "i"}, kept)
	require.NotEmpty(t, next)
	kept, next, err = api.Cut(req, []string{heavy + heavy, "i"})
	require.NoError(t, err)
	require.Len(t, kept, 1, "at least one")
	require.NotEmpty(t, next)

	_, _, err = api.Cut(&servov1.ListTenantsRequest{PageSize: 101}, nil)
	require.True(t, fault.Is(err, fault.InvalidArgument), err)
}

// lists are the calls of the contract that have pages.
func lists(t testing.TB) []protoreflect.MethodDescriptor {
	t.Helper()
	var found []protoreflect.MethodDescriptor
	for _, file := range intercept.Contract() {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				if m := methods.Get(j); m.Input().Fields().ByName("page_token") != nil {
					found = append(found, m)
				}
			}
		}
	}
	require.Greater(t, len(found), 10)
	return found
}

// TestListsHavePages holds every list to the fields that tokens are opened from and sealed into.
func TestListsHavePages(t *testing.T) {
	t.Parallel()
	for _, m := range lists(t) {
		require.NotNil(t, m.Input().Fields().ByName("page_size"), m.FullName())
		require.NotNil(t, m.Output().Fields().ByName("next_page_token"), m.FullName())
	}
}

// TestNoListTakesForeignTokens goes through the door that every caller comes through.
func TestNoListTakesForeignTokens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 2 {
		b.trigger(t, "single")
	}
	first, err := b.runs.ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "acme", PageSize: 1})
	require.NoError(t, err)
	given := first.GetNextPageToken()
	require.NotEmpty(t, given)
	b.deploy(t, partitionedManifest)
	backfill, err := servov1.NewBackfillServiceClient(b.conn).CreateBackfill(t.Context(), &servov1.CreateBackfillRequest{Tenant: "acme", Asset: "p/days", Partitions: []string{"date=2026-01"}})
	require.NoError(t, err)

	ask := func(t *testing.T, m protoreflect.MethodDescriptor, token string) error {
		t.Helper()
		kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
		require.NoError(t, err)
		req := kind.New()
		for name, text := range map[protoreflect.Name]string{
			"tenant": "acme", "run": first.GetRuns()[0].GetId(), "task": first.GetRuns()[0].GetId(), "config": "a", "page_token": token,
			"backfill": backfill.GetId(), "asset": "p/days",
		} {
			if field := m.Input().Fields().ByName(name); field != nil {
				req.Set(field, protoreflect.ValueOfString(text))
			}
		}
		out, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
		require.NoError(t, err)
		return b.conn.Invoke(t.Context(), "/"+string(m.Parent().FullName())+"/"+string(m.Name()), req.Interface(), out.New().Interface())
	}
	unsigned := base64.RawURLEncoding.EncodeToString(append([]byte{2}, "0123456789abcdef"+first.GetRuns()[0].GetId()...))
	for _, m := range lists(t) {
		t.Run(string(m.Name()), func(t *testing.T) {
			t.Parallel()
			for _, token := range []string{first.GetRuns()[0].GetId(), "1", unsigned} {
				requireRefused(t, ask(t, m, token), codes.InvalidArgument, "page_token")
			}
			if m.Name() != "ListRuns" {
				requireRefused(t, ask(t, m, given), codes.InvalidArgument, "page_token")
			}
		})
	}

	t.Run("another server of the same database continues with the token", func(t *testing.T) {
		t.Parallel()
		other := newReplica(t, b, api.Options{})
		second, err := servov1.NewRunServiceClient(other).ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "acme", PageSize: 1, PageToken: given})
		require.NoError(t, err)
		require.Len(t, second.GetRuns(), 1)
		require.False(t, proto.Equal(first.GetRuns()[0], second.GetRuns()[0]))
	})
}
