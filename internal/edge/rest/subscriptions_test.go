package rest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSubscriptions goes the REST paths of subscriptions, on a whole server.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	call := caller(t)
	call("POST", "/tenants", `{"name": "acme"}`, 200)
	const of = "/tenants/acme/subscriptions"
	made := call("POST", of, `{"name": "audit", "url": "https://hooks.example.invalid/x", "types": ["run.*", "config.created"], "from": "beginning"}`, 200)
	require.Contains(t, made["secret"], "whsec_")
	call("POST", of, `{"name": "audit", "url": "https://hooks.example.invalid/x"}`, 409)
	for field, body := range map[string]string{
		"url":   `{"name": "x", "url": "ftp://example.com"}`,
		"name":  `{"name": "-", "url": "https://example.com"}`,
		"types": `{"name": "x", "url": "https://example.com", "types": ["runs.*"]}`,
		"from":  `{"name": "x", "url": "https://example.com", "from": "yesterday"}`,
	} {
		require.Contains(t, mustText(t, call("POST", of, body, 400)), field)
	}
	call("POST", "/subscriptions", `{"name": "audit", "url": "https://hooks.example.invalid/all"}`, 200)

	listed := mustText(t, call("GET", of, "", 200))
	require.Contains(t, listed, "https://hooks.example.invalid/x")
	require.NotContains(t, listed, "whsec_")
	require.NotContains(t, listed, "https://hooks.example.invalid/all")

	paused := call("POST", of+"/audit:pause", `{"reason": "tonight"}`, 200)
	require.Equal(t, "PAUSED", paused["state"])
	require.Equal(t, "tonight", paused["pause_reason"])
	require.Equal(t, "1.5.6.0", call("POST", of+"/audit:replay", `{"from": "1.5.6.0"}`, 200)["position"])
	call("POST", of+"/audit:replay", `{}`, 400)
	call("POST", of+"/audit:replay", `{"from": "1.999999999999.1"}`, 400)
	require.Equal(t, "PAUSED", call("GET", of+"/audit", "", 200)["state"])
	require.NotEqual(t, "PAUSED", call("POST", of+"/audit:resume", `{}`, 200)["state"])

	call("GET", of+"/missing", "", 404)
	call("GET", "/tenants/missing/subscriptions", "", 404)
	call("DELETE", of+"/audit", "", 200)
	call("DELETE", of+"/audit", "", 404)
	require.Len(t, call("GET", "/subscriptions", "", 200)["subscriptions"], 1)
	call("DELETE", "/subscriptions/audit", "", 200)
}
