package netguard_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/fault"
	"go.arco.dev/servo/internal/netguard"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	strict, lax := netguard.NewGuard(false), netguard.NewGuard(true)

	t.Run("public and private addresses may be called", func(t *testing.T) {
		t.Parallel()
		for _, a := range []string{"8.8.8.8", "10.0.0.1", "172.16.9.9", "192.168.1.1", "fd12::1", "2606:4700::1", "64:ff9b::8.8.8.8", "::ffff:10.0.0.1", "100.64.0.1"} {
			require.NoError(t, strict.Check(netip.MustParseAddr(a)), a)
		}
	})

	t.Run("with private addresses allowed, this machine and its link may be called, and nothing else", func(t *testing.T) {
		t.Parallel()
		for _, a := range []string{"127.0.0.1", "::1", "169.254.1.1", "fe80::1%eth0", "::ffff:127.0.0.1"} {
			require.ErrorIs(t, strict.Check(netip.MustParseAddr(a)), netguard.ErrRefused, a)
			require.NoError(t, lax.Check(netip.MustParseAddr(a)), a)
		}
		for _, a := range []string{"169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"} {
			require.ErrorIs(t, lax.Check(netip.MustParseAddr(a)), netguard.ErrRefused, a)
		}
		require.ErrorIs(t, lax.Check(netip.Addr{}), netguard.ErrRefused)
	})

	t.Run("an address of IPv4 is judged the same in every form of IPv6", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			four := netip.AddrFrom4([4]byte{
				rapid.SampledFrom([]byte{0, 8, 10, 100, 127, 168, 169, 192, 224, 240, 255}).Draw(t, "a"),
				rapid.SampledFrom([]byte{0, 63, 100, 168, 254}).Draw(t, "b"), rapid.SampledFrom([]byte{0, 100, 129, 169}).Draw(t, "c"), rapid.Byte().Draw(t, "d"),
			})
			b := four.As4()
			nat64 := netip.MustParseAddr("64:ff9b::").As16()
			copy(nat64[12:], b[:])
			sixToFour := netip.MustParseAddr("2002::").As16()
			copy(sixToFour[2:], b[:])
			for _, g := range []*netguard.Guard{strict, lax} {
				want := g.Check(four) != nil
				for _, six := range []netip.Addr{netip.AddrFrom16(four.As16()), netip.AddrFrom16(nat64), netip.AddrFrom16(sixToFour), netip.AddrFrom16(four.As16()).WithZone("lo")} {
					require.Equal(t, want, g.Check(six) != nil, "%s as %s", four, six)
				}
			}
		})
	})
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	strict, lax := netguard.NewGuard(false), netguard.NewGuard(true)

	t.Run("what can be called is taken", func(t *testing.T) {
		t.Parallel()
		for _, u := range []string{"https://worker.example.com/tasks?x=1", "http://10.0.0.1:9000", "http://[fd12::1]:9000/a", "https://127.1.example.com"} {
			require.NoError(t, strict.CheckURL("url", u), u)
		}
		require.NoError(t, lax.CheckURL("url", "http://localhost:9000"))
		require.NoError(t, lax.CheckURL("url", "http://127.0.0.1:9000"))
	})

	for _, u := range []string{
		"", "worker.example.com", "/tasks", "ftp://example.com", "file:///x", "http://", "http://:80", "https://user@example.com", "https://a b.example.com",
		"https://example.com\\@x", "https://example.com/#x", "https://example.com/#", "http://127.0.0.1", "http://[::1]", "http://169.254.169.254/latest",
		"http://localhost", "http://LOCALHOST.:80", "http://a.localhost", "http://example.com/" + strings.Repeat("x", 3000), "http://[::1", "http://%zz",
	} {
		t.Run("refused: "+u[:min(len(u), 40)], func(t *testing.T) {
			t.Parallel()
			err := strict.CheckURL("url", u)
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, fault.InvalidArgument, f.Code)
			require.Equal(t, "url", f.Violation.Field)
			require.NotEmpty(t, f.Violation.Remedy)
		})
	}
}
