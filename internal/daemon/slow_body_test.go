package daemon_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// TestBodyDeadlineServed sends a body that trickles: the server answers and closes the connection
// long before the body ends, and a body that arrives as a whole is not affected.
func TestBodyDeadlineServed(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	send := func(body string, length int) net.Conn {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.HTTPAddr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /v1/tenants HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", length, body)
		require.NoError(t, err)
		return conn
	}
	status := func(conn net.Conn) int {
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	whole := `{"name": "acme"}`
	require.Equal(t, http.StatusOK, status(send(whole, len(whole))))

	conn, done := send("{", 1<<20), make(chan struct{})
	trickled := make(chan int, 1)
	go func() {
		sent, each := 1, time.NewTicker(100*time.Millisecond)
		defer each.Stop()
		for {
			select {
			case <-done:
				trickled <- sent
				return
			case <-each.C:
				_, _ = conn.Write([]byte(" ")) // refused once the server has closed the connection
				sent++
			}
		}
	}()
	got := status(conn)
	close(done)
	require.Equal(t, http.StatusRequestTimeout, got)
	require.Less(t, <-trickled, 1<<20, "the body has not ended")
}
