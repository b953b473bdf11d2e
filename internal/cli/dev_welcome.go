package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"go.arco.dev/servo/internal/devkit/demo"
)

// welcome prints the addresses, and commands to try next.
func (d *dev) welcome(stdout io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "Servo runs on this machine. Ctrl-C ends it.\n\nOpen http://%s\n\n", d.server.HTTPAddr())
	table := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	fmt.Fprintf(table, "  web UI, REST, metrics\thttp://%s\n", d.server.HTTPAddr())
	fmt.Fprintf(table, "  gRPC\t%s\n", d.server.GRPCAddr())
	fmt.Fprintf(table, "  database\t%s\n", d.postgres.URL(""))
	fmt.Fprintf(table, "  kept in\t%s\n", d.home.dir)
	_ = table.Flush() // into memory
	text.WriteString("\nIn another terminal:\n\n")
	program, server := programName(os.Args[0]), ""
	if d.server.GRPCAddr() != defaultServer {
		server = " --server " + d.server.GRPCAddr()
	}
	next := []string{"tenants create acme", "deploy -f servo.yaml --tenant acme", "worker"}
	if !d.options.noDemo {
		next = []string{
			"runs list --tenant " + demo.Tenant,
			"runs watch " + latest + " --tenant " + demo.Tenant,
			"runs trigger " + demo.Pipeline + " --param network=bad --wait --tenant " + demo.Tenant,
			"configs list --tenant globex",
		}
	}
	for _, command := range next {
		fmt.Fprintf(&text, "  %s %s%s\n", program, command, server)
	}
	text.WriteString("\n")
	if !d.options.noDemo {
		text.WriteString("One of the examples fails always. Its alerts follow.\n\n")
	}
	_, err := io.WriteString(stdout, text.String())
	return wrote(err)
}

// programName is the name by which this program was called, so that printed commands work.
func programName(called string) string {
	if called == "" {
		return "servo"
	}
	if !strings.ContainsRune(called, filepath.Separator) {
		return called
	}
	if strings.ContainsAny(called, " \t\"'$\\") {
		return "'" + strings.ReplaceAll(called, "'", `'\''`) + "'"
	}
	return called
}
