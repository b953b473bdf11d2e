package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
)

// maxKeyInput limits the input that is read for a key.
const maxKeyInput = 4096

// newLogin stores a key for a server.
func newLogin() *cobra.Command {
	var (
		name, tenant string
		command      string
	)
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Log in to a server with an API key",
		Long: `Store a server with an API key as a context, and use it for later commands. The key is read from
standard input, or prompted for without echo. It is checked before it is stored, in a file that
only you can read, next to the configuration file.

With --token-command a command is stored instead of a key. Each later command runs it to get a
token of an OpenID Connect issuer that the server trusts.

A key or a token in ` + keyVariable + ` overrides that of the context. The key of a context is sent
to its own servers only.`,
		Example: `  servo login --server servo.example.com:8081 --context prod
  servo keys create ci --role developer -o json | jq -r .secret | servo login --context ci
  servo login --server servo.example.com:8081 --token-command 'gcloud auth print-identity-token'`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			env := environmentOf(cmd.Context())
			settings, err := readSettings(cmd.Flags(), env)
			if err != nil {
				return err
			}
			if !contextName.MatchString(name) {
				return fault.New(fault.InvalidArgument, fmt.Sprintf("%.100q is not a name", name), fault.Field("--context"), fault.Remedy("use letters, digits, - _ and ., such as prod"))
			}
			key, kept, err := loginWith(cmd, command)
			if err != nil {
				return err
			}
			if err := tryKey(cmd.Context(), settings, key); err != nil {
				return err
			}
			c, err := readContexts(env)
			if err != nil {
				return err
			}
			if settings.TLS.CA != "" {
				if settings.TLS.CA, err = filepath.Abs(settings.TLS.CA); err != nil {
					return err
				}
			}
			c.Contexts[name] = serverContext{Servers: settings.Servers, CA: settings.TLS.CA, Tenant: tenant, Key: kept, Command: command}
			c.Current = name
			if err := c.write(); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "using context %s: %s\n", name, strings.Join(settings.Servers, ", "))
			return nil
		},
	}
	addServer(cmd)
	addTLSCA(cmd)
	cmd.Flags().StringVar(&name, "context", "default", "name of the context")
	cmd.Flags().StringVar(&command, "token-command", "", "shell command that prints a token, instead of a key")
	cmd.Flags().StringVarP(&tenant, "tenant", "t", "", "default tenant of the context")
	return cmd
}

// loginWith returns the credential for the server, and the key to store: none with a command.
func loginWith(cmd *cobra.Command, command string) (key, kept string, err error) {
	if command != "" {
		key, err = tokenFrom(cmd.Context(), command, cmd.ErrOrStderr())
		return key, "", err
	}
	key, err = readKey(cmd)
	return key, key, err
}

// readKey reads a key from standard input, or prompts for it.
func readKey(cmd *cobra.Command) (string, error) {
	var text string
	if in, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(in.Fd()) {
		fmt.Fprint(cmd.ErrOrStderr(), "API key: ")
		raw, err := term.ReadPassword(in.Fd())
		fmt.Fprintln(cmd.ErrOrStderr())
		if err != nil {
			return "", fmt.Errorf("read the key: %w", err)
		}
		text = string(raw)
	} else {
		raw, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxKeyInput))
		if err != nil {
			return "", fmt.Errorf("read the key: %w", err)
		}
		text = string(raw)
	}
	text = strings.TrimSpace(text)
	if _, ok := access.ParseSecret(text); !ok {
		return "", fault.New(fault.InvalidArgument, "invalid API key", fault.Field("key"), fault.Remedy("pass the key as it was printed, sk_…, on standard input"))
	}
	return text, nil
}

// tryKey checks that a server accepts a key, whatever its role.
func tryKey(ctx context.Context, at settings, key string) error {
	encryption, err := at.encryption()
	if err != nil {
		return err
	}
	c, err := client.New(client.Options{Servers: at.Servers, TLS: encryption, APIKey: key, Patience: patience, UserAgent: "servo-cli/" + thisBuild().Version})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // its call has returned
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = c.Tenants().ListTenants(ctx, &servov1.ListTenantsRequest{PageSize: 1})
	if err == nil || client.Is(err, client.Forbidden) {
		return nil
	}
	s := &session{settings: at}
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == client.Unauthenticated {
		return fault.New(fault.Unauthenticated, "the server rejects this key", fault.Field("key"),
			fault.Remedy("check with servo keys list whether it is expired or revoked; the server's log has the reason for a token"))
	}
	return s.explain(err)
}
