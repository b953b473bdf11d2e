package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/store"
)

// knockEvery is the interval between attempts to connect at the start.
const knockEvery = 500 * time.Millisecond

// NoListening is the ListenURL of a server that does not listen to the others.
const NoListening = "none"

// listenURL is where to listen to other servers; "" is nowhere.
func (c Config) listenURL() string {
	switch {
	case c.ListenURL == NoListening || c.ListenURL == "" && c.Pooler:
		return ""
	case c.ListenURL == "":
		return c.DatabaseURL
	default:
		return c.ListenURL
	}
}

// openStore connects to the database. It waits for it as long as the options permit.
func openStore(ctx context.Context, config Config) (*store.Store, error) {
	options := store.Options{URL: config.DatabaseURL, MaxConns: config.MaxConns, Logger: config.Logger, Pooler: config.Pooler}
	if options.MaxConns == 0 && !strings.Contains(options.URL, "pool_max_conns") {
		options.MaxConns = defaultMaxConns
	}
	until := time.Now().Add(config.WaitForDatabase)
	for logged := false; ; logged = true {
		s, err := store.Open(ctx, options)
		if f, bad := fault.As(err); bad && f.Code == fault.InvalidArgument {
			f.Violation.Field = "--database"
			return nil, f
		}
		switch {
		case err == nil:
			return s, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case isFault(err):
			return nil, err
		case store.Diagnose(err) != store.Away:
			return nil, fault.New(fault.InvalidArgument, oneLine(err), fault.Field("--database"),
				fault.Remedy("check the URL"), fault.Cause(err))
		case time.Now().After(until):
			return nil, fault.New(fault.Unavailable, oneLine(err), fault.Field("--database"),
				fault.Remedy("see that PostgreSQL runs there, or wait for it with --wait-for-database"), fault.Cause(err))
		case !logged:
			config.Logger.Warn("waiting for the database", slog.Duration("for", config.WaitForDatabase), slog.String("error", oneLine(err)))
		}
		pause := time.NewTimer(knockEvery)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		}
	}
}

// DatabaseVersion returns the version that PostgreSQL at a URL reports.
func DatabaseVersion(ctx context.Context, url string) (string, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	version := conn.PgConn().ParameterStatus("server_version")
	return version, conn.Close(ctx)
}

func isFault(err error) bool {
	_, ok := fault.As(err)
	return ok
}

// oneLine is an error's text without the lines that the driver lists its tries on.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// prepareSchema makes sure that the database has this version's schema, and what a server
// needs in it.
func prepareSchema(ctx context.Context, s *store.Store, config Config) error {
	missing, err := missingMigration(ctx, s)
	if err != nil {
		return err
	}
	if missing != "" && !config.Migrate {
		return fault.New(fault.Conflict, missing+" is not applied", fault.Field("--database"),
			fault.Remedy("run servo migrate up, or start the server with --migrate"))
	}
	if missing != "" {
		applied, err := s.Migrate(ctx)
		if err != nil {
			return err
		}
		config.Logger.Info("migrated the database", slog.Int("applied", applied))
	}
	return s.Prepare(ctx)
}

// missingMigration names the first migration of this version that is not applied; "" if all
// are. What a newer version has applied on top is none of our business: the versions before
// and after one another run side by side.
func missingMigration(ctx context.Context, s *store.Store) (string, error) {
	status, err := s.MigrationStatus(ctx)
	if err != nil {
		return "", err
	}
	for _, m := range status {
		switch {
		case m.Changed:
			return "", fault.New(fault.Conflict, fmt.Sprintf("migration %d (%s) is not this version's", m.Version, m.Name), fault.Field("--database"),
				fault.Remedy("use the binary that has migrated this database"))
		case !m.Applied:
			return fmt.Sprintf("migration %d (%s)", m.Version, m.Name), nil
		}
	}
	return "", nil
}
