package daemon

import (
	"net/url"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/oidc"
)

// checkLogins refuses logins with a provider that could not come back: the provider sends
// browsers to an address that was registered with it, which must not come from requests.
func (c Config) checkLogins() error {
	if !slices.ContainsFunc(c.OIDC.Issuers, func(i oidc.Issuer) bool { return i.Login != nil }) {
		return nil
	}
	refuse := func(message, remedy string) error {
		return fault.New(fault.InvalidArgument, message, fault.Field("--public-url"), fault.Remedy(remedy))
	}
	if c.PublicURL == "" {
		if IsLoopback(c.HTTP) {
			return nil // people on this machine name it right; a proxy's hosts are refused when they come
		}
		return refuse("is missing, and people log in with a provider, which sends them back there", "give the address under which people reach the pages, such as https://servo.example.com, or leave login out of the --oidc file")
	}
	parsed, err := url.Parse(c.PublicURL)
	switch {
	case err != nil || parsed.Host == "" || parsed.Scheme != "https" && parsed.Scheme != "http":
		return refuse("is not the address of a server", "give https://HOST")
	case parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" || strings.Trim(parsed.Path, "/") != "":
		return refuse("has more than a host, and people log in with a provider, which sends them back to /ui/ of the host", "give https://HOST")
	case parsed.Scheme == "http" && !IsLoopback(withPort(parsed.Host)):
		return refuse("is not encrypted, and people log in with a provider, which sends them back there", "give https://HOST: put TLS in front, or use --tls-cert and --tls-key")
	}
	return nil
}
