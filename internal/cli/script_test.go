package cli_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"go.arco.dev/servo/internal/cli"
)

// TestMain lets the scripts run servo as a program of its own. The settings of whoever runs
// the tests are not heard.
func TestMain(m *testing.M) {
	if os.Getenv("SERVO_CONFIG") == "" {
		_ = os.Setenv("SERVO_CONFIG", os.DevNull) // fails for no name that is one
	}
	testscript.Main(m, map[string]func(){
		"servo": func() {
			os.Exit(cli.Main(cli.WithSignals(context.Background()), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// TestScripts runs the scenarios under testdata/script. "exits CODE servo ARGS…" checks
// the exit code, which testscript's own "!" does not tell apart. UPDATE_SCRIPTS=1 writes
// what came out into the scripts, to be read before it is committed.
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
		},
	})
}

// exits runs a command and looks at its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	code := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		code = fmt.Sprint(err)
	}
	if want := args[0]; code != want && code != "exit status "+want {
		ts.Fatalf("exit code %s, not %s", code, want)
	}
}
