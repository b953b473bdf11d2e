//go:build !duckdb || !cgo

package checks

import (
	"context"

	"go.arco.dev/servo/internal/base/fault"
)

// HasSQL reports whether this build runs custom_sql checks.
const HasSQL = false

func runSQL(context.Context, sqlQuery) (sqlRows, error) {
	return sqlRows{}, fault.New(fault.Unavailable, "this build of the worker has no DuckDB", fault.Remedy("use a worker that was built with the tag duckdb"))
}
