package rest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAlerts goes the REST paths of alerts and their channels, on a whole server.
func TestAlerts(t *testing.T) {
	t.Parallel()
	call := caller(t)
	call("POST", "/tenants", `{"name": "acme"}`, 200)
	const channels = "/tenants/acme/alert-channels"
	made := call("POST", channels, `{"name": "on-call", "url": "https://hooks.example.com/x", "severity": "HIGH"}`, 200)
	require.Contains(t, made["secret"], "whsec_")
	call("POST", channels, `{"name": "on-call", "url": "https://hooks.example.com/x"}`, 409)
	require.Contains(t, mustText(t, call("POST", channels, `{"name": "x", "url": "ftp://example.com"}`, 400)), "url")
	require.Contains(t, mustText(t, call("POST", channels, `{"name": "x", "url": "https://example.com", "severity": "LOUD"}`, 400)), "severity")
	call("POST", "/alert-channels", `{"name": "on-call", "url": "https://hooks.example.com/all"}`, 200)

	listed := mustText(t, call("GET", channels, "", 200))
	require.Contains(t, listed, "https://hooks.example.com/x")
	require.NotContains(t, listed, "whsec_")
	require.NotContains(t, listed, "https://hooks.example.com/all")
	call("DELETE", channels+"/on-call", "", 200)
	call("DELETE", channels+"/on-call", "", 404)
	require.Len(t, call("GET", "/alert-channels", "", 200)["channels"], 1)
	call("DELETE", "/alert-channels/on-call", "", 200)

	require.Empty(t, call("GET", "/tenants/acme/alerts?open=true&kind=RUN_LATE", "", 200)["alerts"])
	require.Contains(t, mustText(t, call("GET", "/tenants/acme/alerts?kind=LATE", "", 400)), "kind")
	call("GET", "/tenants/missing/alerts", "", 404)
	call("GET", "/tenants/acme/alerts/0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10", "", 404)
	require.Empty(t, call("GET", "/alerts", "", 200)["alerts"])
}
