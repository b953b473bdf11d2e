package servotest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// Fate is what a fault proxy does to a COMMIT that passes by.
type Fate int

const (
	// Pass forwards it.
	Pass Fate = iota
	// CutBefore cuts the connection and never forwards it: nothing was committed.
	CutBefore
	// CutAfter forwards it and cuts the connection when PostgreSQL has committed: the
	// answer is lost.
	CutAfter
)

// FaultProxy is a proxy between clients and a PostgreSQL that cuts connections around COMMIT. It speaks the wire protocol just well enough to see a COMMIT; a connection
// must not be encrypted.
type FaultProxy struct {
	// URL is the database's URL through the proxy.
	URL string

	network, address string
	listener         net.Listener
	decide           atomic.Pointer[func() Fate]
	cuts             atomic.Int64

	mu      sync.Mutex
	refuse  bool
	links   map[*link]bool
	running sync.WaitGroup
}

// Proxy starts a proxy in front of the server of a database URL, until the test ends.
func Proxy(t testing.TB, databaseURL string) *FaultProxy {
	t.Helper()
	config, err := pgconn.ParseConfig(databaseURL)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // listening does not wait
	require.NoError(t, err)
	p := &FaultProxy{listener: listener, links: map[*link]bool{}}
	if p.network, p.address = "tcp", net.JoinHostPort(config.Host, fmt.Sprint(config.Port)); filepath.IsAbs(config.Host) {
		p.network, p.address = "unix", filepath.Join(config.Host, fmt.Sprintf(".s.PGSQL.%d", config.Port))
	}
	p.URL, err = through(databaseURL, listener.Addr().String())
	require.NoError(t, err)
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// through is a database URL with another host.
func through(databaseURL, address string) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "", err
	}
	u.Host = address
	query := u.Query()
	query.Del("host")
	query.Del("port")
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// OnCommit decides about every COMMIT from now on; nil lets all pass. It is called from
// many goroutines.
func (p *FaultProxy) OnCommit(decide func() Fate) {
	if decide == nil {
		p.decide.Store(nil)
		return
	}
	p.decide.Store(&decide)
}

// Next gives the next n COMMITs a fate, and lets those after them pass.
func (p *FaultProxy) Next(n int, fate Fate) {
	var left atomic.Int64
	left.Store(int64(n))
	p.OnCommit(func() Fate {
		if left.Add(-1) < 0 {
			return Pass
		}
		return fate
	})
}

// CutAll cuts every connection now, whatever it is doing. New ones are accepted.
func (p *FaultProxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		p.cuts.Add(1)
		l.cut()
	}
}

// Refuse turns new connections away, or no longer.
func (p *FaultProxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Cuts counts the connections that were cut on purpose.
func (p *FaultProxy) Cuts() int { return int(p.cuts.Load()) }

func (p *FaultProxy) fate() Fate {
	if decide := p.decide.Load(); decide != nil {
		return (*decide)()
	}
	return Pass
}

func (p *FaultProxy) close() {
	p.Refuse(true)
	_ = p.listener.Close()
	p.mu.Lock()
	for l := range p.links {
		l.cut()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *FaultProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *FaultProxy) serve(client net.Conn) {
	server, err := net.Dial(p.network, p.address) //nolint:noctx // a local server answers at once or not at all
	if err != nil {
		_ = client.Close() // PostgreSQL is down: so is the proxy
		return
	}
	l := &link{proxy: p, client: client, server: server}
	p.mu.Lock()
	refused := p.refuse
	if !refused {
		p.links[l] = true
	}
	p.mu.Unlock()
	if refused {
		l.cut()
		return
	}
	var both sync.WaitGroup
	both.Go(l.clientToServer)
	both.Go(l.serverToClient)
	both.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// link is one connection through the proxy.
type link struct {
	proxy          *FaultProxy
	client, server net.Conn
	encryption     atomic.Bool // the server answers with one byte that is no message
	doomed         atomic.Bool // to be cut when the server answers COMMIT
}

func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// The first messages of a connection have no type. These codes ask for encryption, which
// a server without it answers with one byte.
const (
	codeTLS = 80877103
	codeGSS = 80877104
)

func asksForEncryption(message []byte) bool {
	if len(message) != 8 {
		return false
	}
	code := binary.BigEndian.Uint32(message[4:])
	return code == codeTLS || code == codeGSS
}

func (l *link) clientToServer() {
	defer l.cut()
	from, to := bufio.NewReader(l.client), bufio.NewWriter(l.server)
	for started := false; !started; {
		message, err := readMessage(from, false)
		if err != nil {
			return
		}
		started = !asksForEncryption(message)
		l.encryption.Store(!started)
		if forward(from, to, message) != nil {
			return
		}
	}
	for {
		message, err := readMessage(from, true)
		if err != nil {
			return
		}
		if isCommit(message) {
			switch l.proxy.fate() {
			case CutBefore:
				l.proxy.cuts.Add(1)
				return
			case CutAfter:
				l.doomed.Store(true)
			case Pass:
			}
		}
		if forward(from, to, message) != nil {
			return
		}
	}
}

func (l *link) serverToClient() {
	defer l.cut()
	from, to := bufio.NewReader(l.server), bufio.NewWriter(l.client)
	for {
		var message []byte
		var err error
		if _, err = from.Peek(1); err != nil {
			return
		}
		if l.encryption.CompareAndSwap(true, false) {
			message = make([]byte, 1)
			_, err = io.ReadFull(from, message)
		} else {
			message, err = readMessage(from, true)
		}
		if err != nil {
			return
		}
		if l.doomed.Load() && message[0] == 'C' {
			if bytes.HasPrefix(message[5:], []byte("COMMIT")) {
				l.proxy.cuts.Add(1)
				return
			}
			if bytes.HasPrefix(message[5:], []byte("ROLLBACK")) {
				l.doomed.Store(false) // the transaction was broken: nothing was committed
			}
		}
		if forward(from, to, message) != nil {
			return
		}
	}
}

// readMessage reads one whole message: a type, if it has one, a length that counts itself,
// and the rest.
func readMessage(from *bufio.Reader, typed bool) ([]byte, error) {
	size := 4
	if typed {
		size = 5
	}
	header := make([]byte, size)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint32(header[size-4:])) - 4
	if length < 0 || length > 1<<30 {
		return nil, errors.New("not a PostgreSQL message")
	}
	message := make([]byte, size+length)
	copy(message, header)
	_, err := io.ReadFull(from, message[size:])
	return message, err
}

// forward writes a message and sends it off when no other message waits.
func forward(from *bufio.Reader, to *bufio.Writer, message []byte) error {
	if _, err := to.Write(message); err != nil {
		return err
	}
	if from.Buffered() > 0 {
		return nil
	}
	return to.Flush()
}

// isCommit knows COMMIT as a simple query and as the text of a prepared statement.
func isCommit(message []byte) bool {
	body := message[5:]
	switch message[0] {
	case 'Q':
	case 'P': // the statement's name comes first
		if end := bytes.IndexByte(body, 0); end >= 0 {
			body = body[end+1:]
		}
	default:
		return false
	}
	text, _, _ := bytes.Cut(body, []byte{0})
	return strings.EqualFold(string(text), "commit")
}
