package chaos

import (
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
)

// wire is how one server reaches PostgreSQL: through a proxy that cuts at COMMIT, and
// before it through a relay that can fall silent without breaking anything.
type wire struct {
	*servotest.FaultProxy

	url      string
	listener net.Listener
	target   string

	mu      sync.Mutex
	cutting *cutting
	hits    map[servotest.Fate]int
	resume  time.Time // nothing passes before
}

func newWire(t *testing.T, databaseURL string) *wire {
	t.Helper()
	w := &wire{FaultProxy: servotest.Proxy(t, databaseURL), hits: map[servotest.Fate]int{}}
	w.OnCommit(w.next)
	behind, err := url.Parse(w.URL)
	require.NoError(t, err)
	w.target = behind.Host
	w.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.listener.Close() })
	behind.Host = w.listener.Addr().String()
	w.url = behind.String()
	go w.accept()
	return w
}

// cutting is how COMMITs fare: one in so many is cut, before or after it has happened.
type cutting struct {
	percent int
	fate    servotest.Fate
	dice    *rand.Rand
}

// cut makes COMMITs fare like that from now on; nil lets all pass.
func (w *wire) cut(c *cutting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cutting = c
}

func (w *wire) next() servotest.Fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cutting == nil || w.cutting.dice.IntN(100) >= w.cutting.percent {
		return servotest.Pass
	}
	w.hits[w.cutting.fate]++
	return w.cutting.fate
}

// stall lets nothing pass for a while.
func (w *wire) stall(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resume = time.Now().Add(d)
}

// cuts returns how many COMMITs were cut before and after.
func (w *wire) cuts() (before, after int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hits[servotest.CutBefore], w.hits[servotest.CutAfter]
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		go w.relay(client)
	}
}

func (w *wire) relay(client net.Conn) {
	server, err := net.Dial("tcp", w.target)
	if err != nil {
		_ = client.Close()
		return
	}
	go w.pass(client, server)
	w.pass(server, client)
}

// pass copies one direction. Its end is the end of the connection.
func (w *wire) pass(from io.ReadCloser, to io.WriteCloser) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		w.waitOut()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// waitOut waits until a stall is over.
func (w *wire) waitOut() {
	for {
		w.mu.Lock()
		left := time.Until(w.resume)
		w.mu.Unlock()
		if left <= 0 {
			return
		}
		time.Sleep(min(left, 50*time.Millisecond))
	}
}
