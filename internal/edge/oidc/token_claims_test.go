package oidc_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/oidc"
)

func TestPerson(t *testing.T) {
	t.Parallel()
	grant := access.Grant{Role: access.Operator, Tenant: "acme"}

	for name, c := range map[string]struct {
		claim, value string
		claims       oidc.Claims
		fits         bool
	}{
		"a text":                        {"team", "data", oidc.Claims{"team": "data"}, true},
		"another text":                  {"team", "data", oidc.Claims{"team": "database"}, false},
		"no claim":                      {"team", "data", oidc.Claims{}, false},
		"a list":                        {"groups", "b", oidc.Claims{"groups": []any{"a", "b"}}, true},
		"a list without it":             {"groups", "c", oidc.Claims{"groups": []any{"a", "b"}}, false},
		"a list in a list":              {"groups", "b", oidc.Claims{"groups": []any{[]any{"b"}}}, false},
		"a truth":                       {"staff", "true", oidc.Claims{"staff": true}, true},
		"a number":                      {"level", "7", oidc.Claims{"level": json.Number("7")}, true},
		"a nested list":                 {"/realm_access/roles", "x", oidc.Claims{"realm_access": map[string]any{"roles": []any{"x"}}}, true},
		"a way that ends early":         {"/realm_access/roles", "x", oidc.Claims{"realm_access": "x"}, false},
		"a mapping":                     {"realm_access", "x", oidc.Claims{"realm_access": map[string]any{"x": "x"}}, false},
		"a name with dots and slashes":  {"https://example.com/groups", "x", oidc.Claims{"https://example.com/groups": "x"}, true},
		"an address":                    {"email", "jo@example.com", oidc.Claims{"email": "jo@example.com"}, true},
		"a verified address":            {"email", "jo@example.com", oidc.Claims{"email": "jo@example.com", "email_verified": true}, true},
		"an address of who knows whom":  {"email", "jo@example.com", oidc.Claims{"email": "jo@example.com", "email_verified": false}, false},
		"the same by the way to it":     {"/email", "jo@example.com", oidc.Claims{"email": "jo@example.com", "email_verified": "false"}, false},
		"verified, in text":             {"email", "jo@example.com", oidc.Claims{"email": "jo@example.com", "email_verified": "true"}, false},
		"verified, in a way of its own": {"email", "jo@example.com", oidc.Claims{"email": "jo@example.com", "email_verified": json.Number("1")}, false},
	} {
		t.Run("a rule fits claims or not: "+name, func(t *testing.T) {
			t.Parallel()
			c.claims["sub"] = "jo"
			rule := oidc.Rule{Claim: c.claim, Value: c.value, Grant: grant}
			p, ok := oidc.Issuer{Subject: "sub", Rules: []oidc.Rule{rule, rule}}.Person(c.claims)
			require.True(t, ok)
			if c.fits {
				require.Equal(t, []access.Grant{grant}, p.Grants)
			} else {
				require.Empty(t, p.Grants)
			}
		})
	}

	t.Run("a token without a subject is refused", func(t *testing.T) {
		t.Parallel()
		for _, claims := range []oidc.Claims{{}, {"sub": ""}, {"sub": json.Number("1")}, {"sub": []any{"jo"}}, {"sub": nil}} {
			_, ok := oidc.Issuer{Subject: "sub"}.Person(claims)
			require.False(t, ok, "%v", claims)
		}
		_, ok := oidc.Issuer{Subject: "email"}.Person(oidc.Claims{"email": "jo@example.com", "email_verified": false})
		require.False(t, ok)
	})

	t.Run("an actor is safe in a log, and unique", func(t *testing.T) {
		t.Parallel()
		actor := func(name, subject string) string {
			p, ok := oidc.Issuer{Name: name, Subject: "sub"}.Person(oidc.Claims{"sub": subject})
			require.True(t, ok)
			return p.Actor
		}
		require.Equal(t, "oidc/jo@example.com", actor("", "jo@example.com"))
		require.Equal(t, "oidc/corp/jo", actor("corp", "jo"))
		require.Regexp(t, `^oidc/a_b#[0-9a-f]{16}$`, actor("", "a\nb"))
		subject := rapid.OneOf(rapid.StringN(1, 300, -1), rapid.SampledFrom([]string{"a", "a#", "a_", "a\x00", "a\u202e", strings.Repeat("x", 400), strings.Repeat("x", 401)}))
		rapid.Check(t, func(t *rapid.T) {
			one, other := subject.Draw(t, "one"), subject.Draw(t, "other")
			a, b := actor("corp", one), actor("corp", other)
			require.LessOrEqual(t, len(a), 200)
			require.True(t, utf8.ValidString(a))
			require.True(t, strings.HasPrefix(a, "oidc/corp/"))
			require.Equal(t, -1, strings.IndexFunc(a, func(r rune) bool { return !unicode.IsPrint(r) }))
			require.Equal(t, one == other, a == b)
		})
	})
}
