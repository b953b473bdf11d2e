package daemon

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// DatabaseTLS lists the hosts of a database URL by how their connections may be protected. Hosts on
// this machine, by socket or loopback, are left out.
type DatabaseTLS struct {
	Plain      []string // connections without TLS are possible, now or after a failover
	Unverified []string // connections use TLS without checking the certificate
	Verified   []string
}

// ReadDatabaseTLS reads a database URL as the driver does. It connects to no host: a URL that
// permits plain text (sslmode=prefer, the default) lets the network choose it.
func ReadDatabaseTLS(url string) (t DatabaseTLS, err error) {
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		return t, err
	}
	hosts := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...)
	for _, h := range hosts {
		if filepath.IsAbs(h.Host) || IsLoopback(net.JoinHostPort(h.Host, "0")) {
			continue
		}
		list := &t.Verified
		switch {
		case h.TLSConfig == nil:
			list = &t.Plain
		case !verifies(h.TLSConfig):
			list = &t.Unverified
		}
		if !slices.Contains(*list, h.Host) {
			*list = append(*list, h.Host)
		}
	}
	return t, nil
}

// verifies reports whether the certificate is checked: sslmode=verify-ca does so with a function.
func verifies(config *tls.Config) bool {
	return !config.InsecureSkipVerify || config.VerifyPeerCertificate != nil || config.VerifyConnection != nil
}
