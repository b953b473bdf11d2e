package servotest

import "github.com/jackc/pgx/v5/pgconn"

// PgError is an error as PostgreSQL would send it, for tests of who handles it.
func PgError(code string) error {
	return &pgconn.PgError{Severity: "ERROR", Code: code, Message: "made up by a test"}
}
