package netguard_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/netguard"
)

// here lets clients call this machine.
var here = netguard.NewGuard(netguard.Policy{Local: true})

func post(t *testing.T, client *http.Client, url string) (*http.Response, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	require.NoError(t, err)
	response, err := client.Do(request)
	if err == nil {
		t.Cleanup(func() { _ = response.Body.Close() })
	}
	return response, err
}

// TestPrivateAddresses calls addresses of this machine and its network in all spellings, and
// looks at the door.
func TestPrivateAddresses(t *testing.T) {
	t.Parallel()
	home := netip.MustParseAddr("127.0.0.1")

	t.Run("the door opens for one who may", func(t *testing.T) {
		t.Parallel()
		d := open(t)
		response, err := post(t, netguard.New(netguard.Options{Guard: here}), "http://127.0.0.1:"+d.port)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, "inside", string(body))
		require.EqualValues(t, 1, d.entered.Load())
	})

	// What stands for an address in itself.
	for _, host := range []string{
		"127.0.0.1", "127.1.2.3", "user:password@127.0.0.1", "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
		"[64:ff9b::127.0.0.1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]",
		"0.0.0.0", "0.1.2.3", "[::]", "[::ffff:0.0.0.0]",
		"169.254.1.1", "[fe80::1%25lo]", "[fe80::1]", "[fec0::1]", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]",
		"169.254.169.254", "169.254.170.2", "[fd00:ec2::254]", "100.100.100.200", "168.63.129.16", "192.0.0.192", "[fd20:ce::254]",
		"224.0.0.1", "[ff02::1]", "255.255.255.255", "240.0.0.1", "[100::1]",
	} {
		t.Run("the address "+host, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			_, err := post(t, netguard.New(netguard.Options{}), "http://"+host+":"+d.port)
			require.ErrorIs(t, err, netguard.ErrRefused)
			f, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, "url", f.Violation.Field)
			require.NotEmpty(t, f.Violation.Remedy)
			require.Zero(t, d.entered.Load())
		})
	}

	// Names that some resolvers parse as an address and others refuse: either way the call
	// is refused.
	for _, name := range []string{"127.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1", "127.0.0.1.", "127.0.0.1.nip.example.com", "metadata.google.internal"} {
		t.Run("the name "+name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			r, _ := resolver(t, map[string][]netip.Addr{strings.TrimSuffix(name, "."): {home}})
			_, err := post(t, netguard.New(netguard.Options{Guard: netguard.NewGuard(netguard.Policy{Resolver: r})}), "http://"+name+":"+d.port)
			require.Error(t, err)
			if strings.Contains(name, "e") {
				require.ErrorIs(t, err, netguard.ErrNoAddress, "every resolver takes it for a name")
			}
			require.Zero(t, d.entered.Load())
		})
	}

	for _, name := range []string{"localhost", "localhost.", "LOCALHOST"} {
		t.Run("the name "+name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			_, err := post(t, netguard.New(netguard.Options{}), "http://"+name+":"+d.port)
			require.Error(t, err)
			require.Zero(t, d.entered.Load())
		})
	}

	t.Run("a name that is elsewhere at first and here afterwards", func(t *testing.T) {
		t.Parallel()
		d := open(t)
		// An allowed network that nothing answers from; then this machine.
		r, n := resolver(t, map[string][]netip.Addr{"rebind.example.com": {netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.1"), home}})
		guard := netguard.NewGuard(netguard.Policy{Networks: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, Resolver: r})
		client := netguard.New(netguard.Options{Guard: guard, DialTimeout: 50 * time.Millisecond})
		require.NoError(t, guard.CheckTarget(t.Context(), "url", "http://rebind.example.com:"+d.port), "it may be saved")
		_, err := post(t, client, "http://rebind.example.com:"+d.port)
		require.Error(t, err)
		require.NotErrorIs(t, err, netguard.ErrNoAddress, "the second answer is an allowed address, too")
		_, err = post(t, client, "http://rebind.example.com:"+d.port)
		require.ErrorIs(t, err, netguard.ErrNoAddress)
		require.Equal(t, 3, n.count("rebind.example.com"), "the address that was checked is the one that was called: one question for each call")
		require.Zero(t, d.entered.Load())
	})

	t.Run("a name with an inner address of IPv6", func(t *testing.T) {
		t.Parallel()
		d := open(t)
		r, _ := resolver(t, map[string][]netip.Addr{"six.example.com": {netip.MustParseAddr("::ffff:127.0.0.1")}})
		_, err := post(t, netguard.New(netguard.Options{Guard: netguard.NewGuard(netguard.Policy{Resolver: r})}), "http://six.example.com:"+d.port)
		require.ErrorIs(t, err, netguard.ErrNoAddress)
		require.Zero(t, d.entered.Load())
	})
}

// TestErrorsConcealTheResolver holds that what a resolver answered, and which one it was, is in
// no error: a name that does not exist and one with a private address fail in the same words.
func TestErrorsConcealTheResolver(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(closed.Addr().String())
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	r, _ := resolver(t, map[string][]netip.Addr{
		"db.internal.example.com": {netip.MustParseAddr("10.1.2.3")}, "here.example.com": {netip.MustParseAddr("127.0.0.1")},
	})
	strict := netguard.NewGuard(netguard.Policy{Resolver: r})
	messages := map[string]bool{}
	for _, host := range []string{"db.internal.example.com", "here.example.com", "nowhere.example.com"} {
		_, err := post(t, netguard.New(netguard.Options{Guard: strict}), "http://"+host+":"+port)
		require.ErrorIs(t, err, netguard.ErrNoAddress, host)
		messages[strings.ReplaceAll(err.Error(), host, "HOST")] = true
		saved := strict.CheckTarget(t.Context(), "url", "http://"+host)
		require.ErrorIs(t, saved, netguard.ErrNoAddress, host)
		messages[strings.ReplaceAll(saved.Error(), host, "HOST")] = true
	}
	require.Len(t, messages, 2, "one message for calls and one for saving: %v", messages)

	local := netguard.NewGuard(netguard.Policy{Local: true, Resolver: r})
	_, err = post(t, netguard.New(netguard.Options{Guard: local}), "http://here.example.com:"+port)
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), "127.0.0.1")

	d := open(t)
	d.answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_ = http.NewResponseController(w).Flush()
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	})
	response, err := post(t, netguard.New(netguard.Options{Guard: local}), "http://here.example.com:"+d.port)
	if err == nil {
		_, err = io.ReadAll(response.Body)
	}
	require.Error(t, err)
	require.NotContains(t, err.Error(), "127.0.0.1")
}

// TestNoProxy holds that a proxy of the environment is not asked: it would resolve names
// itself.
func TestNoProxy(t *testing.T) {
	d := open(t)
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:"+d.port)
	t.Setenv("http_proxy", "http://127.0.0.1:"+d.port)
	r, _ := resolver(t, map[string][]netip.Addr{"worker.example.com": {netip.MustParseAddr("192.0.2.1")}})
	client := netguard.New(netguard.Options{Guard: netguard.NewGuard(netguard.Policy{Local: true, Resolver: r}), DialTimeout: 50 * time.Millisecond})
	_, err := post(t, client, "http://worker.example.com:"+d.port)
	require.Error(t, err)
	require.Zero(t, d.entered.Load())
}

func TestCall(t *testing.T) {
	t.Parallel()

	t.Run("a redirect is an answer, and is not followed", func(t *testing.T) {
		t.Parallel()
		d, elsewhere := open(t), open(t)
		d.answer(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:"+elsewhere.port, http.StatusTemporaryRedirect)
		})
		response, err := post(t, netguard.New(netguard.Options{Guard: here}), "http://127.0.0.1:"+d.port)
		require.NoError(t, err)
		require.Equal(t, http.StatusTemporaryRedirect, response.StatusCode)
		require.EqualValues(t, 1, d.entered.Load())
		require.Zero(t, elsewhere.entered.Load())
	})

	t.Run("an answer of the largest size is read, and a larger one is an error", func(t *testing.T) {
		t.Parallel()
		d := open(t)
		for size, want := range map[int]error{0: nil, 99: nil, 100: nil, 101: netguard.ErrTooLarge, 1 << 20: netguard.ErrTooLarge} {
			d.answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
			response, err := post(t, netguard.New(netguard.Options{Guard: here, MaxBody: 100}), "http://127.0.0.1:"+d.port)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			require.ErrorIs(t, err, want)
			require.Len(t, body, min(size, 100))
			if want != nil {
				_, err = response.Body.Read(make([]byte, 1))
				require.ErrorIs(t, err, want, "it stays an error")
			}
		}
	})

	t.Run("a head that is too large is an error", func(t *testing.T) {
		t.Parallel()
		d := open(t)
		d.answer(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Large", strings.Repeat("x", 1<<20)) })
		_, err := post(t, netguard.New(netguard.Options{Guard: here}), "http://127.0.0.1:"+d.port)
		require.ErrorContains(t, err, "header")
	})

	t.Run("an answer that does not come or does not end is given up", func(t *testing.T) {
		t.Parallel()
		d, slow := open(t), open(t) // two, because calls that were given up may still arrive
		over := make(chan struct{})
		t.Cleanup(func() { close(over) })
		d.answer(func(http.ResponseWriter, *http.Request) { <-over })
		for _, o := range []netguard.Options{{Guard: here, HeaderTimeout: time.Millisecond}, {Guard: here, Timeout: time.Millisecond}} {
			_, err := post(t, netguard.New(o), "http://127.0.0.1:"+d.port)
			require.True(t, timeout(err), "%v", err)
		}
		begun := make(chan struct{})
		slow.answer(func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			close(begun)
			<-over
		})
		response, err := post(t, netguard.New(netguard.Options{Guard: here, Timeout: 300 * time.Millisecond}), "http://127.0.0.1:"+slow.port)
		require.NoError(t, err)
		<-begun
		_, err = io.ReadAll(response.Body)
		require.True(t, timeout(err), "%v", err)
	})

	t.Run("nothing but http and https is called", func(t *testing.T) {
		t.Parallel()
		for _, url := range []string{"file:///etc/passwd", "ftp://example.com", "gopher://127.0.0.1:1", "unix:///run/x"} {
			_, err := post(t, netguard.New(netguard.Options{Guard: here}), url)
			require.ErrorIs(t, err, netguard.ErrRefused, url)
		}
	})

	t.Run("connections are used again, and closed when asked", func(t *testing.T) {
		t.Parallel()
		d := open(t)
		client := netguard.New(netguard.Options{Guard: here})
		for range 3 {
			response, err := post(t, client, "http://127.0.0.1:"+d.port)
			require.NoError(t, err)
			_, err = io.ReadAll(response.Body)
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, d.entered.Load())
		client.CloseIdleConnections()
		_, err := post(t, client, "http://127.0.0.1:"+d.port)
		require.NoError(t, err)
		require.EqualValues(t, 2, d.entered.Load())
	})
}

func timeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
