// Package netguard calls URLs that somebody else has chosen: it refuses to connect to
// addresses that only this machine or its network may reach, follows no redirects, uses no
// proxy and reads no more than it was told to. The address is looked at when the connection
// is made, after every name was resolved, so that no spelling and no answer of a name server
// gets around it. It never decides who may name a URL.
package netguard

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"go.arco.dev/servo/internal/fault"
)

// ErrRefused is the cause of every refused address.
var ErrRefused = errors.New("the address is refused")

// The kinds of addresses. Those of the first list are allowed where private addresses are;
// those of the second never: nothing that should be called lives there.
const (
	loopback    = "a loopback address"
	linkLocal   = "a link-local address"
	metadata    = "the address of a cloud's metadata service"
	unspecified = "an unspecified address"
	multicast   = "a multicast address"
	reserved    = "a reserved address"
)

// span is a range of addresses that is not for calls.
type span struct {
	prefix netip.Prefix
	kind   string
}

// spans are looked through in their order. Addresses of IPv4 inside of IPv6 are not here:
// they are taken out first. The private ranges (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16,
// fc00::/7) are not here either: workers usually live there.
func spans() []span {
	of := func(kind string, prefixes ...string) []span {
		out := make([]span, len(prefixes))
		for i, p := range prefixes {
			out[i] = span{netip.MustParsePrefix(p), kind}
		}
		return out
	}
	var out []span
	out = append(out, of(metadata,
		"169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", // AWS and most others; AWS containers
		"100.100.100.200/32",                                            // Alibaba
		"168.63.129.16/32",                                              // Azure
		"192.0.0.192/32",                                                // Oracle
		"fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128")...) // AWS, Google
	out = append(out, of(loopback, "127.0.0.0/8", "::1/128")...)
	out = append(out, of(linkLocal, "169.254.0.0/16", "fe80::/10", "fec0::/10")...)
	out = append(out, of(unspecified, "0.0.0.0/8", "::/128")...)
	out = append(out, of(multicast, "224.0.0.0/4", "ff00::/8")...)
	out = append(out, of(reserved,
		"240.0.0.0/4", "192.0.0.0/24", // broadcast is part of the first
		"::/96", "64:ff9b:1::/48", "2001::/32", "100::/64")...) // IPv4-compatible, local NAT64, Teredo, discard
	return out
}

// inner are the prefixes under which IPv6 carries an address of IPv4, and where it stands.
func inner(a netip.Addr) (netip.Addr, bool) {
	bytes := a.As16()
	switch {
	case a.Is4In6():
		return a.Unmap(), true
	case !a.Is6():
		return a, false
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a): // NAT64
		return netip.AddrFrom4([4]byte(bytes[12:16])), true
	case netip.MustParsePrefix("2002::/16").Contains(a): // 6to4
		return netip.AddrFrom4([4]byte(bytes[2:6])), true
	}
	return a, false
}

// Guard says which addresses may be called.
type Guard struct {
	// AllowPrivate allows loopback and link-local addresses too. Metadata services,
	// unspecified, multicast and reserved addresses are refused all the same.
	AllowPrivate bool

	spans []span
}

// NewGuard makes a guard.
func NewGuard(allowPrivate bool) *Guard { return &Guard{AllowPrivate: allowPrivate, spans: spans()} }

// Check refuses an address, or not.
func (g *Guard) Check(address netip.Addr) error {
	plain := address.WithZone("")
	if within, is := inner(plain); is {
		plain = within
	}
	for _, s := range g.spans {
		if !s.prefix.Contains(plain) {
			continue
		}
		if g.AllowPrivate && (s.kind == loopback || s.kind == linkLocal) {
			return nil
		}
		return g.refuse(address, s.kind)
	}
	if !plain.IsValid() {
		return g.refuse(address, "no address")
	}
	return nil
}

func (g *Guard) refuse(address netip.Addr, kind string) error {
	remedy := "use an address that is meant to be called"
	if kind == loopback || kind == linkLocal {
		remedy = "allow private addresses explicitly, or use another address"
	}
	return fault.New(fault.InvalidArgument, fmt.Sprintf("%s is %s", address, kind), fault.Field("url"), fault.Remedy(remedy),
		fault.Cause(ErrRefused), fault.Value("address", address.String()))
}

// checkSocket refuses the address of a connection that is about to be made.
func (g *Guard) checkSocket(network, address string) error {
	switch network {
	case "tcp4", "tcp6":
	default:
		return fault.New(fault.InvalidArgument, network+" is not TCP", fault.Field("url"), fault.Remedy("use an http or https URL"), fault.Cause(ErrRefused))
	}
	socket, err := netip.ParseAddrPort(address)
	if err != nil {
		return fault.New(fault.InvalidArgument, "is not an address", fault.Field("url"), fault.Remedy("use another URL"), fault.Cause(errors.Join(ErrRefused, err)))
	}
	return g.Check(socket.Addr())
}

// maxURL bounds a URL in bytes.
const maxURL = 2000

// CheckURL says early what is wrong with a URL that is to be called later: its form, and its
// address if it names one. What a name stands for is seen when it is called.
func (g *Guard) CheckURL(field, text string) error {
	refuse := func(message, remedy string) error {
		return fault.New(fault.InvalidArgument, message, fault.Field(field), fault.Remedy(remedy))
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.ContainsAny(text, " \t\r\n\\"):
		return refuse("is not a URL", "send one such as https://worker.example.com/tasks")
	case len(text) > maxURL:
		return refuse(fmt.Sprintf("has more than %d bytes", maxURL), "use a shorter URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return refuse("is not an http or https URL", "send one such as https://worker.example.com/tasks")
	case u.Hostname() == "":
		return refuse("has no host", "send one such as https://worker.example.com/tasks")
	case u.User != nil:
		return refuse("carries a password or a user", "calls are signed: leave it out")
	case u.Fragment != "" || strings.HasSuffix(text, "#"):
		return refuse("has a fragment", "leave out what follows the #")
	}
	if address, err := netip.ParseAddr(u.Hostname()); err == nil {
		err := g.Check(address)
		if f, ok := fault.As(err); ok {
			f.Violation.Field = field
			return f
		}
		return err
	}
	if host := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."); !g.AllowPrivate && (host == "localhost" || strings.HasSuffix(host, ".localhost")) {
		return refuse(host+" is this machine", "allow private addresses explicitly, or use another host")
	}
	return nil
}
