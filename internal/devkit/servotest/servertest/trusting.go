package servertest

import (
	"maps"
	"slices"
	"testing"

	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/issuer"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/oidc"
)

// StartTrusting starts a server that requires keys and accepts the tokens of an issuer: members of
// a group have its grant.
func StartTrusting(t testing.TB, from *issuer.Issuer, groups map[string]access.Grant) *Server {
	t.Helper()
	return startTrusting(t, from, groups, nil)
}

// StartLogin is StartTrusting for one whose pages lead to the issuer, called label, and back.
func StartLogin(t testing.TB, from *issuer.Issuer, label string, groups map[string]access.Grant) *Server {
	t.Helper()
	return startTrusting(t, from, groups, &oidc.Login{ClientID: issuer.Audience, Scopes: []string{"openid"}, Label: label})
}

func startTrusting(t testing.TB, from *issuer.Issuer, groups map[string]access.Grant, login *oidc.Login) *Server {
	t.Helper()
	one := oidc.Issuer{URL: from.URL, Audiences: []string{issuer.Audience}, Algorithms: []string{"RS256", "ES256"}, Subject: "sub", Login: login}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		one.Rules = append(one.Rules, oidc.Rule{Claim: "groups", Value: group, Grant: groups[group]})
	}
	return StartKeyed(t, daemon.Config{DatabaseURL: servotest.DB(t).URL, OIDC: oidc.Settings{Issuers: []oidc.Issuer{one}}})
}
