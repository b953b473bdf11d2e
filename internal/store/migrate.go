package store

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"go.arco.dev/servo/internal/base/fault"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// MigrationStatus is one migration and its status.
type MigrationStatus struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	Applied   bool       `json:"applied"`
	AppliedAt *time.Time `json:"applied_at,omitempty"`
	Changed   bool       `json:"changed"` // the file differs from the applied one
	Unknown   bool       `json:"unknown"` // applied by a newer version of Servo
}

// Migrate migrates the database to this version's schema: forward only, under a lock, and only if
// this version knows all applied migrations. It returns how many migrations it applied.
func (s *Store) Migrate(ctx context.Context) (int, error) {
	applied := 0
	// The lock ends with this transaction, so it is safe behind a pooler; the
	// migrations themselves run on another connection.
	err := pgx.BeginFunc(ctx, s.pool, func(lock pgx.Tx) error {
		if _, err := lock.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('servo.migrate', 0))`); err != nil {
			return err
		}
		status, err := s.MigrationStatus(ctx)
		if err != nil {
			return err
		}
		if err := refuseForeign(status); err != nil {
			return err
		}
		if err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return ensureSchema(ctx, tx) }); err != nil {
			return err
		}
		provider, err := s.goose()
		if err != nil {
			return err
		}
		defer func() { _ = provider.Close() }() // closes the wrapper only: the pool stays open
		results, err := provider.Up(ctx)
		if err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		applied = len(results)
		return s.recordChecksums(ctx)
	})
	return applied, err
}

func refuseForeign(status []MigrationStatus) error {
	for _, m := range status {
		switch {
		case m.Unknown:
			return fault.New(fault.Conflict, fmt.Sprintf("migration %d was applied by a newer version of Servo", m.Version),
				fault.Remedy("use the newer version's binary"))
		case m.Changed:
			return fault.New(fault.Conflict, fmt.Sprintf("migration %d (%s) differs from the applied file", m.Version, m.Name),
				fault.Remedy("migrations never change once released: restore the file and add a new one"))
		}
	}
	return nil
}

func (s *Store) goose() (*goose.Provider, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, stdlib.OpenDBFromPool(s.pool), ownedMigrations{files},
		goose.WithTableName("servo.migrations"), goose.WithLogger(goose.NopLogger()))
}

// MigrationStatus lists the migrations that this version or the database knows.
func (s *Store) MigrationStatus(ctx context.Context) ([]MigrationStatus, error) {
	known, err := knownMigrations()
	if err != nil {
		return nil, err
	}
	recorded, err := s.recordedMigrations(ctx)
	if err != nil {
		return nil, err
	}
	var status []MigrationStatus
	for _, m := range known {
		line := MigrationStatus{Version: m.version, Name: m.name}
		if r, ok := recorded[m.version]; ok {
			line.Applied, line.AppliedAt, line.Changed = true, &r.appliedAt, r.sha256 != m.sha256
			delete(recorded, m.version)
		}
		status = append(status, line)
	}
	for version, r := range recorded {
		status = append(status, MigrationStatus{Version: version, Name: r.name, Applied: true, AppliedAt: &r.appliedAt, Unknown: true})
	}
	return status, nil
}

type migration struct {
	version   int64
	name      string
	sha256    string
	appliedAt time.Time
}

func knownMigrations() ([]migration, error) {
	entries, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		return nil, err
	}
	return convert(entries, func(e fs.DirEntry) (migration, error) {
		data, err := migrationFiles.ReadFile("migrations/" + e.Name())
		if err != nil {
			return migration{}, err
		}
		version, err := goose.NumericComponent(e.Name())
		if err != nil {
			return migration{}, err
		}
		sum := sha256.Sum256(data)
		return migration{version: version, name: strings.TrimSuffix(e.Name(), ".sql"), sha256: hex.EncodeToString(sum[:])}, nil
	})
}

// recordedMigrations returns the applied migrations by version; none without a schema.
func (s *Store) recordedMigrations(ctx context.Context) (map[int64]migration, error) {
	var exists bool
	// From the catalogue: only roles that may use the schema can look up a name in it.
	err := s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'servo' AND c.relname = 'migration_checksums')`).Scan(&exists)
	if err != nil || !exists {
		return nil, err
	}
	recorded, err := s.readChecksums(ctx, "SET LOCAL ROLE servo_engine")
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == insufficientPrivilege {
		return s.readChecksums(ctx, "SET LOCAL ROLE NONE") // a schema that the login role still owns
	}
	return recorded, err
}

func (s *Store) readChecksums(ctx context.Context, enter string) (map[int64]migration, error) {
	recorded := map[int64]migration{}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, enter); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT version, name, sha256, applied_at FROM servo.migration_checksums`)
		if err != nil {
			return err
		}
		var m migration
		_, err = pgx.ForEachRow(rows, []any{&m.version, &m.name, &m.sha256, &m.appliedAt}, func() error {
			recorded[m.version] = m
			return nil
		})
		return err
	})
	return recorded, err
}

func (s *Store) recordChecksums(ctx context.Context) error {
	known, err := knownMigrations()
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, asOwner); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			INSERT INTO servo.migration_checksums (version, name, sha256)
			SELECT unnest($1::bigint[]), unnest($2::text[]), unnest($3::text[])
			ON CONFLICT DO NOTHING`,
			column(known, func(m migration) int64 { return m.version }),
			column(known, func(m migration) string { return m.name }),
			column(known, func(m migration) string { return m.sha256 }))
		return err
	})
}

// monthsAhead is for how many months partitions are created ahead.
const monthsAhead = 3

// Prepare creates partitions ahead and raises the fencing tokens above all allocated ones, also
// those before a restore. A server calls it before it works.
func (s *Store) Prepare(ctx context.Context) error {
	return s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		if _, err := tx.q.RaiseFencingToken(ctx); err != nil {
			return err
		}
		_, err := tx.q.MakePartitions(ctx, monthsAhead)
		return err
	})
}

// MakePartitions creates the partitions of the coming months and returns how many were new.
func (s *Store) MakePartitions(ctx context.Context) (int, error) {
	made := 0
	err := s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		n, err := tx.q.MakePartitions(ctx, monthsAhead)
		made = int(n)
		return err
	})
	return made, err
}

// SchemaDigest is a digest of the migrations of this version.
func SchemaDigest() (string, error) {
	known, err := knownMigrations()
	if err != nil {
		return "", err
	}
	all := sha256.New()
	for _, m := range known {
		fmt.Fprintln(all, m.version, m.sha256)
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}
