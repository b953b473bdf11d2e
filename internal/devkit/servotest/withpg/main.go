// Command withpg runs a command with a PostgreSQL of its own:
//
//	go run ./internal/devkit/servotest/withpg [--set name=value]… -- command [argument]…
//
// The command finds the server in SERVO_DATABASE_URL. When it ends, the server and its data
// are gone, and withpg ends with the command's exit code. If SERVO_DATABASE_URL is already
// set, that server is used and none is started. The data is not durable (in memory if there is
// room, and fsync is off unless --set enables it): this is for tests, never for figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"go.arco.dev/servo/internal/devkit/devpg"
)

const (
	urlVariable = "SERVO_DATABASE_URL"
	exitFailure = 1   // PostgreSQL did not start or stop
	exitUsage   = 2   // the arguments are wrong
	exitMissing = 127 // the command cannot be run, as in shells
	exitSignal  = 128 // plus the signal that ended the command, as in shells
)

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)) }

// run is the whole program, with its surroundings as arguments.
func run(args, environment []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// Signals are taken from the beginning: one that comes while PostgreSQL starts must
	// not leave it behind.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	settings, command, err := parse(args, stderr)
	if err != nil {
		return exitUsage
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // running what the caller names is the purpose; it ends by signals
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.Env = environment
	if lookup(environment, urlVariable) != "" {
		return execute(cmd, signals, stderr)
	}

	server, err := start(settings, signals)
	if err != nil {
		fmt.Fprintln(stderr, "withpg:", err)
		return exitFailure
	}
	cmd.Env = append(cmd.Env, urlVariable+"="+server.URL(""))
	code := execute(cmd, signals, stderr)
	if err := server.Stop(context.Background()); err != nil {
		fmt.Fprintln(stderr, "withpg:", err)
		return max(code, exitFailure)
	}
	return code
}

// parse reads the flags and the command after them.
func parse(args []string, stderr io.Writer) (settings map[string]string, command []string, err error) {
	settings = map[string]string{"fsync": "off", "max_connections": "600"}
	flags := flag.NewFlagSet("withpg", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: withpg [--set name=value]… -- command [argument]…")
		flags.PrintDefaults()
	}
	flags.Func("set", "a PostgreSQL setting, as `name=value`; may be repeated", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("want name=value")
		}
		maps.Copy(settings, map[string]string{name: value})
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return nil, nil, err
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return nil, nil, errors.New("no command")
	}
	return settings, flags.Args(), nil
}

// start starts PostgreSQL, or gives up at the first signal.
func start(settings map[string]string, signals <-chan os.Signal) (*devpg.Server, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	started, listened := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(listened)
		select {
		case s := <-signals:
			cancel(fmt.Errorf("stopped by a signal: %s", s))
		case <-started:
		}
	}()
	server, err := devpg.Start(ctx, devpg.Options{Memory: true, Settings: settings})
	close(started)
	<-listened
	if err == nil && ctx.Err() != nil { // the signal came as the start succeeded
		return nil, errors.Join(context.Cause(ctx), server.Stop(ctx))
	}
	return server, err
}

// execute runs the command and passes signals on until it ends. After Ctrl-C in a terminal
// the command receives it twice, from the terminal and from here.
func execute(cmd *exec.Cmd, signals <-chan os.Signal, stderr io.Writer) int {
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(stderr, "withpg:", err)
		return exitMissing
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended just now
		case err := <-ended:
			return exitCode(err, stderr)
		}
	}
}

// exitCode is the command's own, or 128 and the signal's number if a signal ended it.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		fmt.Fprintln(stderr, "withpg:", err)
		return exitFailure
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return exit.ExitCode()
}

// lookup finds a variable in an environment.
func lookup(environment []string, name string) string {
	for _, entry := range environment {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
