package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/store"
)

// databaseVariable names the database when --database does not.
const databaseVariable = "SERVO_DATABASE_URL"

// addDatabase gives a command the flag --database.
func addDatabase(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "database", "", "URL of the database (default $"+databaseVariable+")")
}

// databaseURL is the database of the flag, or of the environment.
func databaseURL(ctx context.Context, flag string) (string, error) {
	if flag == "" {
		flag = environmentOf(ctx).Getenv(databaseVariable)
	}
	if flag == "" {
		return "", fault.New(fault.InvalidArgument, "is missing", fault.Field("--database"),
			fault.Remedy("give the URL, such as postgres://servo@localhost/servo, or set "+databaseVariable))
	}
	return flag, store.CheckURL("--database", flag)
}

// openDatabase connects to the database of the flag, or of the environment.
func openDatabase(ctx context.Context, flag string) (*store.Store, error) {
	address, err := databaseURL(ctx, flag)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, store.Options{URL: address})
	if err == nil {
		return s, nil
	}
	if _, explained := fault.As(err); explained {
		return nil, err
	}
	message := strings.Join(strings.Fields(err.Error()), " ") // the driver lists its tries on lines
	code, remedy := fault.InvalidArgument, "check the URL"
	if store.Diagnose(err) == store.Away {
		code, remedy = fault.Unavailable, "check that PostgreSQL runs there"
	}
	return nil, fault.New(code, message, fault.Field("--database"), fault.Remedy(remedy), fault.Cause(err))
}

// openMigrated is openDatabase for commands that need this version's schema.
func openMigrated(ctx context.Context, address string) (*store.Store, error) {
	s, err := openDatabase(ctx, address)
	if err != nil {
		return nil, err
	}
	status, err := s.MigrationStatus(ctx)
	if err == nil {
		err = refuseOtherSchema(status)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func refuseOtherSchema(status []store.MigrationStatus) error {
	for _, m := range status {
		switch {
		case m.Unknown, m.Changed:
			return fault.New(fault.Conflict, fmt.Sprintf("migration %d (%s) is not this version's", m.Version, m.Name), fault.Field("--database"),
				fault.Remedy("use the binary that has migrated this database"))
		case !m.Applied:
			return fault.New(fault.Conflict, fmt.Sprintf("migration %d (%s) is not applied", m.Version, m.Name), fault.Field("--database"),
				fault.Remedy("run servo migrate up"))
		}
	}
	return nil
}

// newMigrate is the group of commands about migrations.
func newMigrate() *cobra.Command {
	type applied struct {
		Applied int `json:"applied"`
	}
	return group("migrate", "Migrate a database to the schema of this version",
		newOnDatabase(spec{use: "status", short: "Show the applied and missing migrations"}, openDatabase,
			func(ctx context.Context, s *store.Store, _ []string) ([]store.MigrationStatus, error) {
				return s.MigrationStatus(ctx)
			}, migrationTable),
		newOnDatabase(spec{use: "up", short: "Apply missing migrations (safe to run concurrently)"}, openDatabase,
			func(ctx context.Context, s *store.Store, _ []string) (applied, error) {
				n, err := s.Migrate(ctx)
				return applied{n}, err
			},
			func(w io.Writer, a applied) { fmt.Fprintf(w, "applied %s\n", count(a.Applied, "migration")) }))
}

func migrationTable(w io.Writer, status []store.MigrationStatus) {
	fmt.Fprintln(w, "VERSION\tNAME\tAPPLIED\tREMARK")
	for _, m := range status {
		applied, remark := "no", ""
		if m.AppliedAt != nil {
			applied = m.AppliedAt.UTC().Format(time.RFC3339)
		}
		switch {
		case m.Changed:
			remark = "the file is not the one that was applied"
		case m.Unknown:
			remark = "by a newer version"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", m.Version, m.Name, applied, remark)
	}
}
