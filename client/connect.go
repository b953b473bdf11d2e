package client

import "strings"

// connectProblems are known causes of failed connections, by a part of gRPC's error text. Each has its
// own message: "no server answers" does not help if a server answers.
var connectProblems = []struct{ text, message, remedy string }{ //nolint:gochecknoglobals // a table
	{
		"certificate signed by unknown authority", "the server's certificate is signed by an unknown authority",
		"set the authority's certificate with --tls-ca or SERVO_TLS_CA",
	},
	{
		"certificate has expired or is not yet valid", "the server's certificate has expired or is not valid yet",
		"renew the certificate of the server, or correct the clock of this machine",
	},
	{
		"x509: certificate is valid for", "the server's certificate is for another host name",
		"use a host name of the certificate",
	},
	{
		"x509: certificate is not valid for any names", "the server's certificate is for no host name",
		"use a certificate with the server's host name",
	},
	{
		"doesn't contain any IP SANs", "the server's certificate is for host names, not for an address",
		"use a host name of the certificate instead of the address",
	},
	{
		"first record does not look like a TLS handshake", "the server does not speak TLS at this address",
		"write host:port without https:// and without TLS options, or start the server with --tls-cert",
	},
	{
		"certificate required", "the server requires a client certificate",
		"set one with --tls-cert and --tls-key",
	},
	{
		"bad certificate", "the server refuses the client certificate",
		"use a certificate of an authority that the server trusts (--tls-client-ca)",
	},
	{
		"looked like an HTTP/1.1 header", "the address is not that of gRPC: it speaks HTTP/1.1",
		"use the server's gRPC address (--grpc), 8081 by default",
	},
	{
		"error reading server preface", "the server closes connections without TLS",
		"write https://host:port, if the server speaks TLS; use its gRPC address (--grpc)",
	},
	{
		"failed to verify certificate", "the server's certificate cannot be verified",
		"check the server's certificate and --tls-ca",
	},
}

// connectProblem returns the known cause of a failed connection. The message ends with gRPC's error, for
// details such as the names of a certificate.
func connectProblem(text string) (message, remedy string, known bool) {
	for _, p := range connectProblems {
		if strings.Contains(text, p.text) {
			detail := text
			if _, after, found := strings.Cut(text, "x509: "); found {
				detail = strings.TrimRight(after, `"`)
			} else if _, after, found := strings.Cut(text, "desc = "); found {
				detail = strings.Trim(after, `"`)
			}
			return p.message + ": " + detail, p.remedy, true
		}
	}
	return "", "", false
}
