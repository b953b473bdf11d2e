// Command servo is all of Servo in one binary: it calls package cli with its arguments and signals,
// and exits with its code.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"go.arco.dev/servo/internal/cli"
)

// gcPercent makes garbage collections rarer: a server uses little memory, and the default costs a
// third of its processor time. GOGC overrides it.
const gcPercent = 400

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(cli.Main(cli.WithSignals(context.Background()), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
