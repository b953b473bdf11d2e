package netguard_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// door is a server on this machine that counts who has come in.
type door struct {
	port    string
	entered atomic.Int64
	handler atomic.Pointer[http.HandlerFunc]
}

// open listens on the loopback addresses of both kinds, on one port.
func open(t *testing.T) *door {
	t.Helper()
	d := &door{}
	d.answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("inside")) })
	first, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, d.port, err = net.SplitHostPort(first.Addr().String())
	require.NoError(t, err)
	d.serve(t, first)
	if second, err := net.Listen("tcp", "[::1]:"+d.port); err == nil { // there may be no IPv6 here
		d.serve(t, second)
	}
	return d
}

func (d *door) answer(f http.HandlerFunc) { d.handler.Store(&f) }

func (d *door) serve(t *testing.T, l net.Listener) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*d.handler.Load())(w, r) }))
	require.NoError(t, server.Listener.Close())
	server.Listener = &counted{Listener: l, entered: &d.entered}
	server.Start()
	t.Cleanup(server.Close)
}

type counted struct {
	net.Listener

	entered *atomic.Int64
}

func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.entered.Add(1)
	}
	return conn, err
}

// names is a name server: each question for a name gets its next answer, the last one for
// ever.
type names struct {
	mu      sync.Mutex
	answers map[string][]netip.Addr
	asked   map[string]int
}

// resolver asks a name server on this machine.
func resolver(t *testing.T, answers map[string][]netip.Addr) (*net.Resolver, *names) {
	t.Helper()
	n := &names{answers: answers, asked: map[string]int{}}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	var done sync.WaitGroup
	done.Go(func() { n.serve(conn) })
	t.Cleanup(func() { _ = conn.Close(); done.Wait() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}, n
}

func (n *names) serve(conn net.PacketConn) {
	question := make([]byte, 1500)
	for {
		size, from, err := conn.ReadFrom(question)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo(n.reply(question[:size]), from)
	}
}

// reply is the least that RFC 1035 asks for: the header, the question, and one address.
func (n *names) reply(question []byte) []byte {
	var labels []string
	at := 12
	for question[at] != 0 {
		labels = append(labels, string(question[at+1:at+1+int(question[at])]))
		at += 1 + int(question[at])
	}
	kind := binary.BigEndian.Uint16(question[at+1:])
	end := at + 5
	out := append([]byte{}, question[:2]...)
	out = append(out, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
	out = append(out, question[12:end]...)
	address, known := n.next(strings.Join(labels, "."), kind)
	if !known {
		return out
	}
	out[7] = 1
	out = append(out, 0xc0, 12)
	out = binary.BigEndian.AppendUint16(out, kind)
	out = append(out, 0, 1, 0, 0, 0, 0)
	out = binary.BigEndian.AppendUint16(out, uint16(len(address.AsSlice())))
	return append(out, address.AsSlice()...)
}

func (n *names) next(name string, kind uint16) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	answers := n.answers[name]
	if len(answers) == 0 {
		return netip.Addr{}, false
	}
	address := answers[min(n.asked[name], len(answers)-1)]
	if address.Is4() != (kind == 1) || kind != 1 && kind != 28 {
		return netip.Addr{}, false
	}
	n.asked[name]++
	return address, true
}

func (n *names) count(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[name]
}
