package devpg

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
)

const (
	loopback = "127.0.0.1"
	maxPort  = 65535
	// Free ports come from below the range that the kernel gives to outgoing connections
	// (32768 up on Linux, 49152 up on macOS). In that range a client that keeps dialling a
	// stopped server can be given the server's own port as its source, connect to itself
	// and keep the port from the restart.
	firstFreePort, lastFreePort = 15000, 31999
	// portTries bounds the search for a free port.
	portTries = 50
)

// settingName is what PostgreSQL takes as the name of a setting, extensions' included.
const settingName = `^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?$`

// checkSettings refuses names that are none and settings that this package decides itself.
func checkSettings(settings map[string]string) []fault.Violation {
	own := []string{"port", "listen_addresses", "unix_socket_directories", "data_directory", "hba_file", "config_file"}
	valid := regexp.MustCompile(settingName)
	var violations []fault.Violation
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		violation := fault.Violation{Code: fault.InvalidArgument, Field: "settings[" + name + "]"}
		switch {
		case !valid.MatchString(name):
			violation.Message, violation.Remedy = "is no name of a PostgreSQL setting", "use lower-case letters, digits and underscores"
		case slices.Contains(own, name):
			violation.Message, violation.Remedy = "is decided by where the cluster lives", "use the directory and port options"
		case strings.ContainsRune(settings[name], 0):
			violation.Message, violation.Remedy = "holds a zero byte", "remove it"
		default:
			continue
		}
		violations = append(violations, violation)
	}
	return violations
}

// configuration is the whole postgresql.conf: PostgreSQL's own settings except for the few
// below, then what was asked for. What runs here meets the planner, the write-ahead log and the
// just-in-time compiler as they are in production, and figures measured here mean something.
func (s *Server) configuration(port int) string {
	settings := map[string]string{
		"shared_buffers":  "256MB",       // memory
		"max_connections": "300",         // several servers and a test's own connections side by side
		"timezone":        "UTC",         // initdb would take the machine's: what people see must not depend on it
		"log_timezone":    "UTC",         // likewise
		"lc_messages":     "C",           // this package reads the log
		"log_line_prefix": "%m [%p] %d ", // the log names databases
	}
	// It only counts: bench shows which statements cost most.
	if s.install.hasExtension("pg_stat_statements") {
		settings["shared_preload_libraries"] = "pg_stat_statements"
	}
	maps.Copy(settings, s.settings)
	settings["listen_addresses"] = loopback
	settings["port"] = strconv.Itoa(port)
	settings["unix_socket_directories"] = s.files.socket

	var text strings.Builder
	text.WriteString("# Replaced at each start. Settings of ALTER SYSTEM override these.\n")
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s = %s\n", name, quote(settings[name]))
	}
	return text.String()
}

// quote writes a value the way postgresql.conf reads it back.
func quote(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`, "\n", `\n`, "\r", `\r`).Replace(value) + "'"
}

// writeConfiguration puts postgresql.conf in place.
func (s *Server) writeConfiguration(port int) error {
	// It is beside the data, not in it: a privileged caller must not write where the unprivileged
	// owner could have put a link.
	if err := os.WriteFile(s.files.config, []byte(s.configuration(port)), 0o644); err != nil { //nolint:gosec // the owner must read it
		return fmt.Errorf("write postgresql.conf: %w", err)
	}
	return nil
}

// freePort returns an unused port. If another program takes it before PostgreSQL does, the start is
// repeated with another port.
func freePort() (int, error) {
	for range portTries {
		port := firstFreePort + rand.IntN(lastFreePort-firstFreePort+1)                    //nolint:gosec // a port is no secret
		listener, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port))) //nolint:noctx // binds at once
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return 0, fmt.Errorf("look for a free port: %w", err)
		}
		return port, nil
	}
	return 0, fault.New(fault.Unavailable, fmt.Sprintf("no free port on %s in %d tries", loopback, portTries),
		fault.Field("port"), fault.Remedy("name a free port"))
}
