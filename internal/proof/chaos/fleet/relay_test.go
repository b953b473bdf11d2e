package fleet

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// relay is how all clients reach one server: an address that stays when the server is
// started again, and a line that can be cut, stall, or swallow the answers.
type relay struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	target string    // "" while there is no server
	refuse bool      // no connection is let through
	mute   bool      // the server's answers are lost
	resume time.Time // nothing passes before
	links  map[*link]bool
	lost   int64 // bytes of answers that were swallowed
}

// link is one connection through a relay.
type link struct{ client, server net.Conn }

func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{listener: listener, links: map[*link]bool{}}
	r.running.Go(r.accept)
	t.Cleanup(func() {
		r.set(func() { r.refuse, r.resume = true, time.Time{} })
		_ = listener.Close()
		r.cut()
		r.running.Wait()
	})
	return r
}

func (r *relay) address() string { return r.listener.Addr().String() }

func (r *relay) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// cut ends all connections, whatever they are doing.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.cut()
	}
}

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.serve(client) })
	}
}

func (r *relay) serve(client net.Conn) {
	var target string
	r.set(func() {
		if !r.refuse {
			target = r.target
		}
	})
	var dialer net.Dialer
	server, err := dialer.DialContext(context.Background(), "tcp", target)
	if err != nil { // the server is down
		_ = client.Close()
		return
	}
	l := &link{client, server}
	refused := false
	r.set(func() {
		if refused = r.refuse; !refused {
			r.links[l] = true
		}
	})
	if refused {
		l.cut()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { r.pass(l, client, server, false) })
	both.Go(func() { r.pass(l, server, client, true) })
	both.Wait()
	r.set(func() { delete(r.links, l) })
}

// pass copies one direction. Its end is the end of the connection.
func (r *relay) pass(l *link, from io.Reader, to io.Writer, answers bool) {
	defer l.cut()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		r.waitOut()
		swallow := false
		r.set(func() {
			if swallow = answers && r.mute; swallow {
				r.lost += int64(n)
			}
		})
		if swallow {
			continue // the connection is of no use any more: muting it cuts it
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// waitOut waits until a stall is over.
func (r *relay) waitOut() {
	for {
		var left time.Duration
		r.set(func() { left = time.Until(r.resume) })
		if left <= 0 {
			return
		}
		pause(context.Background(), min(left, 20*time.Millisecond))
	}
}

func TestRelay(t *testing.T) {
	t.Parallel()
	// setup gives a relay before a server that echoes.
	setup := func(t *testing.T) *relay {
		t.Helper()
		var config net.ListenConfig
		listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(conn, conn) }()
			}
		}()
		r := newRelay(t)
		r.set(func() { r.target = listener.Addr().String() })
		return r
	}
	dial := func(t *testing.T, r *relay) net.Conn {
		t.Helper()
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", r.address())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	echo := func(conn net.Conn) error {
		if _, err := conn.Write([]byte("hello")); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 5))
		return err
	}

	t.Run("what goes in comes out, until it is cut", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		conn := dial(t, r)
		require.NoError(t, echo(conn))
		r.cut()
		require.Error(t, echo(conn))
		require.NoError(t, echo(dial(t, r)), "a new connection works")
	})

	t.Run("a refused call gets no answer", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.set(func() { r.refuse = true })
		require.Error(t, echo(dial(t, r)))
	})

	t.Run("an answer that is swallowed does not come", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		conn := dial(t, r)
		require.NoError(t, echo(conn))
		r.set(func() { r.mute = true })
		_, err := conn.Write([]byte("hello"))
		require.NoError(t, err)
		for lost := int64(0); lost < 5; r.set(func() { lost = r.lost }) {
			require.NoError(t, t.Context().Err())
		}
		r.cut()
		_, err = conn.Read(make([]byte, 1))
		require.Error(t, err)
	})

	t.Run("a stall holds everything back and loses nothing", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		conn := dial(t, r)
		until := time.Now().Add(50 * time.Millisecond)
		r.set(func() { r.resume = until })
		require.NoError(t, echo(conn))
		require.False(t, time.Now().Before(until))
	})
}
