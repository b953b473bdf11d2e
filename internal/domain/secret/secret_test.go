package secret_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/domain/secret"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]secret.Ref{
		"env:DB_PASSWORD":                       {Provider: "env", Path: "DB_PASSWORD"},
		"${secret:file:acme/db}":                {Provider: "file", Path: "acme/db"},
		"${secret:vault:kv/acme/db#password@3}": {Provider: "vault", Path: "kv/acme/db#password", Version: "3"},
	} {
		got, err := secret.Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
		again, err := secret.Parse(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for text, message := range map[string]string{
		"":                                "is not a reference",
		"DB":                              "is not a reference",
		"file:../etc/passwd":              "is not a reference",
		"file:a/../../b":                  "is not a reference",
		"file:/etc/passwd":                "is not a reference",
		"keychain:x":                      `unknown provider "keychain"`,
		"${secret:env:A":                  "no closing brace",
		"env:" + strings.Repeat("a", 600): "has 604 bytes",
	} {
		_, err := secret.Parse(text)
		require.ErrorContains(t, err, message, text)
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	got, err := secret.Expand("Bearer ${secret:env:A}-${secret:env:B}", func(r secret.Ref) (string, error) { return strings.ToLower(r.Path) + "${secret:env:C}", nil })
	require.NoError(t, err)
	require.Equal(t, "Bearer a${secret:env:C}-b${secret:env:C}", got, "a value is not expanded again")
	_, err = secret.Expand("${secret:env:A}", func(secret.Ref) (string, error) { return "", errors.New("no") })
	require.ErrorContains(t, err, "no")
	_, err = secret.Expand("${secret:nosuch:A}", nil)
	require.ErrorContains(t, err, "unknown provider")
	got, err = secret.Expand("$HOME ${x}", nil)
	require.NoError(t, err)
	require.Equal(t, "$HOME ${x}", got)
}

func TestRules(t *testing.T) {
	t.Parallel()
	rules := secret.Rules{
		{Tenants: []string{"acme"}, Secrets: []string{"env:ACME_*", "file:acme/db"}},
		{Tenants: []string{"*"}, Pools: []string{"etl"}, Secrets: []string{"vault:kv/shared/*"}},
	}
	for _, c := range []struct {
		tenant string
		pools  []string
		ref    string
		allows bool
	}{
		{"acme", []string{"any"}, "env:ACME_KEY", true},
		{"globex", []string{"any"}, "env:ACME_KEY", false},
		{"acme", []string{"any"}, "env:GLOBEX_KEY", false},
		{"acme", []string{"any"}, "file:acme/db@2", true},
		{"acme", []string{"any"}, "file:acme/dbx", false},
		{"globex", []string{"etl"}, "vault:kv/shared/a#b", true},
		{"globex", []string{"etl", "other"}, "vault:kv/shared/a#b", false},
	} {
		r, err := secret.Parse(c.ref)
		require.NoError(t, err)
		require.Equal(t, c.allows, rules.Allows(c.tenant, c.pools, r), c)
	}
	require.False(t, secret.Rules(nil).Allows("acme", nil, secret.Ref{Provider: "env", Path: "A"}), "nothing is permitted by default")
}

// TestForms hides a value in longer texts: one of its forms finds it wherever it lies.
func TestForms(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringN(8, 60, -1).Draw(t, "value")
		before := rapid.SliceOfN(rapid.Byte(), 0, 7).Draw(t, "before")
		after := rapid.SliceOfN(rapid.Byte(), 0, 7).Draw(t, "after")
		whole := append(append(append([]byte{}, before...), value...), after...)
		quoted, err := json.Marshal("x" + value + "y")
		require.NoError(t, err)
		for name, text := range map[string]string{
			"plain": string(whole), "base64": base64.StdEncoding.EncodeToString(whole), "base64 for URLs": base64.URLEncoding.EncodeToString(whole),
			"without padding": base64.RawStdEncoding.EncodeToString(whole), "JSON": string(quoted),
		} {
			found := false
			for _, form := range secret.Forms(value) {
				found = found || strings.Contains(text, form)
			}
			require.True(t, found, name)
		}
	})
}
