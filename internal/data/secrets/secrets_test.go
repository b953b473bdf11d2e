package secrets_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/data/secrets"
	"go.arco.dev/servo/internal/domain/secret"
)

// fakeVault speaks the API of Vault's key-value engine, version 2.
func fakeVault(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("X-Vault-Token") != "token-1":
		http.Error(w, `{"errors":["permission denied"]}`, http.StatusForbidden)
	case r.URL.Path == "/v1/kv/data/acme/db" && r.URL.Query().Get("version") == "2":
		_, _ = w.Write([]byte(`{"data":{"data":{"password":"older value"},"metadata":{"version":2}}}`))
	case r.URL.Path == "/v1/kv/data/acme/db":
		_, _ = w.Write([]byte(`{"data":{"data":{"password":"from vault"},"metadata":{"version":3}}}`))
	case r.URL.Path == "/v1/kv/data/acme/sealed":
		http.Error(w, `{"errors":["Vault is sealed"]}`, http.StatusServiceUnavailable)
	default:
		http.Error(w, `{"errors":[]}`, http.StatusNotFound)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	vault := httptest.NewServer(http.HandlerFunc(fakeVault))
	t.Cleanup(vault.Close)
	dir, outside := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "acme"), 0o700))
	write(filepath.Join(dir, "acme", "db"), "from a file\n")
	write(filepath.Join(dir, "acme", "short"), "abc")
	write(filepath.Join(outside, "other"), "of another")
	require.NoError(t, os.Symlink(filepath.Join(outside, "other"), filepath.Join(dir, "acme", "link")))
	write(filepath.Join(dir, "token"), "token-1\n")
	write(filepath.Join(dir, "bad"), "token-2")
	settings := secrets.Settings{
		Allow: secret.Rules{{Tenants: []string{"acme"}, Secrets: []string{"env:ACME_*", "file:acme/*", "vault:kv/acme/*"}}},
		Dir:   dir, Vault: &secrets.VaultSettings{Address: vault.URL, TokenFile: filepath.Join(dir, "token")},
	}
	getenv := func(name string) (string, bool) { return "from env", name == "ACME_KEY" }
	store := secrets.New(settings, getenv)

	for ref, want := range map[string]string{
		"env:ACME_KEY": "from env", "file:acme/db": "from a file", "vault:kv/acme/db#password": "from vault", "vault:kv/acme/db#password@2": "older value",
	} {
		parsed, err := secret.Parse(ref)
		require.NoError(t, err)
		value, err := store.Read(t.Context(), "acme", []string{"p"}, parsed)
		require.NoError(t, err, ref)
		require.Equal(t, want, value)
		_, err = store.Read(t.Context(), "globex", []string{"p"}, parsed)
		require.True(t, fault.Is(err, fault.Forbidden), "another tenant does not get %s", ref)
	}
	for ref, code := range map[string]fault.Code{
		"env:ACME_NONE": fault.NotFound, "env:OTHER": fault.Forbidden, "file:acme/none": fault.NotFound, "file:acme/link": fault.Forbidden,
		"file:acme/short": fault.InvalidArgument, "file:acme/db@1": fault.InvalidArgument, "vault:kv/acme/none#x": fault.NotFound, "vault:kv/acme/db#none": fault.NotFound,
		"vault:kv/acme/db": fault.NotFound, "vault:kv/acme/sealed#x": fault.Unavailable,
	} {
		parsed, err := secret.Parse(ref)
		require.NoError(t, err)
		value, err := store.Read(t.Context(), "acme", []string{"p"}, parsed)
		require.True(t, fault.Is(err, code), "%s: %v", ref, err)
		require.Empty(t, value)
	}
	settings.Vault.TokenFile = filepath.Join(dir, "bad")
	_, err := secrets.New(settings, getenv).Read(t.Context(), "acme", nil, secret.Ref{Provider: "vault", Path: "kv/acme/db#password"})
	require.True(t, fault.Is(err, fault.Forbidden), err)
}

func TestLoad(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "secrets.yaml")
	require.NoError(t, os.WriteFile(name, []byte("allow:\n  - {tenants: [acme], pools: [etl], secrets: ['env:*']}\n"), 0o600))
	_, err := secrets.Load(name)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, []byte("alow: []\n"), 0o600))
	_, err = secrets.Load(name)
	require.ErrorContains(t, err, "alow")
	_, err = secrets.Load(name + "x")
	require.True(t, fault.Is(err, fault.InvalidArgument))
}
