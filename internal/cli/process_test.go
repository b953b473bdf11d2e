package cli_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/certs"
	"go.arco.dev/servo/internal/devkit/servotest/issuer"
)

// certain is the longest that something certain may take on a busy machine.
const certain = time.Minute

// TestProcesses runs the scenarios under testdata/process: commands that run until they are
// stopped, as processes. Besides the commands of TestScripts they have:
//
//	database          a migrated database, in $SERVO_DATABASE_URL; "database empty" a bare one
//	free NAME...      addresses without a listener, in $NAME, and their ports, in $NAME_PORT
//	keep NAME         a directory that PostgreSQL's user can reach, in $NAME
//	answers URL [RE]  wait until URL answers 200, with a body that matches
//	until RE CMD...   repeat a command until it succeeds and its output matches
//	within TIME RE CMD...  the same, within a time that is promised
//	signal STOP|CONT N  a signal to the background command number N, from 0
//	silent ADDRESS    wait until the address has no listener
//	alone DIR         wait until no process has DIR in its command line
//	certificates      an authority in $CA, and of it a certificate in $CERT with its key in $KEY
//	renew             another certificate in the place of the first
//	shows NAME ADDR   wait until an address shows the certificate of that name
//	hangup            SIGHUP to the command that was sent to the background last
//	id NAME           the first id that the last command has printed, in $NAME
//	secret NAME       the API key that the last command has printed, in $NAME
//	write FILE TEXT   a file with a text
//	private FILE      only its owner can read a file
//	envsubst FILE     put the values of variables into a file
//	issuer            an OpenID Connect issuer, in $ISSUER
//	token NAME SUB [GROUP...]  a token of it, of a person in groups, in $NAME
func TestProcesses(t *testing.T) {
	t.Parallel()
	var authorities, issuers sync.Map // by their file; by their URL
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "process"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TMPDIR", os.TempDir()) // the script's own is closed to PostgreSQL's user
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits,
			"servo": inProcess,
			"database": func(ts *testscript.TestScript, _ bool, args []string) {
				url := ""
				if len(args) == 1 && args[0] == "empty" {
					url = servotest.Empty(t, "template0")
				} else {
					url = servotest.DB(t).URL
				}
				ts.Setenv("SERVO_DATABASE_URL", url)
			},
			"free": func(ts *testscript.TestScript, _ bool, args []string) {
				for _, name := range args {
					listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // listening does not wait
					ts.Check(err)
					defer listener.Close() // only now, so that no two are the same
					ts.Setenv(name, listener.Addr().String())
					_, port, err := net.SplitHostPort(listener.Addr().String())
					ts.Check(err)
					ts.Setenv(name+"_PORT", port)
				}
			},
			"keep": func(ts *testscript.TestScript, _ bool, args []string) {
				dir, err := os.MkdirTemp("", "servo-cli-test-")
				ts.Check(err)
				ts.Check(os.Chmod(dir, 0o755)) //nolint:gosec // other users must pass
				t.Cleanup(func() { _ = os.RemoveAll(dir) })
				ts.Setenv(args[0], dir)
			},
			"answers": func(ts *testscript.TestScript, _ bool, args []string) {
				wait(ts, "an answer of "+args[0], func() bool { return answers(args[0], args[1:]) })
			},
			"until": func(ts *testscript.TestScript, _ bool, args []string) { until(ts, certain, args) },
			"within": func(ts *testscript.TestScript, _ bool, args []string) {
				limit, err := time.ParseDuration(args[0])
				ts.Check(err)
				until(ts, limit, args[1:])
			},
			"signal": func(ts *testscript.TestScript, _ bool, args []string) {
				signal, known := map[string]syscall.Signal{"STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}[args[0]]
				n, err := strconv.Atoi(args[1])
				ts.Check(err)
				if background := ts.BackgroundCmds(); known && n < len(background) {
					ts.Check(background[n].Process.Signal(signal))
					return
				}
				ts.Fatalf("no such signal or command")
			},
			"certificates": func(ts *testscript.TestScript, _ bool, _ []string) {
				ca := certs.New(t)
				pair := ca.Issue(t, "first", time.Hour)
				ts.Setenv("CA", ca.File)
				ts.Setenv("CERT", pair.Cert)
				ts.Setenv("KEY", pair.Key)
				authorities.Store(ca.File, ca)
			},
			"renew": func(ts *testscript.TestScript, _ bool, _ []string) {
				ca, _ := authorities.Load(ts.Getenv("CA"))
				ca.(*certs.Authority).IssueTo(t, certs.Pair{Cert: ts.Getenv("CERT"), Key: ts.Getenv("KEY")}, "second", time.Hour) //nolint:forcetypeassert // nothing else is kept
			},
			"shows": func(ts *testscript.TestScript, _ bool, args []string) {
				ca, _ := authorities.Load(ts.Getenv("CA"))
				wait(ts, args[1]+" with the certificate "+args[0], func() bool { return ca.(*certs.Authority).Shown(args[1]) == args[0] }) //nolint:forcetypeassert // nothing else is kept
			},
			"hangup": func(ts *testscript.TestScript, _ bool, _ []string) {
				background := ts.BackgroundCmds()
				ts.Check(background[len(background)-1].Process.Signal(syscall.SIGHUP))
			},
			"alone": func(ts *testscript.TestScript, _ bool, args []string) {
				wait(ts, "no process in "+args[0], func() bool { return len(processesOf(args[0])) == 0 })
			},
			"id": func(ts *testscript.TestScript, _ bool, args []string) {
				found := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).FindString(ts.ReadFile("stdout"))
				if found == "" {
					ts.Fatalf("no id was printed")
				}
				ts.Setenv(args[0], found)
			},
			"secret": func(ts *testscript.TestScript, _ bool, args []string) {
				found := regexp.MustCompile(`sk_[0-9a-f]{16}_[A-Za-z0-9_-]{43}`).FindString(ts.ReadFile("stdout"))
				if found == "" {
					ts.Fatalf("no key was printed")
				}
				ts.Setenv(args[0], found)
			},
			"write": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(args[1]+"\n"), 0o600))
			},
			"private": func(ts *testscript.TestScript, _ bool, args []string) {
				info, err := os.Stat(ts.MkAbs(args[0]))
				ts.Check(err)
				if mode := info.Mode().Perm(); mode != 0o600 {
					ts.Fatalf("%s has mode %o", args[0], mode)
				}
			},
			"envsubst": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o600))
			},
			"issuer": func(ts *testscript.TestScript, _ bool, _ []string) {
				made := issuer.New(t)
				issuers.Store(made.URL, made)
				ts.Setenv("ISSUER", made.URL)
			},
			"token": func(ts *testscript.TestScript, _ bool, args []string) {
				of, _ := issuers.Load(ts.Getenv("ISSUER"))
				ts.Setenv(args[0], of.(*issuer.Issuer).Token(t, map[string]any{"sub": args[1], "groups": args[2:]})) //nolint:forcetypeassert // nothing else is kept
			},
			"silent": func(ts *testscript.TestScript, _ bool, args []string) {
				wait(ts, "silence at "+args[0], func() bool { return !listens(args[0]) })
			},
		},
	})
}

// until repeats a command until it succeeds and its output matches.
func until(ts *testscript.TestScript, limit time.Duration, args []string) {
	want := regexp.MustCompile(`(?m)` + args[0])
	repeat(ts, args[1:], want.MatchString, func(yes func() bool) { waitFor(ts, limit, strings.Join(args, " "), yes) })
}

// wait waits for something that is certain to happen.
func wait(ts *testscript.TestScript, what string, yes func() bool) { waitFor(ts, certain, what, yes) }

func waitFor(ts *testscript.TestScript, limit time.Duration, what string, yes func() bool) {
	deadline := time.Now().Add(limit)
	for !yes() {
		if time.Now().After(deadline) {
			ts.Fatalf("it never came to %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func answers(url string, want []string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), certain)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return err == nil && response.StatusCode == http.StatusOK &&
		(len(want) == 0 || regexp.MustCompile(want[0]).Match(body))
}

// processesOf are the processes whose command line names a directory.
func processesOf(dir string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well-formed
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), dir) {
			found = append(found, string(line))
		}
	}
	return found
}

func listens(address string) bool {
	conn, err := net.Dial("tcp", address) //nolint:noctx // this machine answers at once
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
