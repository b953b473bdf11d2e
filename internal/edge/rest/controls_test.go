package rest_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// TestControls goes the REST paths of what operators do by hand, on a whole server.
func TestControls(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	call := func(method, path, body string, want int) map[string]any {
		t.Helper()
		req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, s.URL+"/v1"+path, strings.NewReader(body))
		require.NoError(t, err)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		answer, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, want, answer.StatusCode, "%s %s: %s", method, path, text)
		var out map[string]any
		require.NoError(t, json.Unmarshal(text, &out))
		return out
	}
	part := func(from map[string]any, key string) map[string]any {
		t.Helper()
		inside, ok := from[key].(map[string]any)
		require.True(t, ok, "%s in %v", key, from)
		return inside
	}
	call("POST", "/tenants", `{"name": "acme"}`, 200)
	call("POST", "/tenants/acme/deployments", `{"manifest": {"version": 1, "assets": [{"key": "a/b", "go": {}, "pool": "idle"}], "pipelines": [{"name": "p"}]}}`, 200)

	require.Equal(t, "why", part(call("POST", "/tenants/acme/assets/a/b:pause", `{"reason": "why"}`, 200), "paused")["reason"])
	require.NotNil(t, call("GET", "/tenants/acme/assets/a/b", "", 200)["paused"])
	require.Equal(t, true, call("POST", "/tenants/acme/assets/a/b:resume", `{}`, 200)["was_paused"])
	call("POST", "/tenants/acme/assets/a/c:pause", `{}`, 404)

	require.Equal(t, true, part(call("POST", "/admin/dispatch:pause", `{"reason": "why"}`, 200), "dispatch")["paused"])
	require.Equal(t, true, part(call("GET", "/status", "", 200), "dispatch")["paused"])
	require.Equal(t, true, part(call("GET", "/admin/dispatch", "", 200), "dispatch")["paused"])
	call("POST", "/admin/dispatch:resume", `{}`, 200)

	quotas := call("PUT", "/tenants/acme/quotas", `{"quotas": {"max_concurrent_runs": 1}}`, 200)
	require.EqualValues(t, 1, part(quotas, "quotas")["max_concurrent_runs"])
	require.Equal(t, quotas["version"], call("GET", "/tenants/acme/quotas", "", 200)["version"])
	call("PUT", "/tenants/acme/quotas", `{"quotas": {"max_concurrent_runs": -2}}`, 400)

	first := part(call("POST", "/tenants/acme/runs", `{"pipeline": "p"}`, 200), "run")
	again := call("POST", "/tenants/acme/runs", `{"pipeline": "p", "wait_for_lock": "0.1s"}`, 200)
	require.Equal(t, true, again["already_running"])
	require.Equal(t, first["id"], part(again, "run")["id"])
	call("POST", "/tenants/acme/runs", `{"select": ["a/b"]}`, 429)
	pending := part(call("POST", "/tenants/acme/runs", `{"select": ["a/b"], "wait_for_quota": true}`, 200), "run")
	require.Equal(t, "PENDING", pending["state"])

	locks, ok := call("GET", "/tenants/acme/locks", "", 200)["locks"].([]any)
	require.True(t, ok)
	require.Len(t, locks, 1)
	released := call("POST", "/tenants/acme/locks:release", `{"key": "default/p", "reason": "enough"}`, 200)
	require.Equal(t, first["id"], part(released, "run")["id"])
	call("POST", "/tenants/acme/locks:release", `{"key": "default/p"}`, 404)

	run, _ := first["id"].(string)
	call("POST", "/tenants/acme/runs/"+run+"/tasks/"+uuid.NewString()+":forceCancel", `{}`, 404)
	retried := call("POST", "/tenants/acme/runs/"+run+":retry", `{"mode": "FROM", "from": "a/b"}`, 429)
	require.Equal(t, "max_concurrent_runs", retried["quota"])
}
