package netguard_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/fault"
	"go.arco.dev/servo/internal/netguard"
)

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

// TestNobodyGetsIn calls addresses of this machine and its network in all spellings, and
// looks at the door.
func TestNobodyGetsIn(t *testing.T) {
	t.Parallel()
	home := netip.MustParseAddr("127.0.0.1")

	t.Run("the door opens for one who may", func(t *testing.T) {
		t.Parallel()
		d := open(t)
		response, err := post(t, netguard.New(netguard.Options{AllowPrivate: true}), "http://127.0.0.1:"+d.port)
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

	// What some resolvers take for an address and others for no name at all: either way nobody
	// gets in.
	for _, name := range []string{"127.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1", "127.0.0.1.", "127.0.0.1.nip.example.com", "metadata.google.internal"} {
		t.Run("the name "+name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			r, _ := resolver(t, map[string][]netip.Addr{strings.TrimSuffix(name, "."): {home}})
			_, err := post(t, netguard.New(netguard.Options{Resolver: r}), "http://"+name+":"+d.port)
			require.Error(t, err)
			if strings.Contains(name, "e") {
				require.ErrorIs(t, err, netguard.ErrRefused, "every resolver takes it for a name")
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
		// A place that is meant for documentation: nobody answers there.
		r, n := resolver(t, map[string][]netip.Addr{"rebind.example.com": {netip.MustParseAddr("192.0.2.1"), home}})
		client := netguard.New(netguard.Options{Resolver: r, DialTimeout: 50 * time.Millisecond})
		_, err := post(t, client, "http://rebind.example.com:"+d.port)
		require.Error(t, err)
		require.NotErrorIs(t, err, netguard.ErrRefused, "the first answer is an address like any other")
		_, err = post(t, client, "http://rebind.example.com:"+d.port)
		require.ErrorIs(t, err, netguard.ErrRefused)
		require.Equal(t, 2, n.count("rebind.example.com"), "what was checked is what was called: nobody asks twice for one call")
		require.Zero(t, d.entered.Load())
	})

	t.Run("a name with an inner address of IPv6", func(t *testing.T) {
		t.Parallel()
		d := open(t)
		r, _ := resolver(t, map[string][]netip.Addr{"six.example.com": {netip.MustParseAddr("::ffff:127.0.0.1")}})
		_, err := post(t, netguard.New(netguard.Options{Resolver: r}), "http://six.example.com:"+d.port)
		require.ErrorIs(t, err, netguard.ErrRefused)
		require.Zero(t, d.entered.Load())
	})
}

// TestNoProxy holds that a proxy of the environment is not asked: it would resolve names
// itself.
func TestNoProxy(t *testing.T) {
	d := open(t)
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:"+d.port)
	t.Setenv("http_proxy", "http://127.0.0.1:"+d.port)
	r, _ := resolver(t, map[string][]netip.Addr{"worker.example.com": {netip.MustParseAddr("192.0.2.1")}})
	client := netguard.New(netguard.Options{AllowPrivate: true, Resolver: r, DialTimeout: 50 * time.Millisecond})
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
		response, err := post(t, netguard.New(netguard.Options{AllowPrivate: true}), "http://127.0.0.1:"+d.port)
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
			response, err := post(t, netguard.New(netguard.Options{AllowPrivate: true, MaxBody: 100}), "http://127.0.0.1:"+d.port)
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
		_, err := post(t, netguard.New(netguard.Options{AllowPrivate: true}), "http://127.0.0.1:"+d.port)
		require.ErrorContains(t, err, "header")
	})

	t.Run("an answer that does not come or does not end is given up", func(t *testing.T) {
		t.Parallel()
		d, slow := open(t), open(t) // two, because calls that were given up may still arrive
		over := make(chan struct{})
		t.Cleanup(func() { close(over) })
		d.answer(func(http.ResponseWriter, *http.Request) { <-over })
		for _, o := range []netguard.Options{{AllowPrivate: true, HeaderTimeout: time.Millisecond}, {AllowPrivate: true, Timeout: time.Millisecond}} {
			_, err := post(t, netguard.New(o), "http://127.0.0.1:"+d.port)
			require.True(t, timeout(err), "%v", err)
		}
		begun := make(chan struct{})
		slow.answer(func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			close(begun)
			<-over
		})
		response, err := post(t, netguard.New(netguard.Options{AllowPrivate: true, Timeout: 300 * time.Millisecond}), "http://127.0.0.1:"+slow.port)
		require.NoError(t, err)
		<-begun
		_, err = io.ReadAll(response.Body)
		require.True(t, timeout(err), "%v", err)
	})

	t.Run("nothing but http and https is called", func(t *testing.T) {
		t.Parallel()
		for _, url := range []string{"file:///etc/passwd", "ftp://example.com", "gopher://127.0.0.1:1", "unix:///run/x"} {
			_, err := post(t, netguard.New(netguard.Options{AllowPrivate: true}), url)
			require.ErrorIs(t, err, netguard.ErrRefused, url)
		}
	})

	t.Run("connections are used again, and closed when asked", func(t *testing.T) {
		t.Parallel()
		d := open(t)
		client := netguard.New(netguard.Options{AllowPrivate: true})
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
