package store_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// statements are the queries of a file pattern by name, without comments.
func statements(t testing.TB, pattern string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("queries", pattern))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	found := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, query := range strings.Split(string(text), "-- name: ")[1:] {
			name, body, _ := strings.Cut(query, " ")
			found[name] = regexp.MustCompile(`--.*`).ReplaceAllString(body, "")
		}
	}
	return found
}

// TestEngineQueriesAreArgued holds docs/adr/0005 to the queries that there are: under the
// role of the engine each must state how it keeps tenants apart.
func TestEngineQueriesAreArgued(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "adr", "0005-row-level-security.md"))
	require.NoError(t, err)
	groups := map[string][]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([1-4]) \| (.*) \|$`).FindAllStringSubmatch(string(page), -1) {
		groups[row[1]] = regexp.MustCompile(`\b[A-Z]\w+`).FindAllString(row[2], -1)
	}
	require.Len(t, groups, 4)
	argued := slices.Concat(groups["1"], groups["2"], groups["3"], groups["4"])

	all := statements(t, "*.sql")
	for _, name := range argued {
		require.Contains(t, all, name, "the page names a query that does not exist")
	}
	reads, apart := statements(t, "reads*.sql"), statements(t, "verify.sql")
	reads["EnterTenant"] = "" // what they begin with
	for name, sql := range all {
		if _, verify := apart[name]; verify {
			continue
		}
		if _, read := reads[name]; read {
			require.NotContains(t, argued, name, "the policy of a tenant binds it")
			continue
		}
		named := 0
		for _, other := range argued {
			if other == name {
				named++
			}
		}
		if strings.HasPrefix(name, "Insert") && named == 0 {
			require.Contains(t, sql, "tenant", "%s: a row carries its tenant", name)
			continue
		}
		require.Equal(t, 1, named, "%s is in one group", name)
	}
	delete(reads, "EnterTenant")
	for name, sql := range reads {
		require.Regexp(t, `(tenant_id|t\.id) = @tenant_id::uuid`, sql, "%s does not begin with the tenant", name)
	}
	compared := regexp.MustCompile(`(tenant_id|\b[tx]\.id) = (ANY \(ARRAY\[)?(\w+\.tenant_id|@tenant_id::uuid)`)
	for _, name := range groups["1"] {
		if !strings.HasPrefix(name, "Insert") {
			require.Regexp(t, compared, all[name], "%s compares no tenant", name)
		}
	}
}
