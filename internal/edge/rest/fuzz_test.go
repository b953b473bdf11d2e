package rest_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzEdge sends whatever comes to mind: no request may be answered with a server's error,
// and no error with anything but a problem document.
func FuzzEdge(f *testing.F) {
	w := newWorld(f)
	target, err := url.Parse(w.url)
	require.NoError(f, err)
	for _, c := range edgeCases() {
		if len(c.body) < 1<<16 {
			path, query, _ := strings.Cut(strings.ReplaceAll(c.path, "{run}", w.run), "?")
			f.Add(c.method, path, query, "Accept", "application/json", c.body)
		}
	}
	f.Add("GET", "/v1/tenants/acme/runs/"+w.run+"/events", "after=\x00", "Last-Event-ID", "\xff", "")
	f.Add("POST", "/v1/tenants/acme/runs/"+w.run+":retry", "", "Idempotency-Key", "\x7f", `{"mode":9}`)
	f.Add("POST", "/v1/workers:claim", "", "Content-Type", "application/json;;", `{"worker_id":"w","claim_id":"`+w.run+`","pools":["default"],"max":1,"wait":"0.1s"}`)

	f.Fuzz(func(t *testing.T, method, path, query, header, value, body string) {
		if method == http.MethodConnect {
			return // it is for proxies: the path is none
		}
		if strings.Contains(value, "event-stream") || strings.Contains(body, "wait") {
			return // an answer that may take as long as it likes
		}
		req, err := http.NewRequestWithContext(t.Context(), method, w.url, strings.NewReader(body))
		if err != nil {
			return
		}
		req.URL = &url.URL{Scheme: target.Scheme, Host: target.Host, Path: "/" + strings.TrimPrefix(path, "/"), RawQuery: query}
		req.Header.Set("Content-Type", "application/json")
		switch http.CanonicalHeaderKey(header) {
		case "Connection", "Expect", "Te", "Upgrade", "Host", "Transfer-Encoding", "Content-Length", "Trailer":
		default:
			req.Header.Set(header, value)
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return // no HTTP client would send it
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Less(t, res.StatusCode, http.StatusInternalServerError, "%s", data)
		// A bad request line or header is HTTP's own matter: it never reaches the edge.
		if res.StatusCode >= http.StatusBadRequest && method != http.MethodHead && res.Header.Get("X-Request-Id") != "" {
			requireProblem(t, answer{res, data})
		}
	})
}
