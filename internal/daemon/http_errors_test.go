package daemon_test

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// TestRefusalsAreProblems sends requests that net/http refuses before any handler, and paths that
// http.ServeMux would redirect: each answer is a problem, also after an earlier answer on the same
// connection.
func TestRefusalsAreProblems(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	const healthy = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for _, before := range []string{"", healthy} {
		for name, c := range map[string]struct {
			request string
			status  int
			code    string
		}{
			"headers too large": {"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", 431, "TOO_LARGE"},
			"no HTTP":           {"hello there\r\n\r\n", 400, "INVALID_ARGUMENT"},
			"no host":           {"GET /v1/status HTTP/1.1\r\n\r\n", 400, "INVALID_ARGUMENT"},
			"bad header":        {"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nA B: c\r\n\r\n", 400, "INVALID_ARGUMENT"},
			"bad escape":        {"GET /v1/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "INVALID_ARGUMENT"},
			"transfer encoding": {"POST /v1/tenants HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "UNIMPLEMENTED"},
			"version":           {"GET /v1/status HTTP/3.0\r\nHost: localhost\r\n\r\n", 505, "INVALID_ARGUMENT"},
			"expectation":       {"POST /v1/tenants HTTP/1.1\r\nHost: localhost\r\nExpect: tea\r\nContent-Length: 2\r\n\r\n{}", 417, "INVALID_ARGUMENT"},
			"parent segments":   {"GET /v1/../status HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "INVALID_ARGUMENT"},
			"empty segments":    {"GET //v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "INVALID_ARGUMENT"},
			"a star for a path": {"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "INVALID_ARGUMENT"},
			"a handler's own":   {"GET /v1/nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "NOT_FOUND"},
		} {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.HTTPAddr())
			require.NoError(t, err)
			answers := bufio.NewReader(conn)
			if before != "" {
				_, err = conn.Write([]byte(before))
				require.NoError(t, err)
				answer, err := http.ReadResponse(answers, nil)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, answer.StatusCode)
				require.NoError(t, answer.Body.Close())
			}
			_, err = conn.Write([]byte(c.request))
			require.NoError(t, err)
			answer, err := http.ReadResponse(answers, nil)
			require.NoError(t, err, name)
			require.Equal(t, c.status, answer.StatusCode, name)
			require.Equal(t, "application/problem+json", answer.Header.Get("Content-Type"), name)
			var problem struct {
				Status                int
				Code, Message, Remedy string
			}
			require.NoError(t, json.NewDecoder(answer.Body).Decode(&problem), name)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, c.status, problem.Status, name)
			require.Equal(t, c.code, problem.Code, name)
			require.NotEmpty(t, problem.Message, name)
			require.NotEmpty(t, problem.Remedy, name)
			require.NoError(t, conn.Close())
		}
	}
}
