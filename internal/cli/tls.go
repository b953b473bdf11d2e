package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/daemon"
)

// addTLSCA gives a command --tls-ca. It is read as a setting.
func addTLSCA(cmd *cobra.Command) {
	cmd.Flags().String("tls-ca", "", "PEM file with the CA certificates of servers (SERVO_TLS_CA; default: those of this machine)")
}

// addTLSPair gives a command --tls-cert and --tls-key, with which it shows who it is.
func addTLSPair(cmd *cobra.Command) {
	cmd.Flags().String("tls-cert", "", "PEM file with the client certificate (SERVO_TLS_CERT)")
	cmd.Flags().String("tls-key", "", "PEM file with the private key of the client (SERVO_TLS_KEY)")
}

// addServerTLS gives a command the flags of both listeners.
func addServerTLS(cmd *cobra.Command, t *daemon.TLS) {
	flags := cmd.Flags()
	flags.StringVar(&t.Cert, "tls-cert", "", "PEM file with the certificate of both addresses; reloaded on change and on SIGHUP")
	flags.StringVar(&t.Key, "tls-key", "", "PEM file with the private key of the certificate")
	flags.StringVar(&t.ClientCA, "tls-client-ca", "", "PEM file with the CA certificates that workers need a certificate of")
}

// encryption is how to speak to the servers; nil is plain text, or the scheme of the address.
func (s settings) encryption() (*tls.Config, error) {
	config, err := client.TLSFromFiles(s.TLS)
	if p, ok := errors.AsType[*client.Problem](err); ok {
		return nil, fault.New(fault.InvalidArgument, p.Message, fault.Field("--"+strings.ReplaceAll(p.Field, "_", "-")), fault.Remedy(p.Remedy), fault.Cause(err))
	}
	return config, err
}

// reloadOnHangup reads a server's TLS files again whenever SIGHUP comes, until the context ends.
func reloadOnHangup(ctx context.Context, d *daemon.Daemon, log *slog.Logger) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-hangups:
				if d.ReloadTLS() == nil { // it logs errors itself
					log.Info("reloaded the TLS files after SIGHUP")
				}
			case <-ctx.Done():
				return
			}
		}
	}()
}
