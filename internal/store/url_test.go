package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/store"
)

// TestCheckURL checks that no part of a password is in an error about a database's URL.
func TestCheckURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://servo:geh%40eim@localhost/servo", "postgres://servo@/postgres?host=%2Ftmp%2Frun&port=5432", "postgresql://localhost",
		"host=localhost user=servo password=geheim", "postgres://servo:geheim@a:5432,b:5432/servo?target_session_attrs=read-write",
	} {
		require.NoError(t, store.CheckURL("--database", url), url)
	}
	for _, url := range []string{
		"postgres://servo:geh@eim@localhost/servo", "postgres://servo:geh/eim@localhost/servo", "postgres://servo:geh?eim@localhost/servo", "postgres://servo:geh#eim@localhost/servo",
		"postgres://servo:1234/eim@localhost/servo", "postgres://servo:geh eim@localhost/servo", "postgres://servo:geh%zzeim@localhost/servo",
		"postgresql://servo:@geheim@localhost:nan/servo", "postgres://servo:geheim@localhost:nan/servo", "postgres://servo:geheim@localhost/servo?sslmode=geheim",
		"host=localhost password=geh eim", "password='geh' eim' host", "servo:geheim@localhost",
	} {
		err := store.CheckURL("--database", url)
		f, ok := fault.As(err)
		require.True(t, ok, url)
		require.Equal(t, "--database", f.Violation.Field)
		for _, part := range []string{"geh", "eim", "1234"} {
			require.NotContains(t, f.Message, part, url)
			require.NotContains(t, strings.ReplaceAll(f.Violation.Remedy, "geheim", ""), part, url)
			require.NotContains(t, err.Error(), part, url)
		}
		_, err = store.Open(t.Context(), store.Options{URL: url})
		require.Error(t, err, url)
		for _, part := range []string{"geh", "eim", "1234"} {
			require.NotContains(t, err.Error(), part, url)
		}
	}
}
