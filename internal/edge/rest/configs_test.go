package rest_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// caller starts a server and gives what calls it and wants a status.
func caller(t *testing.T) func(method, path, body string, want int) map[string]any {
	t.Helper()
	return callerOf(t, servertest.Start(t))
}

// callerOf gives what calls a server.
func callerOf(t *testing.T, s *servertest.Server) func(method, path, body string, want int) map[string]any {
	t.Helper()
	return func(method, path, body string, want int) map[string]any {
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
}

// TestConfigs goes the REST paths of configs and slots, on a whole server.
func TestConfigs(t *testing.T) {
	t.Parallel()
	call := caller(t)
	call("POST", "/tenants", `{"name": "acme"}`, 200)
	call("POST", "/tenants", `{"name": "brick"}`, 200)
	call("POST", "/tenants/acme/deployments", `{"manifest": {"version": 1, "assets": [{"key": "a/b", "go": {}, "pool": "idle"}], "pipelines": [{"name": "p"}]}}`, 200)
	const configs = "/tenants/acme/configs"
	const spec = `{"pipeline": "p", "labels": {"provider": "AWS"}, "trigger": {"cron": "0 2 * * *"}, "max_execution": "15m"}`

	made := call("POST", configs, `{"name": "nightly", "spec": `+spec+`}`, 200)
	require.Equal(t, "15m", made["spec"].(map[string]any)["max_execution"], "durations are what people write")
	require.Equal(t, "nightly", call("GET", configs+"/nightly?workspace=default", "", 200)["name"])
	require.Equal(t, "nightly", call("GET", configs+"/"+made["id"].(string), "", 200)["name"])
	require.Len(t, call("GET", configs+"?label=provider=AWS&state=ACTIVE&name_prefix=night", "", 200)["configs"], 1)
	require.Empty(t, call("GET", configs+"?label=provider=GCP", "", 200)["configs"])
	call("GET", "/tenants/brick/configs/nightly", "", 404)
	call("GET", "/tenants/brick/configs/"+made["id"].(string), "", 404)
	call("POST", configs, `{"name": "nightly", "spec": `+spec+`}`, 409)

	require.EqualValues(t, 2, call("PATCH", configs+"/nightly", `{"version": 1, "spec": {"pipeline": "p", "trigger": {"cron": "0 3 * * *"}}}`, 200)["version"])
	conflict := call("PATCH", configs+"/nightly", `{"version": 1, "spec": `+spec+`}`, 409)
	require.EqualValues(t, 2, conflict["version"], conflict)
	bad := call("PATCH", configs+"/nightly", `{"spec": {"pipeline": "p", "trigger": {"cron": "0 0 30 2 *"}}}`, 400)
	require.Contains(t, mustText(t, bad), "spec.trigger.cron")
	require.Contains(t, mustText(t, call("PATCH", configs+"/nightly", `{"spec": {"pipelin": "p"}}`, 400)), "pipelin")

	require.Equal(t, "PAUSED", call("POST", configs+"/nightly:pause", `{"reason": "why"}`, 200)["state"])
	require.Equal(t, "ACTIVE", call("POST", configs+"/nightly:resume", `{}`, 200)["state"])
	require.Equal(t, false, call("POST", configs+"/nightly:trigger", `{}`, 200)["already_running"])
	require.Equal(t, true, call("POST", configs+"/nightly:trigger", `{}`, 200)["already_running"])
	call("POST", configs+"/nightly:reschedule", `{"slot": "2020-01-31T06:00:00Z"}`, 400)
	require.Len(t, call("GET", configs+"/nightly:preview?count=3&after=2027-01-31T06:00:00Z", "", 200)["slots"], 3)
	require.Len(t, call("GET", configs+"/nightly/audit?page_size=100", "", 200)["entries"], 4)
	require.Empty(t, call("GET", configs+"/nightly/slots?from=2020-01-31T06:00:00Z", "", 200)["slots"])

	applied := call("POST", configs+":apply", `{"configs": [{"name": "nightly", "spec": `+spec+`}, {"name": "other", "spec": `+spec+`}], "dry_run": true}`, 200)
	require.Equal(t, []any{1.0, 1.0, 0.0}, []any{applied["created"], applied["changed"], applied["unchanged"]})
	call("GET", configs+"/other", "", 404)

	tick := call("POST", "/scheduler/tick", `{"batch_size": 10, "max_processing_time": "60s"}`, 200)
	require.Contains(t, tick, "configs_processed")
	require.Contains(t, tick, "runs_created")
	require.Contains(t, tick, "processing_time")
	call("DELETE", configs+"/nightly?reason=closed", "", 200)
	call("GET", configs+"/nightly", "", 404)
}

func mustText(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}
