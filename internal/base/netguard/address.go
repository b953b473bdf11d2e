// Package netguard calls URLs that tenants and operators have chosen. It connects to public addresses
// and to the networks that the platform allows, follows no redirects, uses no proxy and limits the
// size of responses. It checks the address when the connection is opened, after the name was
// resolved, so that neither a spelling nor a DNS answer circumvents the check. It does not decide who
// may save a URL.
package netguard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
)

// ErrRefused is the cause of every refused address that the URL itself names.
var ErrRefused = errors.New("the address is refused")

// ErrNoAddress is the failure of a host name without an address that may be called. It is the same
// for a name that does not resolve and for one whose address is refused, so that callers who choose
// URLs learn nothing about the names of this network.
var ErrNoAddress = errors.New("the host does not resolve to an address that may be called")

// class defines who may allow calls to a range of addresses.
type class int

const (
	// public addresses may be called.
	public class = iota
	// private addresses may be called if the platform lists their network.
	private
	// local addresses may be called in servo dev only.
	local
	// never: no legitimate endpoint has such an address.
	never
)

// span is a range of addresses that are not public.
type span struct {
	prefix netip.Prefix
	class  class
	kind   string
}

// spans are searched in order; IPv4 addresses inside IPv6 ones are unwrapped first. They
// follow the special-purpose registries of IANA. IPv6 outside 2000::/3 is refused as a whole.
var spans = concat( //nolint:gochecknoglobals // a table
	of(never, "the address of a cloud's metadata service",
		"169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", // AWS and most others; AWS containers
		"100.100.100.200/32",                                         // Alibaba
		"168.63.129.16/32",                                           // Azure
		"192.0.0.192/32",                                             // Oracle
		"fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128"), // AWS, Google
	of(local, "a loopback address", "127.0.0.0/8", "::1/128"),
	of(local, "a link-local address", "169.254.0.0/16", "fe80::/10", "fec0::/10"),
	of(never, "an unspecified address", "0.0.0.0/8", "::/128"),
	of(never, "a multicast address", "224.0.0.0/4", "ff00::/8"),
	of(never, "a reserved address", "240.0.0.0/4", "192.0.0.0/24", "192.88.99.0/24"), // broadcast is part of the first
	of(private, "a private address", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
	of(private, "a shared address of a carrier (CGNAT)", "100.64.0.0/10"),
	of(private, "a benchmarking address", "198.18.0.0/15"),
	of(private, "a documentation address", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
	of(never, "a reserved address", "2001::/23"), // Teredo, ORCHID and other protocol assignments
)

func of(c class, kind string, prefixes ...string) []span {
	out := make([]span, len(prefixes))
	for i, p := range prefixes {
		out[i] = span{netip.MustParsePrefix(p), c, kind}
	}
	return out
}

func concat(lists ...[]span) (out []span) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// The prefixes under which IPv6 carries an IPv4 address, and the range of global addresses.
var ( //nolint:gochecknoglobals // a table
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
	global6   = netip.MustParsePrefix("2000::/3")
)

// The interface identifiers of ISATAP, before the IPv4 address that they carry.
const (
	isatap       = 0x00005efe
	isatapGlobal = 0x02005efe
)

// unwrap returns the IPv4 address that an IPv6 address leads to, or the address itself.
func unwrap(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()
	if !a.Is6() {
		return a
	}
	bytes := a.As16()
	switch identifier := binary.BigEndian.Uint32(bytes[8:12]); {
	case nat64.Contains(a), identifier == isatap, identifier == isatapGlobal:
		return netip.AddrFrom4([4]byte(bytes[12:16]))
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(bytes[2:6]))
	}
	return a
}

// classify returns the class and the kind of an unwrapped address.
func classify(a netip.Addr) (class, string) {
	for _, s := range spans {
		if s.prefix.Contains(a) {
			return s.class, s.kind
		}
	}
	if !a.IsValid() || a.Is6() && !global6.Contains(a) {
		return never, "a reserved address"
	}
	return public, ""
}

// Policy defines which addresses may be called besides public ones. The zero value allows none.
type Policy struct {
	// Networks are the private networks that the platform allows; see ParseNetworks.
	Networks []netip.Prefix
	// Local allows loopback, link-local and all private addresses. It is for servo dev, which only
	// its own machine can reach. URLs are then saved without resolving their host.
	Local bool
	// Resolver resolves host names; nil is the system's.
	Resolver *net.Resolver
	// Logger logs refused addresses, which callers do not see; nil logs nothing.
	Logger *slog.Logger
}

// Guard checks addresses against a policy. A nil guard has the policy without exceptions.
type Guard struct{ policy Policy }

// NewGuard returns a guard.
func NewGuard(policy Policy) *Guard { return &Guard{policy} }

func (g *Guard) rules() Policy {
	if g == nil {
		return Policy{}
	}
	return g.policy
}

// Check refuses an address that the policy does not allow.
func (g *Guard) Check(address netip.Addr) error {
	policy := g.rules()
	plain := unwrap(address)
	class, kind := classify(plain)
	allowed := class == public || class != never && policy.Local
	if class == private {
		for _, network := range policy.Networks {
			allowed = allowed || network.Contains(plain)
		}
	}
	if allowed {
		return nil
	}
	remedy := "use a public address"
	switch class {
	case private:
		remedy = "use a public address, or ask the platform team to add its network to --allow-private-networks"
	case local:
		remedy = "use the address of another machine; only servo dev calls its own"
	case public, never:
	}
	return fault.New(fault.InvalidArgument, fmt.Sprintf("%s is %s", address, kind), fault.Field("url"), fault.Remedy(remedy),
		fault.Cause(ErrRefused), fault.Value("address", address.String()))
}

// maxNetworks is the maximum number of networks.
const maxNetworks = 100

// ParseNetworks parses the private networks that the platform allows, as 10.0.0.0/8 or as one
// address. It refuses networks with addresses that are never called.
func ParseNetworks(field string, texts []string) ([]netip.Prefix, error) {
	if len(texts) > maxNetworks {
		return nil, fault.Invalid(field, fmt.Sprintf("has %d networks, the limit is %d", len(texts), maxNetworks), "use larger networks")
	}
	var networks []netip.Prefix
	for _, text := range texts {
		network, err := parseNetwork(strings.TrimSpace(text))
		if err != nil {
			return nil, fault.Invalid(field, fmt.Sprintf("%.100q is not a network", text), "write networks such as 10.0.0.0/8 or fd12::/64")
		}
		for _, s := range spans {
			if s.class != private && s.prefix.Overlaps(network) && !metadataInside(s, network) {
				return nil, fault.Invalid(field, fmt.Sprintf("%s contains %s, which is %s", network, s.prefix, s.kind), "list private networks only, such as 10.0.0.0/8; loopback is called by servo dev only")
			}
		}
		networks = append(networks, network)
	}
	return networks, nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err == nil && network.Addr().Is4In6() {
		return netip.Prefix{}, ErrRefused // ::ffff:10.0.0.0/104: must be written as IPv4
	}
	return network.Masked(), err
}

// metadataInside reports whether a span is a single address inside of a network, such as Alibaba's
// metadata service in 100.64.0.0/10. The address stays refused, and the network may be allowed.
func metadataInside(s span, network netip.Prefix) bool {
	return s.class == never && s.prefix.IsSingleIP() && network.Bits() < s.prefix.Bits() && network.Contains(s.prefix.Addr()) && !s.prefix.Addr().IsUnspecified()
}
