package api_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"pgregory.net/rapid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/api"
)

func TestPageTokens(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{7}, 32)
	list := func() *servov1.ListRunsRequest {
		return &servov1.ListRunsRequest{Tenant: "acme", Pipeline: "daily", State: []servov1.Run_State{servov1.Run_FAILED}}
	}
	next := func(t testing.TB, position string) string {
		t.Helper()
		token, err := api.Seal(secret, list(), position)
		require.NoError(t, err)
		return token
	}

	t.Run("a token goes on where it was given, whatever the page's size", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			position := rapid.StringN(1, -1, 500).Draw(rt, "position")
			req := list()
			req.PageSize, req.PageToken = 7, next(t, position)
			after, err := api.Unseal(secret, req)
			require.NoError(rt, err)
			require.Equal(rt, position, after)
		})
	})

	t.Run("a token with any bit of any byte changed, cut off or made longer is refused", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			token := next(t, rapid.StringN(1, -1, 100).Draw(rt, "position"))
			raw, err := base64.RawURLEncoding.DecodeString(token)
			require.NoError(rt, err)
			flip := byte(rapid.IntRange(1, 255).Draw(rt, "flip"))
			for i := range raw {
				changed := bytes.Clone(raw)
				changed[i] ^= flip
				req := list()
				req.PageToken = base64.RawURLEncoding.EncodeToString(changed)
				_, err := api.Unseal(secret, req)
				requireBadToken(t, err)
			}
			for i := range token { // of the text too: none has two spellings
				req := list()
				req.PageToken = token[:i]
				_, err := api.Unseal(secret, req)
				requireBadToken(t, err)
			}
			req := list()
			req.PageToken = token + rapid.StringMatching(`[A-Za-z0-9_=-]{1,8}`).Draw(rt, "tail")
			_, err = api.Unseal(secret, req)
			requireBadToken(t, err)
		})
	})

	t.Run("a token of another installation is refused", func(t *testing.T) {
		t.Parallel()
		req := list()
		req.PageToken = next(t, "x")
		_, err := api.Unseal(bytes.Repeat([]byte{8}, 32), req)
		requireBadToken(t, err)
	})

	t.Run("a token of another filter, tenant or call is refused", func(t *testing.T) {
		t.Parallel()
		token := next(t, "x")
		tenant, pipeline, state := list(), list(), list()
		tenant.Tenant, pipeline.Pipeline, state.State = "brick", "", nil
		for _, req := range []*servov1.ListRunsRequest{tenant, pipeline, state} {
			req.PageToken = token
			_, err := api.Unseal(secret, req)
			requireBadToken(t, err)
		}
		_, err := api.Unseal(secret, &servov1.ListDeploymentsRequest{Tenant: "acme", PageToken: token})
		requireBadToken(t, err)
	})

	t.Run("two calls with the same fields do not share their tokens", func(t *testing.T) {
		t.Parallel()
		token, err := api.Seal(secret, &servov1.ListPipelinesRequest{Tenant: "acme"}, "x")
		require.NoError(t, err)
		_, err = api.Unseal(secret, &servov1.ListDeploymentsRequest{Tenant: "acme", PageToken: token})
		requireBadToken(t, err)
	})

	for _, text := range []string{"x", "AAAA", "====", "%%%", base64.RawURLEncoding.EncodeToString(make([]byte, 40)), strings.Repeat("A", 100)} {
		t.Run(text+" is no token", func(t *testing.T) {
			t.Parallel()
			req := list()
			req.PageToken = text
			_, err := api.Unseal(secret, req)
			requireBadToken(t, err)
		})
	}
}

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

func requireBadToken(t testing.TB, err error) {
	t.Helper()
	f, ok := fault.As(err)
	require.True(t, ok, err)
	require.Equal(t, fault.InvalidArgument, f.Code)
	require.Equal(t, "page_token", f.Violation.Field)
	require.NotEmpty(t, f.Violation.Remedy)
}

// lists are the calls of the contract that have pages.
func lists(t testing.TB) []protoreflect.MethodDescriptor {
	t.Helper()
	var found []protoreflect.MethodDescriptor
	for _, file := range api.Contract() {
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

	ask := func(t *testing.T, m protoreflect.MethodDescriptor, token string) error {
		t.Helper()
		kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
		require.NoError(t, err)
		req := kind.New()
		for name, text := range map[protoreflect.Name]string{
			"tenant": "acme", "run": first.GetRuns()[0].GetId(), "task": first.GetRuns()[0].GetId(), "config": "a", "page_token": token,
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

	t.Run("another server of the same database goes on with the token", func(t *testing.T) {
		t.Parallel()
		other := newReplica(t, b, api.Config{})
		second, err := servov1.NewRunServiceClient(other).ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "acme", PageSize: 1, PageToken: given})
		require.NoError(t, err)
		require.Len(t, second.GetRuns(), 1)
		require.False(t, proto.Equal(first.GetRuns()[0], second.GetRuns()[0]))
	})
}
