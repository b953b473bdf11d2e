package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/store/internal/db"
)

// beginEngine begins a transaction and executes EnterEngine in one message, which saves a round
// trip for each transaction of the engine.
const beginEngine = "begin;\n" + db.EnterEngine

// lineage is the cluster and timeline that this store has prepared for. After a failover that lost
// commits, or a restore, PostgreSQL would allocate the same tokens and transaction ids again.
// Before any other statement on another timeline, the store raises the tokens above all allocated
// ones and begins a new epoch of the feed.
type lineage struct {
	mu    sync.Mutex
	known string // system identifier and timeline; "" if unknown, or not readable for the login role
}

func (l *lineage) current() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// follow checks that the store has prepared for the cluster behind a connection, and prepares if
// not. The store calls it with every new connection and, behind a pooler, which reconnects by
// itself, when a transaction has found another cluster (see begin). All servers call it; the first
// one raises the tokens, under a lock of the whole database.
func (s *Store) follow(ctx context.Context, conn *pgx.Conn) error {
	found, err := clusterOf(ctx, conn)
	if err != nil || found == "" {
		return err
	}
	s.lineage.mu.Lock()
	defer s.lineage.mu.Unlock()
	if found == s.lineage.known {
		return nil
	}
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{}, func(raw pgx.Tx) error {
		tx := s.tx(raw)
		if err := tx.q.EnterEngine(ctx); err != nil {
			return err
		}
		if found, err = tx.q.FeedCluster(ctx); err != nil {
			return err
		}
		_, err = tx.raiseEpoch(ctx, found, otherCluster(found))
		return err
	})
	switch {
	case isUnprepared(err):
		return nil // the database has no schema yet, or an old one: migrate first
	case err != nil:
		return fmt.Errorf("follow the cluster: %w", err)
	}
	if s.lineage.known != "" {
		s.log.Warn("the database is another cluster or timeline; tokens and feed epoch were raised", "before", s.lineage.known, "now", found)
	}
	s.lineage.known = found
	return nil
}

// clusterOf reads the cluster of a connection; "" if it is not readable, or on a standby.
func clusterOf(ctx context.Context, conn *pgx.Conn) (string, error) {
	results, err := conn.PgConn().Exec(ctx, db.FeedCluster).ReadAll()
	if _, refused := errors.AsType[*pgconn.PgError](err); refused {
		return "", nil
	}
	if err != nil || len(results) != 1 || len(results[0].Rows) != 1 {
		return "", err
	}
	return string(results[0].Rows[0][0]), nil
}

// otherCluster returns the reason for a new epoch, if the last one began on another cluster.
func otherCluster(found string) func(last event.Epoch) (string, bool) {
	return func(last event.Epoch) (string, bool) {
		return "the cluster was " + last.Cluster, found != "" && last.Cluster != "" && last.Cluster != found
	}
}

// isUnprepared reports whether a table, function or role of this version does not exist.
func isUnprepared(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "42P01" || pg.Code == "3F000" || pg.Code == "42883" || pg.Code == invalidValue || pg.Code == insufficientPrivilege)
}

// clusterChanged is raised by servo.require_cluster.
const clusterChanged = "SV001"

// begin is the statement that begins a transaction of the engine. Behind a pooler it fails if the
// connection leads to another cluster: follow has to run first.
func (s *Store) begin() string {
	if !s.pooler {
		return beginEngine
	}
	known := s.lineage.current()
	if known == "" {
		return beginEngine
	}
	return beginEngine + ";\nSELECT servo.require_cluster('" + strings.ReplaceAll(known, "'", "''") + "')"
}

// refollow follows the cluster that a transaction has found.
func (s *Store) refollow(ctx context.Context, err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != clusterChanged {
		return err
	}
	conn, acquired := s.urgent.Acquire(ctx)
	if acquired != nil {
		return errors.Join(err, acquired)
	}
	defer conn.Release()
	return errors.Join(err, s.follow(ctx, conn.Conn()))
}
