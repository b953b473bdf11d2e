package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// TestOtherOrigins: no page of another origin gets access, whatever it requests, and a preflight request is
// answered with the methods and nothing else.
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

// TestCrossOriginWrites: a page of another origin changes nothing, on a server without keys and on
// one with; programs that are no browsers are let through.
func TestCrossOriginWrites(t *testing.T) {
	t.Parallel()
	open := servertest.Start(t)
	keyed, _ := servertest.StartLocked(t)
	writes := map[string]string{
		"/v1/admin/dispatch:pause": "POST", "/v1/signing-keys:rotate": "POST", "/v1/scheduler/tick": "POST", "/v1/tenants": "POST",
		"/v1/tenants/acme/quotas": "PUT", "/v1/tenants/acme/configs/x": "PATCH", "/v1/pools/x": "DELETE", "/v1/tenants/acme/runs": "POST",
		"/v1/callbacks/a/b/c/1/start": "POST", "/v1/nothing": "POST",
	}
	hostile := [][]string{
		{"Sec-Fetch-Site: cross-site"},
		{"Sec-Fetch-Site: same-site"},
		{"Origin: https://evil.example"},
		{"Origin: null"},
		{"Sec-Fetch-Site: cross-site", "Origin: https://evil.example"},
		{"Sec-Fetch-Site: cross-site", "Authorization: Bearer sk_x", "Cookie: servo_session=x"},
	}
	for _, s := range []*servertest.Server{open, keyed} {
		for path, method := range writes {
			for _, headers := range hostile {
				for _, body := range []string{"", `{}`} {
					res := call(t, s.URL, method, path, body, headers...)
					require.Equal(t, http.StatusForbidden, res.StatusCode, "%s %s %v: %s", method, path, headers, res.body)
					requireProblem(t, res)
					require.Contains(t, res.json(t)["detail"], "cross-origin")
				}
			}
			for _, headers := range [][]string{nil, {"Sec-Fetch-Site: same-origin"}, {"Sec-Fetch-Site: none"}, {"Origin: " + s.URL}} {
				res := call(t, s.URL, method, path, `{"nothing": 1}`, headers...)
				require.NotContains(t, string(res.body), "cross-origin", "%s %s %v", method, path, headers)
			}
		}
		for _, headers := range hostile { // reading is harmless: no page of another origin sees the answer
			require.NotEqual(t, http.StatusForbidden, call(t, s.URL, "GET", "/openapi.json", "", headers...).StatusCode)
		}
	}
}
