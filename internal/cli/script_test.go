package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"go.arco.dev/servo/internal/cli"
	"go.arco.dev/servo/internal/worker/host"
)

const program = "servo"

// TestMain puts this binary on the PATH as servo: scripts run it as "exec servo" where they need a
// process. The settings of the person who runs the tests have no effect.
func TestMain(m *testing.M) {
	if os.Getenv("SERVO_CONFIG") == "" {
		_ = os.Setenv("SERVO_CONFIG", os.DevNull) // fails only for an invalid name
	}
	if len(os.Args) > 2 && os.Args[1] == host.SupervisorCommand {
		os.Exit(host.Supervise(os.Args[3:]))
	}
	if filepath.Base(os.Args[0]) == program {
		os.Args[0] = program
		os.Exit(cli.Main(cli.WithSignals(context.Background()), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	dir, err := os.MkdirTemp("", "servo-cli-test-")
	if err == nil {
		err = copyProgram(filepath.Join(dir, program))
	}
	if err != nil {
		panic(err) // there is no test to fail yet
	}
	_ = os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH")) // fails only for an invalid name
	code := m.Run()
	_ = os.RemoveAll(dir) // a temporary directory
	os.Exit(code)
}

// copyProgram makes this binary available under another name. It is no symbolic link, because
// os.Executable would follow it.
func copyProgram(to string) error {
	from, err := os.Executable()
	if err != nil {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755) //nolint:gosec // it is executed
}

// TestScripts runs the scenarios under testdata/script. UPDATE_SCRIPTS=1 writes the output of the
// commands into the scripts; read the difference before you commit it.
//
//	servo ARGS... [<FILE]             run a command line in this process, with FILE as standard input
//	exec servo ARGS...                run it as a process: for signals, background commands and terminals
//	exits CODE servo ARGS... [<FILE]  check the exit code
//	exits CODE exec servo ARGS...     check the exit code of a process
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			// The script's own directory is closed to the user that PostgreSQL runs as.
			env.Setenv("TMPDIR", os.TempDir())
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits,
			"servo": inProcess,
		},
	})
}

// inProcess runs a command line in this process, which must succeed, or fail after "!".
func inProcess(ts *testscript.TestScript, neg bool, args []string) {
	if code := execute(ts, args, ts.Stdout(), ts.Stderr()); (code == 0) == neg {
		ts.Fatalf("exit code %d", code)
	}
}

// exits runs a command and checks its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE [exec] servo ARGS...")
	}
	var got string
	switch args[1] {
	case program:
		got = strconv.Itoa(execute(ts, args[2:], ts.Stdout(), ts.Stderr()))
	case "exec":
		got = "0"
		if err := ts.Exec(args[2], args[3:]...); err != nil {
			got = strings.TrimPrefix(fmt.Sprint(err), "exit status ")
		}
	default:
		ts.Fatalf("unknown program %s", args[1])
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, not %s", got, args[0])
	}
}

// execute runs a command line in this process, with the variables and the directory of the
// script, and returns its exit code.
func execute(ts *testscript.TestScript, args []string, stdout, stderr io.Writer) int {
	var stdin io.Reader = strings.NewReader("")
	if n := len(args) - 1; n >= 0 && strings.HasPrefix(args[n], "<") {
		stdin, args = strings.NewReader(ts.ReadFile(args[n][1:])), args[:n]
	}
	ctx := cli.WithEnvironment(context.Background(), cli.Environment{Getenv: ts.Getenv, Dir: ts.MkAbs(".")})
	return cli.Main(ctx, args, stdin, stdout, stderr)
}

// repeat runs a command line until it succeeds and its output satisfies a condition, and leaves
// the output of the last execution to the script.
func repeat(ts *testscript.TestScript, args []string, done func(stdout string) bool, wait func(func() bool)) {
	if args[0] != program {
		ts.Fatalf("unknown program %s", args[0])
	}
	var stdout, stderr bytes.Buffer
	defer func() {
		_, _ = stdout.WriteTo(ts.Stdout()) // into memory
		_, _ = stderr.WriteTo(ts.Stderr())
	}()
	wait(func() bool {
		stdout.Reset()
		stderr.Reset()
		return execute(ts, args[1:], &stdout, &stderr) == 0 && done(stdout.String())
	})
}
