package chaos

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/servotest"
)

// wire is how one server reaches PostgreSQL: through a proxy that cuts at COMMIT, and
// before it through a relay that can fall silent without breaking anything.
type wire struct {
	*servotest.FaultProxy

	url      string
	listener net.Listener
	target   string

	onArmed func(armed bool) // hears when COMMITs begin and cease to be cut

	mu     sync.Mutex
	armed  []servotest.Fate // of the next COMMITs
	hits   map[servotest.Fate]int
	resume time.Time // nothing passes before
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

// arm gives the next COMMITs a fate, after those that have one already.
func (w *wire) arm(fate servotest.Fate, times int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.armed) == 0 {
		w.onArmed(true)
	}
	for range times {
		w.armed = append(w.armed, fate)
	}
}

func (w *wire) next() servotest.Fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.armed) == 0 {
		return servotest.Pass
	}
	fate := w.armed[0]
	if w.armed = w.armed[1:]; len(w.armed) == 0 {
		w.onArmed(false)
	}
	w.hits[fate]++
	return fate
}

// stall lets nothing pass for a while.
func (w *wire) stall(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resume = time.Now().Add(d)
}

// calm forgets what was planned.
func (w *wire) calm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.armed) > 0 {
		w.onArmed(false)
	}
	w.armed, w.resume = nil, time.Time{}
	w.Refuse(false)
}

// cuts says how many COMMITs were cut before and after.
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

// waitOut waits until a stall is over; calm may end it early.
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
