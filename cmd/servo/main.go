// Command servo is all of Servo in one binary: it hands its arguments and signals to
// package cli and exits with the code that comes back.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"go.arco.dev/servo/internal/cli"
)

func main() {
	// The first signal asks for an orderly end; after it, the next one kills as usual.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
