package netguard_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/netguard"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	strict, lax := netguard.NewGuard(netguard.Policy{}), netguard.NewGuard(netguard.Policy{Local: true})
	networks, err := netguard.ParseNetworks("--allow-private-networks", []string{
		"10.0.0.0/8", "172.16.0.0/12", "192.168.1.1", "fd00::/8", "100.64.0.0/10", "198.18.0.0/15", "2001:db8::/32",
	})
	require.NoError(t, err)
	listed := netguard.NewGuard(netguard.Policy{Networks: networks})

	// The first column are addresses; then whether they may be called by default, with all of the
	// networks above, and in servo dev.
	for _, c := range []struct {
		kind                string
		strict, listed, dev bool
		addresses           string
	}{
		{"public", true, true, true, "8.8.8.8 1.1.1.1 100.63.255.255 100.128.0.1 198.17.255.255 198.20.0.1 2606:4700::1 64:ff9b::8.8.8.8 ::ffff:8.8.8.8 2002:808:808::1"},
		{"RFC 1918 and its like", false, true, true, "10.0.0.1 10.255.255.255 172.16.9.9 172.31.255.255 192.168.1.1 fd12::1 ::ffff:10.0.0.1 64:ff9b::10.0.0.1 2002:a00:1::1"},
		{"private, in no network of the list", false, false, true, "192.168.1.2 fc00::1 64:ff9b::192.168.1.2 2606:4700::5efe:192.168.1.2"},
		{"CGNAT", false, true, true, "100.64.0.1 100.127.255.255 ::ffff:100.64.0.1 64:ff9b::100.64.0.1"},
		{"benchmarking", false, true, true, "198.18.0.1 198.19.255.255 ::ffff:198.18.0.1"},
		{"documentation", false, false, true, "192.0.2.1 198.51.100.1 203.0.113.1 3fff::1"},
		{"loopback", false, false, true, "127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 64:ff9b::127.0.0.1 2002:7f00:1::1 fe80::5efe:127.0.0.1"},
		{"link-local", false, false, true, "169.254.1.1 fe80::1 fe80::1%eth0 fec0::1 ::ffff:169.254.1.1 64:ff9b::169.254.1.1"},
		{"metadata", false, false, false, "169.254.169.254 169.254.170.2 100.100.100.200 168.63.129.16 192.0.0.192 fd00:ec2::254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1"},
		{"unspecified", false, false, false, "0.0.0.0 0.1.2.3 :: ::ffff:0.0.0.0 64:ff9b::0.0.0.0"},
		{"multicast", false, false, false, "224.0.0.1 239.255.255.255 ff02::1 ::ffff:224.0.0.1 64:ff9b::224.0.0.1"},
		{"reserved", false, false, false, "240.0.0.1 255.255.255.255 192.0.0.1 192.88.99.1 100::1 ::127.0.0.1 ::1:2 64:ff9b:1::10.0.0.1 2001:0:a00:1::1 2001:10::1 5f00::1 4000::1"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			for text := range strings.FieldsSeq(c.addresses) {
				address := netip.MustParseAddr(text)
				require.Equal(t, c.strict, strict.Check(address) == nil, "%s by default", text)
				require.Equal(t, c.strict, (*netguard.Guard)(nil).Check(address) == nil, "%s without a guard", text)
				require.Equal(t, c.listed, listed.Check(address) == nil, "%s with the networks", text)
				require.Equal(t, c.dev, lax.Check(address) == nil, "%s in servo dev", text)
			}
		})
	}
	require.ErrorIs(t, lax.Check(netip.Addr{}), netguard.ErrRefused)

	t.Run("networks with addresses that are never called are refused", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"", "x", "10.0.0.0/33", "0.0.0.0/0", "::/0", "127.0.0.0/8", "127.0.0.1", "::1", "169.254.0.0/16", "169.254.169.254", "fe80::/10", "0.0.0.0/8", "224.0.0.0/4", "128.0.0.0/1", "::ffff:10.0.0.0/104", "fe80::1%eth0"} {
			_, err := netguard.ParseNetworks("--allow-private-networks", []string{text})
			f, ok := fault.As(err)
			require.True(t, ok, "%q", text)
			require.Equal(t, "--allow-private-networks", f.Violation.Field)
			require.NotEmpty(t, f.Violation.Remedy)
		}
		_, err := netguard.ParseNetworks("--allow-private-networks", slices.Repeat([]string{"10.0.0.0/8"}, 101))
		require.Error(t, err)
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
	strict, lax := netguard.NewGuard(netguard.Policy{}), netguard.NewGuard(netguard.Policy{Local: true})

	t.Run("what can be called is taken", func(t *testing.T) {
		t.Parallel()
		for _, u := range []string{"https://worker.example.com/tasks?x=1", "http://8.8.8.8:9000", "http://[2606:4700::1]:9000/a", "https://127.1.example.com"} {
			require.NoError(t, strict.CheckURL("url", u), u)
		}
		require.NoError(t, lax.CheckURL("url", "http://localhost:9000"))
		require.NoError(t, lax.CheckURL("url", "http://127.0.0.1:9000"))
	})

	for _, u := range []string{
		"", "worker.example.com", "/tasks", "ftp://example.com", "file:///x", "http://", "http://:80", "https://user@example.com", "https://a b.example.com",
		"https://example.com\\@x", "https://example.com/#x", "https://example.com/#", "http://127.0.0.1", "http://10.0.0.1", "http://[fd12::1]", "http://[::1]", "http://169.254.169.254/latest",
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
