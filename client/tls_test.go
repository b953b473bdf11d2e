package client_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/certs"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	pair := ca.Issue(t, "server", time.Hour)
	server := servertest.StartEncrypted(t, pair, "")
	ask := func(t *testing.T, address string, files client.TLSFiles) error {
		t.Helper()
		config, err := client.TLSFromFiles(files)
		require.NoError(t, err)
		c := open(t, client.Options{Servers: []string{address}, TLS: config, Patience: 200 * time.Millisecond})
		_, err = c.Status().GetStatus(t.Context(), &servov1.GetStatusRequest{})
		return err
	}

	t.Run("a client that trusts the authority connects, with https:// or without", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, ask(t, "https://"+server.GRPC, client.TLSFiles{CA: ca.File}))
		require.NoError(t, ask(t, server.GRPC, client.TLSFiles{CA: ca.File}))
		require.NoError(t, ask(t, "https://"+server.GRPC+"/", client.TLSFiles{CA: ca.File, Cert: pair.Cert, Key: pair.Key}))
	})

	t.Run("an unknown authority is refused", func(t *testing.T) {
		t.Parallel()
		err := ask(t, "https://"+server.GRPC, client.TLSFiles{})
		require.True(t, client.Is(err, client.Unavailable), "%v", err)
		require.ErrorContains(t, err, "unknown authority")
	})

	t.Run("each mistake has a message and a remedy of its own", func(t *testing.T) {
		t.Parallel()
		plain := servertest.Start(t)
		expired := servertest.StartEncrypted(t, ca.Issue(t, "old", -time.Hour), "")
		for i, m := range []struct {
			err           error
			message, help string
		}{
			{ask(t, "https://"+server.GRPC, client.TLSFiles{}), "is signed by an unknown authority", "--tls-ca"},
			{ask(t, "https://"+expired.GRPC, client.TLSFiles{CA: ca.File}), "has expired", "renew"},
			{ask(t, "https://"+plain.GRPC, client.TLSFiles{CA: ca.File}), "does not speak TLS", "without https://"},
			{ask(t, server.GRPC, client.TLSFiles{}), "without TLS", "https://"},
			{ask(t, strings.TrimPrefix(plain.URL, "http://"), client.TLSFiles{}), "is not that of gRPC", "--grpc"},
		} {
			p, ok := errors.AsType[*client.Problem](m.err)
			require.True(t, ok, "%d: %v", i, m.err)
			require.Equal(t, client.Unavailable, p.Code)
			require.Equal(t, "servers", p.Field)
			require.Contains(t, p.Message, m.message)
			require.Contains(t, p.Remedy, m.help)
		}
	})
}

func TestTLSFromFiles(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	one, other := ca.Issue(t, "one", time.Hour), ca.Issue(t, "other", time.Hour)

	t.Run("nothing named is nothing asked for", func(t *testing.T) {
		t.Parallel()
		config, err := client.TLSFromFiles(client.TLSFiles{})
		require.NoError(t, err)
		require.Nil(t, config)
	})

	for claim, c := range map[string]struct {
		files client.TLSFiles
		field string
	}{
		"a missing authority file":       {client.TLSFiles{CA: ca.File + "x"}, "tls_ca"},
		"an authority that is none":      {client.TLSFiles{CA: one.Key}, "tls_ca"},
		"a certificate without its key":  {client.TLSFiles{Cert: one.Cert}, "tls_key"},
		"a key without its certificate":  {client.TLSFiles{Key: one.Key}, "tls_cert"},
		"the key of another certificate": {client.TLSFiles{Cert: one.Cert, Key: other.Key}, "tls_cert"},
	} {
		t.Run(claim+" is refused", func(t *testing.T) {
			t.Parallel()
			_, err := client.TLSFromFiles(c.files)
			p, ok := errors.AsType[*client.Problem](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.field, p.Field)
		})
	}

	t.Run("a certificate that is renewed is shown at the next connection", func(t *testing.T) {
		t.Parallel()
		pair := ca.Issue(t, "first", time.Hour)
		config, err := client.TLSFromFiles(client.TLSFiles{Cert: pair.Cert, Key: pair.Key})
		require.NoError(t, err)
		before, err := config.GetClientCertificate(nil)
		require.NoError(t, err)
		ca.IssueTo(t, pair, "second", time.Hour)
		now, err := config.GetClientCertificate(nil)
		require.NoError(t, err)
		require.NotEqual(t, before.Leaf.SerialNumber, now.Leaf.SerialNumber)
		require.NoError(t, os.Remove(pair.Key))
		_, err = config.GetClientCertificate(nil)
		require.Error(t, err)
	})

	t.Run("some with TLS and some without is a mistake", func(t *testing.T) {
		t.Parallel()
		for _, servers := range [][]string{{"https://a:1", "b:2"}, {"a:1", "https://b:2"}, {"https://a:1/path"}, {"https://"}, {"https://:8081"}} {
			_, err := client.New(client.Options{Servers: servers})
			require.True(t, client.Is(err, client.InvalidArgument), "%v: %v", servers, err)
		}
		for _, servers := range [][]string{{"https://a:1", "https://b"}, {"https://[::1]:8081"}, {"https://servo.example.com"}} {
			open(t, client.Options{Servers: servers})
		}
	})
}
