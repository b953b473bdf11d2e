package client

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc/resolver"
)

// httpsPort is meant by https://host.
const httpsPort = "443"

// TLSFiles are PEM files for an encrypted connection.
type TLSFiles struct {
	CA   string // authorities to trust; "" is those of this machine
	Cert string // the client's own certificate, for servers that ask workers for one
	Key  string // and its private key
}

// TLSFromFiles reads files for Options.TLS; nil if none is named. The client's certificate is
// read again for each connection, so that it can be renewed while the program runs.
func TLSFromFiles(files TLSFiles) (*tls.Config, error) {
	if files == (TLSFiles{}) {
		return nil, nil //nolint:nilnil // nothing is asked for
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if files.CA != "" {
		data, err := os.ReadFile(files.CA)
		if err != nil {
			return nil, &Problem{Code: InvalidArgument, Message: err.Error(), Field: "tls_ca", Remedy: "name a PEM file that can be read"}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, &Problem{Code: InvalidArgument, Message: files.CA + " has no certificate", Field: "tls_ca", Remedy: "give certificates of authorities as PEM"}
		}
	}
	switch {
	case files.Cert == "" && files.Key == "":
		return config, nil
	case files.Cert == "":
		return nil, &Problem{Code: InvalidArgument, Message: "is missing", Field: "tls_cert", Remedy: "give the certificate of the key as well"}
	case files.Key == "":
		return nil, &Problem{Code: InvalidArgument, Message: "is missing", Field: "tls_key", Remedy: "give the key of the certificate as well"}
	}
	if _, err := tls.LoadX509KeyPair(files.Cert, files.Key); err != nil {
		return nil, &Problem{Code: InvalidArgument, Message: fmt.Sprintf("cannot use %s with %s: %v", files.Cert, files.Key, err), Field: "tls_cert", Remedy: "give a certificate and its own key as PEM"}
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		return &pair, err
	}
	return config, nil
}

// parseServers checks the addresses, and reports whether they ask for TLS. Each is asked for the
// name that it was given by, so that the certificates of several servers may differ.
func parseServers(servers []string) (addresses []resolver.Address, encrypted bool, err error) {
	if len(servers) == 0 {
		return nil, false, &Problem{Code: InvalidArgument, Message: "no server is named", Field: "servers", Remedy: "give at least one as host:port"}
	}
	for i, server := range servers {
		address, https := strings.CutPrefix(server, "https://")
		if i > 0 && https != encrypted {
			return nil, false, &Problem{Code: InvalidArgument, Message: "some are asked for TLS and others not", Field: "servers", Remedy: "write all of them with https://"}
		}
		if encrypted = https; https {
			address = strings.TrimSuffix(address, "/")
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil && https {
			host, port, err = net.SplitHostPort(net.JoinHostPort(strings.Trim(address, "[]"), httpsPort))
		}
		if err != nil || host == "" || port == "" || strings.ContainsAny(host, "/ ") || strings.ContainsAny(port, "/ ") {
			return nil, false, &Problem{
				Code: InvalidArgument, Message: fmt.Sprintf("%q is no address", server), Field: "servers",
				Remedy: "write host:port of the gRPC listener, such as 127.0.0.1:8081, or https://host:port if it speaks TLS",
			}
		}
		addresses = append(addresses, resolver.Address{Addr: net.JoinHostPort(host, port), ServerName: host})
	}
	return addresses, encrypted, nil
}

// encryption is how to speak to servers that are written so; nil is plain text.
func (o Options) encryption(https bool) *tls.Config {
	if o.TLS == nil && https {
		return &tls.Config{MinVersion: tls.VersionTLS12} // trusts the authorities of this machine
	}
	return o.TLS
}
