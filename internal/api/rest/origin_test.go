package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOtherOrigins: no page of another origin is let in, whatever it asks, and whoever asks what
// it may do is told the methods and nothing else.
func TestOtherOrigins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	origins := []string{"https://evil.example", "null", "http://localhost", w.url}
	paths := []string{"/v1/status", "/v1/tenants", "/v1/tenants/acme", "/v1/tenants/acme/runs/" + w.run, "/v1/tenants/acme/runs/" + w.run + "/events", "/v1/nothing", "/openapi.json", "/docs", "/", "/healthz", "/metrics"}
	for _, origin := range origins {
		for _, path := range paths {
			for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "DELETE"} {
				res := call(t, w.url, method, path, "", "Origin: "+origin, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization, content-type", "Access-Control-Request-Private-Network: true")
				for name := range res.Header {
					require.False(t, strings.HasPrefix(name, "Access-Control-"), "%s %s: %s", method, path, name)
				}
				require.NotContains(t, res.Header.Values("Vary"), "Origin", "the answer is the same for every origin")
			}
		}
	}

	for path, allow := range map[string]string{
		"/v1/tenants":                "GET, HEAD, POST, OPTIONS",
		"/v1/status":                 "GET, HEAD, OPTIONS",
		"/v1/workers:claim":          "POST, OPTIONS",
		"/v1/tenants/acme/quotas":    "GET, HEAD, PUT, OPTIONS",
		"/v1/tenants/acme/runs:plan": "POST, OPTIONS",
	} {
		res := call(t, w.url, "OPTIONS", path, "", "Origin: https://evil.example", "Access-Control-Request-Method: POST")
		require.Equal(t, http.StatusNoContent, res.StatusCode, path)
		require.Equal(t, allow, res.Header.Get("Allow"), path)
		require.Empty(t, res.body)
	}
	require.Equal(t, http.StatusNotFound, call(t, w.url, "OPTIONS", "/v1/nothing", "", "Origin: https://evil.example").StatusCode)
}
