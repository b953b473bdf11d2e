//go:build !duckdb || !cgo

package checks_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/quality"
)

func TestSQLWithoutDuckDB(t *testing.T) {
	t.Parallel()
	result := one(t, quality.Check{Type: quality.CustomSQL, SQL: "SELECT 1"})
	require.True(t, result.Failed(), "a check that cannot run has failed")
	require.Contains(t, result.Error, "has no DuckDB")
}
