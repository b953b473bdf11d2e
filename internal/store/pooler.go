package store

import (
	"context"
	"fmt"

	"go.arco.dev/servo/internal/base/fault"
)

// requireDirect refuses a pooler that the store was not told of. Statements stay prepared on a
// connection, and a pooler in transaction mode hands the connection on: the next one is told that
// they exist already, without end. A pooler is known by its cancel key, which names a process of
// its own and not the one that answers.
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
		return fault.New(fault.InvalidArgument, "a connection pooler stands in front of the database", fault.Field("--database"),
			fault.Remedy("start servers with --pooler; other commands connect to PostgreSQL itself"))
	}
	return nil
}
