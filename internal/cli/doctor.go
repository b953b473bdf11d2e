package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
)

// verdict is the result of a check.
type verdict string

const (
	passed  verdict = "ok"
	doubted verdict = "warning" // works, but an operator should know
	failed  verdict = "failed"
	skipped verdict = "skipped" // not requested
)

// finding is one line of servo doctor.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	Message string  `json:"message"`
	Remedy  string  `json:"remedy,omitempty"`
}

// diagnosis is all of them.
type diagnosis struct {
	Healthy bool      `json:"healthy"`
	Checks  []finding `json:"checks"`
}

// newDoctor checks an installation.
func newDoctor() *cobra.Command {
	var (
		d    = doctor{longOpen: longOpen}
		form output
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check an installation and suggest remedies",
		Long: `Check the configuration, a server (--server, --http), a database (--database), and the
requirements of servo dev on this machine. Missing parts that no flag names are skipped.

With --production it checks the requirements of production instead of those of servo dev: TLS,
keys, the issuers of --oidc, the schema and its row-level security, the role, TLS and settings of
the database, long transactions, clocks, fsync, backups, alerts, versions. It needs --database, and
runs on the machine of the server or of its callers.

Exits with 1 if a check fails.`,
		Example: `  servo doctor
  servo doctor --server servo.example.com:8081 --http servo.example.com:8080
  servo doctor --database postgres://servo@localhost/servo --output json
  servo doctor --production --server https://servo.example.com:8081 --http https://servo.example.com:8080`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.env = environmentOf(cmd.Context())
			d.serverGiven = cmd.Flags().Changed("server") || d.env.Getenv("SERVO_SERVER") != ""
			d.httpGiven = cmd.Flags().Changed("http")
			d.flags = cmd.Flags()
			report := d.examine(cmd.Context())
			if err := render(cmd.OutOrStdout(), form, report, report.table); err != nil {
				return err
			}
			if !report.Healthy {
				return withExit(exitFailed, fault.New(fault.Conflict, "some checks failed", fault.Remedy("see the list above")))
			}
			return nil
		},
	}
	flags := cmd.Flags()
	addServer(cmd)
	flags.StringVar(&d.http, "http", defaultHTTP, "address of the server's REST, metrics and health, with https:// for TLS")
	addDatabase(cmd, &d.database)
	addTLSCA(cmd)
	addOIDC(cmd, &d.oidc)
	flags.BoolVar(&d.forProduction, "production", false, "check the requirements of production")
	flags.StringVar(&d.dir, "data-dir", defaultDevDir(), "database directory of servo dev")
	addOutput(cmd, &form)
	return cmd
}

func (d diagnosis) table(w io.Writer) {
	for _, f := range d.Checks {
		word := string(f.Verdict)
		if f.Verdict == failed {
			word = strings.ToUpper(word) // to be seen at a glance
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", word, f.Check, f.Message)
		if f.Remedy != "" {
			fmt.Fprintf(w, "\t\t→ %s\n", f.Remedy)
		}
	}
}

// examine runs all checks, also after failed ones.
func (d *doctor) examine(ctx context.Context) diagnosis {
	type check struct {
		name string
		look func(ctx context.Context) []finding
	}
	asked := []check{
		{"configuration", d.configuration},
		{"server", d.server},
		{"readiness", d.readiness},
		{"database", d.databases},
	}
	if d.forProduction {
		asked = append(asked, check{"production", d.production})
	} else {
		asked = append(asked, check{"PostgreSQL for servo dev", d.binaries}, check{"addresses for servo dev", d.addresses}, check{"disk for servo dev", d.disk})
	}
	var checks []finding
	for _, check := range asked {
		for _, f := range check.look(ctx) {
			if f.Check == "" {
				f.Check = check.name
			}
			checks = append(checks, f)
		}
	}
	return diagnosisOf(checks)
}

// one is the findings of a check that has one.
func one(v verdict, message, remedy string) []finding {
	return []finding{{Verdict: v, Message: message, Remedy: remedy}}
}

// failing is the finding for an error.
func failing(err error) []finding {
	if f, ok := fault.As(err); ok {
		message := f.Message
		if f.Violation.Field != "" {
			message = f.Violation.Field + ": " + message
		}
		return one(failed, message, f.Violation.Remedy)
	}
	return one(failed, strings.Join(strings.Fields(err.Error()), " "), "")
}
