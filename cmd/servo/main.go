// Command servo is all of Servo in one binary: it hands its arguments and signals to
// package cli and exits with the code that comes back.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"go.arco.dev/servo/internal/cli"
)

// gcPercent trades memory, of which a server uses little, for the third of its processor
// time that collecting at the default pace takes. GOGC overrules it.
const gcPercent = 400

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(cli.Main(cli.WithSignals(context.Background()), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
