package cli

import (
	"context"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/oidc"
)

const (
	oidcFlag     = "--oidc"
	oidcVariable = "SERVO_OIDC"
)

// addOIDC gives a command --oidc.
func addOIDC(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "oidc", "", "YAML or JSON file with trusted OpenID Connect issuers and their grants ("+oidcVariable+")")
}

// readOIDC reads the issuers that are trusted; there may be none.
func readOIDC(ctx context.Context, path string) (oidc.Settings, error) {
	if path == "" {
		path = environmentOf(ctx).Getenv(oidcVariable)
	}
	if path == "" {
		return oidc.Settings{}, nil
	}
	return oidc.Read(environmentOf(ctx).path(path), oidcFlag)
}

// openOIDC refuses issuers on a server without authentication.
func openOIDC(open bool, settings oidc.Settings) error {
	if open && len(settings.Issuers) > 0 {
		return fault.New(fault.InvalidArgument, "has no effect with --open, which disables authentication", fault.Field(oidcFlag), fault.Remedy("remove one of the two flags"))
	}
	return nil
}

// checkIssuers checks that the issuers can be reached, and have keys.
func (d *doctor) checkIssuers(ctx context.Context) []finding {
	settings, err := readOIDC(ctx, d.oidc)
	if err != nil {
		return under("OIDC", failing(err))
	}
	found := []finding{}
	for _, issuer := range settings.Issuers {
		ctx, cancel := context.WithTimeout(ctx, doctorPatience)
		keys, err := oidc.Probe(ctx, issuer)
		cancel()
		f := finding{Check: "OIDC", Verdict: passed, Message: issuer.URL + " has " + count(keys, "key")}
		switch {
		case err != nil:
			f.Verdict, f.Message, f.Remedy = failed, issuer.URL+" cannot be used: "+err.Error(), "check that the servers reach it, and that the file has the issuer of its tokens"
		case keys == 0:
			f.Verdict, f.Message, f.Remedy = failed, issuer.URL+" has no key that can be used", "let it publish keys with ids for RS256 or ES256 at its jwks_uri"
		}
		found = append(found, f)
	}
	return found
}
