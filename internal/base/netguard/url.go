package netguard

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

const (
	// MaxURL is the maximum length of a URL in bytes.
	MaxURL = 2000
	// resolvePatience bounds the resolution of a host while its URL is saved.
	resolvePatience = 3 * time.Second
)

// CheckURL checks the form of a URL, and its address if it names one. It resolves nothing.
func (g *Guard) CheckURL(field, text string) error {
	_, err := g.parse(field, text)
	return err
}

// CheckTarget checks a URL that is about to be saved, as CheckURL does, and every address of its
// host. A host that does not resolve is refused with the same message as one with a private address.
// Later calls are checked again, because a name may resolve to another address.
func (g *Guard) CheckTarget(ctx context.Context, field, text string) error {
	host, err := g.parse(field, text)
	policy := g.rules()
	if err != nil || host == "" || policy.Local {
		return err
	}
	resolver := policy.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	ctx, cancel := context.WithTimeout(ctx, resolvePatience)
	defer cancel()
	addresses, err := resolver.LookupNetIP(ctx, "ip", host)
	for _, address := range addresses {
		if refused := g.Check(address); refused != nil {
			err = refused
		}
	}
	if err == nil && len(addresses) > 0 {
		return nil
	}
	g.log("refused to save a URL", host, err)
	return fault.New(fault.InvalidArgument, fmt.Sprintf("host %.100q does not resolve to an address that may be called", host), fault.Field(field),
		fault.Remedy("use a host with public addresses, or ask the platform team to add its network to --allow-private-networks"), fault.Cause(ErrNoAddress))
}

// parse checks a URL and returns the host to resolve; "" if the host is an address.
func (g *Guard) parse(field, text string) (host string, err error) {
	refuse := func(message, remedy string) (string, error) {
		return "", fault.Invalid(field, message, remedy)
	}
	const example = "write a URL such as https://worker.example.com/tasks"
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.ContainsAny(text, " \t\r\n\\"):
		return refuse("is not a URL", example)
	case len(text) > MaxURL:
		return refuse(fmt.Sprintf("has more than %d bytes", MaxURL), "use a shorter URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return refuse("is not an http or https URL", example)
	case u.Hostname() == "":
		return refuse("has no host", example)
	case u.User != nil:
		return refuse("contains a user name or a password", "remove it: calls are signed")
	case u.Fragment != "" || strings.HasSuffix(text, "#"):
		return refuse("has a fragment", "remove the part from '#' on")
	}
	if address, is := literal(u.Hostname()); is {
		err := g.Check(address)
		if f, ok := fault.As(err); ok {
			f.Violation.Field = field
			return "", f
		}
		return "", err
	}
	host = strings.ToLower(u.Hostname())
	if name := strings.TrimSuffix(host, "."); !g.rules().Local && (name == "localhost" || strings.HasSuffix(name, ".localhost")) {
		return refuse(fmt.Sprintf("%.100q is a loopback name", name), "use the name of another machine; only servo dev calls its own")
	}
	return host, nil
}

// literal returns the address of a host that is not a name.
func literal(host string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(host)
	return address, err == nil
}

// log logs details for operators that callers do not see.
func (g *Guard) log(message, host string, err error) {
	if logger := g.rules().Logger; logger != nil {
		logger.Warn(message, slog.String("host", host), slog.Any("error", err))
	}
}
