package store

import (
	"context"
	"fmt"

	"go.arco.dev/servo/internal/base/fault"
)

// requireDirect returns an error if the store is behind a pooler and was opened without Pooler.
// Prepared statements stay on a connection, and a pooler in transaction mode assigns the connection
// to other clients, which then fail because the statements exist already. A pooler is detected by
// its cancel key: it does not name the process of the server.
func (s *Store) requireDirect(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("reach the database: %w", err)
	}
	defer conn.Release()
	results, err := conn.Conn().PgConn().Exec(ctx, `SELECT pg_backend_pid()`).ReadAll()
	if err != nil {
		return fmt.Errorf("reach the database: %w", err)
	}
	if process := string(results[0].Rows[0][0]); process != fmt.Sprint(conn.Conn().PgConn().PID()) {
		return fault.New(fault.InvalidArgument, "the database URL leads to a connection pooler", fault.Field("--database"),
			fault.Remedy("start servers with --pooler; other commands connect to PostgreSQL itself"))
	}
	return nil
}
