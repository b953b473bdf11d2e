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
	cmd.Flags().String("tls-ca", "", "PEM file with the authorities to believe of servers that speak TLS (SERVO_TLS_CA; default: those of this machine)")
}

// addTLSPair gives a command --tls-cert and --tls-key, with which it shows who it is.
func addTLSPair(cmd *cobra.Command) {
	cmd.Flags().String("tls-cert", "", "PEM file with a certificate to show to servers that ask for one (SERVO_TLS_CERT)")
	cmd.Flags().String("tls-key", "", "PEM file with its private key (SERVO_TLS_KEY)")
}

// addServerTLS gives a command the flags of both listeners.
func addServerTLS(cmd *cobra.Command, t *daemon.TLS) {
	flags := cmd.Flags()
	flags.StringVar(&t.Cert, "tls-cert", "", "PEM file with the certificate of both addresses, which speak TLS then; read again when it changes, and on SIGHUP")
	flags.StringVar(&t.Key, "tls-key", "", "PEM file with its private key")
	flags.StringVar(&t.ClientCA, "tls-client-ca", "", "PEM file with the authorities of workers: their calls need a certificate of one of them")
}

// encryption is how to speak to the servers; nil is plain text, or as the address says.
func (s settings) encryption() (*tls.Config, error) {
	config, err := client.TLSFromFiles(s.TLS)
	if p, ok := errors.AsType[*client.Problem](err); ok {
		return nil, fault.New(fault.InvalidArgument, p.Message, fault.Field("--"+strings.ReplaceAll(p.Field, "_", "-")), fault.Remedy(p.Remedy), fault.Cause(err))
	}
	return config, err
}

// reloadOnHangup reads a server's TLS files again whenever SIGHUP comes, until the context ends.
func reloadOnHangup(ctx context.Context, d *daemon.Daemon, log *slog.Logger) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	go func() {
		defer signal.Stop(heard)
		for {
			select {
			case <-heard:
				if d.ReloadTLS() == nil { // what is wrong with them is told by itself
					log.Info("looked at the TLS files, as SIGHUP asks")
				}
			case <-ctx.Done():
				return
			}
		}
	}()
}
