package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/store"
)

// checkDatabaseTLS checks that the database URL permits no connection in plain text to another machine.
func checkDatabaseTLS(url string) finding {
	f := finding{Check: "database TLS", Verdict: passed}
	hosts, err := daemon.ReadDatabaseTLS(url)
	switch {
	case err != nil:
		return under(f.Check, failing(err))[0]
	case len(hosts.Plain) > 0:
		f.Verdict, f.Message = failed, "the database URL permits plain text to "+strings.Join(hosts.Plain, ", ")
		f.Remedy = "add sslmode=verify-full and sslrootcert=FILE to the URL, for the servers too"
	case len(hosts.Unverified) > 0:
		f.Verdict, f.Message = doubted, "the certificate of "+strings.Join(hosts.Unverified, ", ")+" is not verified"
		f.Remedy = "add sslmode=verify-full and sslrootcert=FILE to the URL, for the servers too"
	case len(hosts.Verified) > 0:
		f.Message = "connections to " + strings.Join(hosts.Verified, ", ") + " use TLS and verify the certificate"
	default:
		f.Message = "connections stay on this machine"
	}
	return f
}

// checkDatabaseSettings checks the settings that transactions of servers run with.
func checkDatabaseSettings(ctx context.Context, s *store.Store) finding {
	settings, err := s.Settings(ctx)
	if err != nil {
		return under("database settings", failing(err))[0]
	}
	return settled(settings)
}

// settled judges the settings of each kind of transaction. Servo locks rows before it reads them,
// which needs READ COMMITTED; it reports a commit as durable, which needs synchronous_commit.
func settled(settings map[string]store.Settings) finding {
	f := finding{Check: "database settings", Verdict: failed}
	for _, kind := range slices.Sorted(maps.Keys(settings)) {
		s := settings[kind]
		wrong := func(setting, value, effect, remedy string) finding {
			f.Message, f.Remedy = fmt.Sprintf("%s is %s in %s transactions: %s", setting, value, kind, effect), remedy
			return f
		}
		reset := func(setting string) string {
			return "reset " + setting + " of the login role, the database and the server: ALTER ROLE … RESET " + setting
		}
		switch {
		case s.JIT != "off":
			return wrong("jit", s.JIT, "statements are compiled for seconds", "ALTER SYSTEM SET jit = off, and see which search_path or function overrides set_config")
		case s.Isolation != "read committed":
			return wrong("transaction_isolation", s.Isolation, "concurrent calls fail", reset("default_transaction_isolation"))
		case s.ReadOnly != "off":
			return wrong("transaction_read_only", s.ReadOnly, "every write fails", reset("default_transaction_read_only")+"; or name the primary")
		case s.SynchronousCommit == "off":
			return wrong("synchronous_commit", s.SynchronousCommit, "a crash loses acknowledged calls", reset("synchronous_commit"))
		}
	}
	f.Verdict, f.Message = passed, "jit is off, isolation is read committed and commits are synchronous in transactions of servers"
	return f
}
