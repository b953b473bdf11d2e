package intercept_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/intercept"
)

func TestPageTokens(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{7}, 32)
	list := func() *servov1.ListRunsRequest {
		return &servov1.ListRunsRequest{Tenant: "acme", Pipeline: "daily", State: []servov1.Run_State{servov1.Run_FAILED}}
	}
	next := func(t testing.TB, position string) string {
		t.Helper()
		token, err := intercept.Seal(secret, list(), position)
		require.NoError(t, err)
		return token
	}

	t.Run("a token continues after its page, whatever the size of the page", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			position := rapid.StringN(1, -1, 500).Draw(rt, "position")
			req := list()
			req.PageSize, req.PageToken = 7, next(t, position)
			after, err := intercept.Unseal(secret, req)
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
				_, err := intercept.Unseal(secret, req)
				requireBadToken(t, err)
			}
			for i := range token { // of the text too: none has two spellings
				req := list()
				req.PageToken = token[:i]
				_, err := intercept.Unseal(secret, req)
				requireBadToken(t, err)
			}
			req := list()
			req.PageToken = token + rapid.StringMatching(`[A-Za-z0-9_=-]{1,8}`).Draw(rt, "tail")
			_, err = intercept.Unseal(secret, req)
			requireBadToken(t, err)
		})
	})

	t.Run("a token of another installation is refused", func(t *testing.T) {
		t.Parallel()
		req := list()
		req.PageToken = next(t, "x")
		_, err := intercept.Unseal(bytes.Repeat([]byte{8}, 32), req)
		requireBadToken(t, err)
	})

	t.Run("a token of another filter, tenant or call is refused", func(t *testing.T) {
		t.Parallel()
		token := next(t, "x")
		tenant, pipeline, state := list(), list(), list()
		tenant.Tenant, pipeline.Pipeline, state.State = "brick", "", nil
		for _, req := range []*servov1.ListRunsRequest{tenant, pipeline, state} {
			req.PageToken = token
			_, err := intercept.Unseal(secret, req)
			requireBadToken(t, err)
		}
		_, err := intercept.Unseal(secret, &servov1.ListDeploymentsRequest{Tenant: "acme", PageToken: token})
		requireBadToken(t, err)
	})

	t.Run("two calls with the same fields do not share their tokens", func(t *testing.T) {
		t.Parallel()
		token, err := intercept.Seal(secret, &servov1.ListPipelinesRequest{Tenant: "acme"}, "x")
		require.NoError(t, err)
		_, err = intercept.Unseal(secret, &servov1.ListDeploymentsRequest{Tenant: "acme", PageToken: token})
		requireBadToken(t, err)
	})

	for _, text := range []string{"x", "AAAA", "====", "%%%", base64.RawURLEncoding.EncodeToString(make([]byte, 40)), strings.Repeat("A", 100)} {
		t.Run(text+" is no token", func(t *testing.T) {
			t.Parallel()
			req := list()
			req.PageToken = text
			_, err := intercept.Unseal(secret, req)
			requireBadToken(t, err)
		})
	}
}

func requireBadToken(t testing.TB, err error) {
	t.Helper()
	f, ok := fault.As(err)
	require.True(t, ok, err)
	require.Equal(t, fault.InvalidArgument, f.Code)
	require.Equal(t, "page_token", f.Violation.Field)
	require.NotEmpty(t, f.Violation.Remedy)
}
