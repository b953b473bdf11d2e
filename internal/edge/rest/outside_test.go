package rest_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// TestOutside goes the REST paths of events and templates, on a whole server.
func TestOutside(t *testing.T) {
	t.Parallel()
	call := caller(t)
	call("POST", "/tenants", `{"name": "acme"}`, 200)
	call("POST", "/tenants", `{"name": "brick"}`, 200)
	call("POST", "/tenants/acme/deployments", `{"manifest": {"version": 1, "assets": [{"key": "a/b", "go": {}, "pool": "idle"}],
		"pipelines": [{"name": "p", "parameters": [{"name": "day", "type": "string", "default": "1"}]}]}}`, 200)
	const (
		configs   = "/tenants/acme/configs"
		events    = "/tenants/acme/events"
		templates = "/tenants/acme/templates"
	)
	call("POST", configs, `{"name": "listening", "spec": {"pipeline": "p", "trigger": {"event": {"name": "prices"}}}}`, 200)

	sent := call("POST", events, `{"name": "prices", "dedupe_key": "k", "parameters": {"day": "2"}}`, 200)
	require.Equal(t, false, sent["duplicate"])
	first := sent["event"].(map[string]any)
	require.EqualValues(t, 1, first["listeners"])
	again := call("POST", events, `{"name": "prices", "dedupe_key": "k", "parameters": {"day": "2"}}`, 200)
	require.Equal(t, true, again["duplicate"])
	require.Equal(t, first["id"], again["event"].(map[string]any)["id"])
	require.Contains(t, mustText(t, call("POST", events, `{"name": "prices", "dedupe_key": "k"}`, 409)), "other parameters")
	require.Contains(t, mustText(t, call("POST", events, `{"name": "prices", "dedupe_key": "x", "parameters": {"dya": "2"}}`, 400)), "did you mean day")
	require.Contains(t, mustText(t, call("POST", events, `{"name": "prices"}`, 400)), "dedupe_key")
	require.Contains(t, mustText(t, call("POST", events, `{"nam": "prices"}`, 400)), "nam")
	require.EqualValues(t, 0, call("POST", events, `{"name": "missing", "dedupe_key": "k"}`, 200)["event"].(map[string]any)["listeners"])
	id := first["id"].(string)
	require.Equal(t, "prices", call("GET", events+"/"+id, "", 200)["name"])
	call("GET", "/tenants/brick/events/"+id, "", 404)
	call("GET", events+"/"+uuid.NewString(), "", 404)
	call("GET", events+"/x", "", 400)

	require.EqualValues(t, 0, call("PUT", templates+"/early", `{"cron": "0 6 * * *"}`, 200)["configs_changed"])
	call("POST", configs, `{"name": "early", "spec": {"pipeline": "p", "trigger": {"template": "early"}}}`, 200)
	require.EqualValues(t, 1, call("PUT", templates+"/early", `{"cron": "0 5 * * *", "description": "before work"}`, 200)["configs_changed"])
	call("PUT", templates+"/hourly", `{"cron": "0 5 * * *"}`, 400)
	require.Len(t, call("GET", templates, "", 200)["templates"], 6)
	require.Contains(t, mustText(t, call("DELETE", templates+"/early", "", 409)), "1 configs use template early: early")
	require.Contains(t, mustText(t, call("POST", configs, `{"name": "x", "spec": {"pipeline": "p", "trigger": {"template": "earyl"}}}`, 400)), "did you mean early?")
	call("DELETE", configs+"/early", "", 200)
	call("DELETE", templates+"/early", "", 200)
}
