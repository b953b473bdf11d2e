package oidc_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/oidc"
)

const goodFile = `
issuers:
  - issuer: https://login.example.com/realms/data
    audiences: [servo, servo-cli]
    subject: email
    grants:
      - {claim: groups, value: data-team, role: operator, tenant: acme, workspace: dev}
      - {claim: /realm_access/roles, value: servo-admins, role: platform}
`

func TestParse(t *testing.T) {
	t.Parallel()

	t.Run("a file lists trusted issuers and grants", func(t *testing.T) {
		t.Parallel()
		s, err := oidc.Parse([]byte(goodFile), "oidc.yaml")
		require.NoError(t, err)
		require.Equal(t, oidc.Settings{Issuers: []oidc.Issuer{{
			URL: "https://login.example.com/realms/data", Audiences: []string{"servo", "servo-cli"}, Algorithms: []string{"RS256", "ES256"}, Subject: "email",
			Rules: []oidc.Rule{
				{Claim: "groups", Value: "data-team", Grant: access.Grant{Role: access.Operator, Tenant: "acme", Workspace: "dev"}},
				{Claim: "/realm_access/roles", Value: "servo-admins", Grant: access.Grant{Role: access.Platform}},
			},
		}}}, s)
	})

	t.Run("JSON is as good", func(t *testing.T) {
		t.Parallel()
		s, err := oidc.Parse([]byte(`{"issuers": [{"issuer": "http://127.0.0.1:9000", "audiences": ["a"], "algorithms": ["EdDSA"], "ca": "ca.pem",
			"grants": [{"claim": "sub", "value": "jo", "role": "admin", "tenant": "acme"}]}]}`), filepath.Join("etc", "oidc.json"))
		require.NoError(t, err)
		require.Equal(t, []string{"EdDSA"}, s.Issuers[0].Algorithms)
		require.Equal(t, "sub", s.Issuers[0].Subject)
		require.Equal(t, filepath.Join("etc", "ca.pem"), s.Issuers[0].CA)
	})

	for name, c := range map[string]struct{ old, replaced, field, message string }{
		"an unknown field":               {"audiences:", "audience:", "issuers[0].audience", "did you mean audiences"},
		"no audience":                    {"    audiences: [servo, servo-cli]\n", "", "issuers[0].audiences", "is missing"},
		"a list that is none":            {"[servo, servo-cli]", "servo", "issuers[0].audiences", "is no list"},
		"a role that is none":            {"operator", "operater", "issuers[0].grants[0].role", "did you mean operator"},
		"the role of workers":            {"operator", "worker", "issuers[0].grants[0].role", "worker is not a role of people"},
		"a role without its tenant":      {"tenant: acme, ", "", "issuers[0].grants[0].tenant", "is missing"},
		"a tenant of the platform":       {"role: platform", "role: platform, tenant: acme", "issuers[0].grants[1].tenant", "platform is not a role of a tenant"},
		"a workspace of the platform":    {"role: platform", "role: platform, workspace: w", "issuers[0].grants[1].workspace", "is for the roles of a tenant"},
		"a name that is none":            {"acme", "Acme Inc", "issuers[0].grants[0].tenant", "is not the name of a tenant"},
		"no value":                       {"value: data-team, ", "", "issuers[0].grants[0].value", "is missing"},
		"an empty value":                 {"data-team", `""`, "issuers[0].grants[0].value", "has 0 bytes"},
		"plain text over the network":    {"https://login", "http://login", "issuers[0].issuer", "is not encrypted"},
		"another scheme":                 {"https://login", "ftp://login", "issuers[0].issuer", "is not https://"},
		"no URL":                         {"https://login.example.com/realms/data", "login", "issuers[0].issuer", "is not a URL"},
		"a query":                        {"realms/data", "realms/data?x=1", "issuers[0].issuer", "has a user, a query or a fragment"},
		"a symmetric algorithm":          {"subject: email", "algorithms: [HS256]", "issuers[0].algorithms[0]", "cannot be used"},
		"no algorithm at all":            {"subject: email", "algorithms: [none]", "issuers[0].algorithms[0]", "cannot be used"},
		"something twice":                {"subject: email", "subject: email\n    subject: sub", "issuers[0].subject", "is set more than once"},
		"a mapping that is none":         {"{claim: groups, value: data-team, role: operator, tenant: acme, workspace: dev}", "operator", "issuers[0].grants[0]", "is no mapping"},
		"a reference instead of a value": {"subject: email", "subject: &x email\n    name: *x", "issuers[0].name", "is no text"},
	} {
		t.Run("it is refused with file, line and field: "+name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(goodFile, c.old, c.replaced, 1)
			require.NotEqual(t, goodFile, text)
			_, err := oidc.Parse([]byte(text), "oidc.yaml")
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.field, f.Violation.Field)
			require.Contains(t, f.Message, c.message)
			require.Regexp(t, `^oidc\.yaml:\d+: `, f.Message)
			require.NotEmpty(t, f.Violation.Remedy)
		})
	}

	t.Run("all mistakes of a file are reported at once", func(t *testing.T) {
		t.Parallel()
		_, err := oidc.Parse([]byte("issuers:\n  - {issuer: x}\n  - {issuer: x}\n"), "oidc.yaml")
		f, ok := fault.As(err)
		require.True(t, ok)
		var fields []string
		for _, v := range f.Violations() {
			fields = append(fields, v.Field)
		}
		require.Subset(t, fields, []string{"issuers[0].issuer", "issuers[0].audiences", "issuers[0].grants", "issuers[0].name", "issuers[1].issuer", "issuers[1].name"})
	})

	t.Run("what is no file of settings is refused", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"", "issuers: []", "[]", "a: b: c", "issuers: {}", "\x00"} {
			_, err := oidc.Parse([]byte(text), "oidc.yaml")
			require.True(t, fault.Is(err, fault.InvalidArgument), "%q %v", text, err)
		}
	})

	t.Run("a missing file names its flag", func(t *testing.T) {
		t.Parallel()
		_, err := oidc.Read(filepath.Join(t.TempDir(), "none.yaml"), "--oidc")
		f, ok := fault.As(err)
		require.True(t, ok)
		require.Equal(t, "--oidc", f.Violation.Field)
		path := filepath.Join(t.TempDir(), "oidc.yaml")
		require.NoError(t, os.WriteFile(path, []byte(goodFile), 0o600))
		_, err = oidc.Read(path, "--oidc")
		require.NoError(t, err)
	})
}

const goodLogin = `
issuers:
  - issuer: https://login.example.com:8443/realms/data
    audiences: [servo-api, servo]
    grants:
      - {claim: groups, value: data-team, role: operator, tenant: acme}
    login:
      client_id: servo
      client_secret_file: secret.txt
      scopes: [openid, groups]
      label: ACME accounts
`

func TestParseLogin(t *testing.T) {
	t.Parallel()

	t.Run("an issuer defines how people log in with it", func(t *testing.T) {
		t.Parallel()
		s, err := oidc.Parse([]byte(goodLogin), filepath.Join("etc", "oidc.yaml"))
		require.NoError(t, err)
		require.Equal(t, &oidc.Login{ClientID: "servo", SecretFile: filepath.Join("etc", "secret.txt"), Scopes: []string{"openid", "groups"}, Label: "ACME accounts"}, s.Issuers[0].Login)
	})

	t.Run("most of it may be left out", func(t *testing.T) {
		t.Parallel()
		text, _, _ := strings.Cut(goodLogin, "      client_secret_file")
		s, err := oidc.Parse([]byte(text), "oidc.yaml")
		require.NoError(t, err)
		require.Equal(t, &oidc.Login{ClientID: "servo", Scopes: []string{"openid", "profile", "email"}, Label: "login.example.com:8443"}, s.Issuers[0].Login)
	})

	for name, c := range map[string]struct{ old, replaced, field, message string }{
		"no client":                      {"      client_id: servo\n", "", "client_id", "is missing"},
		"a client that is no audience":   {"client_id: servo", "client_id: servo-ui", "client_id", "is none of the audiences"},
		"a secret in the file itself":    {"client_secret_file: secret.txt", "client_secret: hunter2", "client_secret", "is not known"},
		"two secrets":                    {"label: ACME accounts", "client_secret_env: SECRET", "client_secret_env", "beside client_secret_file"},
		"a secret instead of a variable": {"client_secret_file: secret.txt", "client_secret_env: hunter2!", "client_secret_env", "is not the name of a variable"},
		"no openid":                      {"[openid, groups]", "[groups]", "scopes", "has no openid"},
		"several scopes in one":          {"[openid, groups]", "[openid groups]", "scopes[0]", "is not a scope"},
		"a token that nothing keeps":     {"[openid, groups]", "[openid, offline_access]", "scopes[1]", "nothing here keeps"},
		"a label that cannot be printed": {"ACME accounts", `"ACME\naccounts"`, "label", "cannot be printed"},
		"something unknown":              {"label:", "labels:", "labels", "did you mean label"},
	} {
		t.Run("it is refused with file, line and field: "+name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(goodLogin, c.old, c.replaced, 1)
			require.NotEqual(t, goodLogin, text)
			_, err := oidc.Parse([]byte(text), "oidc.yaml")
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, "issuers[0].login."+c.field, f.Violation.Field)
			require.Contains(t, f.Message, c.message)
			require.Regexp(t, `^oidc\.yaml:\d+: `, f.Message)
			require.NotEmpty(t, f.Violation.Remedy)
			require.NotContains(t, f.Error(), "hunter2")
		})
	}
}

func TestClientSecret(t *testing.T) {
	t.Setenv("SERVO_TEST_EMPTY", "")
	t.Setenv("SERVO_TEST_SECRET", "hunter2")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	try := func(l oidc.Login) error {
		l.ClientID = "servo"
		_, err := oidc.NewVerifier(oidc.Settings{Issuers: []oidc.Issuer{{URL: "https://login.example.com", Login: &l}}}, oidc.Options{})
		return err
	}
	for name, good := range map[string]oidc.Login{
		"of a file": {SecretFile: file("good", "hunter2\r\n")}, "of the environment": {SecretEnv: "SERVO_TEST_SECRET"}, "of a public client": {},
	} {
		require.NoError(t, try(good), name)
	}
	for name, c := range map[string]struct {
		login oidc.Login
		field string
	}{
		"a missing file":             {oidc.Login{SecretFile: filepath.Join(dir, "none")}, "client_secret_file"},
		"an empty file":              {oidc.Login{SecretFile: file("empty", "\n")}, "client_secret_file"},
		"a file of something else":   {oidc.Login{SecretFile: file("large", strings.Repeat("x", 5000))}, "client_secret_file"},
		"more than one line":         {oidc.Login{SecretFile: file("lines", "hunter2\nhunter3")}, "client_secret_file"},
		"a variable without value":   {oidc.Login{SecretEnv: "SERVO_TEST_EMPTY"}, "client_secret_env"},
		"a variable that is not set": {oidc.Login{SecretEnv: "SERVO_TEST_UNSET"}, "client_secret_env"},
	} {
		f, ok := fault.As(try(c.login))
		require.True(t, ok, name)
		require.Equal(t, "issuers[0].login."+c.field, f.Violation.Field, name)
		require.NotEmpty(t, f.Violation.Remedy, name)
		require.NotContains(t, f.Error(), "hunter2", name)
	}
}

func TestGuide(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "guides", "operate.md"))
	require.NoError(t, err)
	read := func(name string) oidc.Issuer {
		_, example, found := strings.Cut(string(page), "```yaml\n# "+name+"\n")
		require.True(t, found, name)
		example, _, _ = strings.Cut(example, "```")
		s, err := oidc.Parse([]byte(example), name)
		require.NoError(t, err)
		return s.Issuers[0]
	}
	require.Len(t, read("oidc.yaml").Rules, 3)
	require.Equal(t, "ACME", read("oidc-login.yaml").Login.Label)
}
