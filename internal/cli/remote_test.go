package cli_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// TestRemote runs the scenarios under testdata/remote, each with a server of its own, in
// $SERVO_SERVER. Besides the commands of TestScripts they have:
//
//	worker              begin to work on what is queued, by the names of the assets:
//	                    fail fails, flaky fails at first, stuck waits to be cancelled
//	waitfor TEXT CMD... run a command until it prints a text
//	connected           wait until the last background command has a connection, and so receives signals
//	run NAME            put the id of the newest run, as the last command printed it, in $NAME
//	head NAME ID N      put the first letters of an id in $NAME
//	tail NAME ID N      put the last letters of an id in $NAME
func TestRemote(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "remote"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("SERVO_SERVER", servertest.Start(t).GRPC)
			receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/ok" {
					w.WriteHeader(http.StatusTeapot)
				}
			}))
			env.Setenv("RECEIVER", receiver.URL)
			env.Defer(receiver.Close)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits,
			"servo": inProcess,
			"worker": func(ts *testscript.TestScript, _ bool, _ []string) {
				c, err := client.New(client.Options{Servers: []string{ts.Getenv("SERVO_SERVER")}})
				ts.Check(err)
				ctx, cancel := context.WithCancel(context.Background())
				var done sync.WaitGroup
				done.Go(func() { work(ctx, c) })
				ts.Defer(func() {
					cancel()
					done.Wait()
					_ = c.Close()
				})
			},
			"waitfor": func(ts *testscript.TestScript, _ bool, args []string) {
				repeat(ts, args[1:], func(stdout string) bool { return strings.Contains(stdout, args[0]) },
					func(yes func() bool) { wait(ts, args[0], yes) })
			},
			"connected": func(ts *testscript.TestScript, _ bool, _ []string) {
				background := ts.BackgroundCmds()
				process := background[len(background)-1].Process.Pid
				wait(ts, "connection", func() bool { return hasSocket(process) })
			},
			"head": func(ts *testscript.TestScript, _ bool, args []string) {
				n, err := strconv.Atoi(args[2])
				ts.Check(err)
				ts.Setenv(args[0], args[1][:n])
			},
			"tail": func(ts *testscript.TestScript, _ bool, args []string) {
				n, err := strconv.Atoi(args[2])
				ts.Check(err)
				ts.Setenv(args[0], args[1][len(args[1])-n:])
			},
			"run": func(ts *testscript.TestScript, _ bool, args []string) {
				for word := range strings.FieldsSeq(ts.ReadFile("stdout") + ts.ReadFile("stderr")) {
					if _, err := uuid.Parse(word); err == nil {
						ts.Setenv(args[0], word)
						return
					}
				}
				ts.Fatalf("no id of a run was printed")
			},
		},
	})
}

// hasSocket reports whether a process has an open connection.
func hasSocket(process int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", process)) // the pattern is well-formed
	return slices.ContainsFunc(files, func(file string) bool {
		to, err := os.Readlink(file)
		return err == nil && strings.HasPrefix(to, "socket:")
	})
}

// work claims tasks and ends them as their names define, until the context is over.
func work(ctx context.Context, c *client.Client) {
	for ctx.Err() == nil {
		answer, err := c.Workers().Claim(ctx, &servov1.ClaimRequest{
			WorkerId: "host-1", ClaimId: uuid.NewString(), Pools: []string{"default"}, Max: 10, Wait: durationpb.New(10 * time.Second), Start: true,
		})
		if err != nil {
			return
		}
		for _, lease := range answer.GetLeases() {
			items := []*servov1.ReportItem{{Lease: lease.GetLease(), Action: &servov1.ReportItem_Log{Log: &servov1.LogChunk{
				Seq: 1, Text: "2026-01-31T10:00:00Z INFO working on " + lease.GetAsset() + "\n",
			}}}}
			if end := ending(ctx, c, lease); end != nil {
				items = append(items, end)
			}
			if _, err := c.Workers().Report(ctx, &servov1.ReportRequest{WorkerId: "host-1", Items: items}); err != nil {
				return
			}
		}
	}
}

// ending is what becomes of a lease.
func ending(ctx context.Context, c *client.Client, lease *servov1.Lease) *servov1.ReportItem {
	fail := func(code, message string) *servov1.ReportItem {
		return &servov1.ReportItem{Lease: lease.GetLease(), Action: &servov1.ReportItem_Fail{Fail: &servov1.Fail{
			Error: &servov1.Failure{Code: code, Message: message},
		}}}
	}
	switch _, name, _ := strings.Cut(lease.GetAsset(), "/"); {
	case name == "fail":
		return fail("USER_CODE_EXCEPTION", "division by zero")
	case name == "flaky" && lease.GetAttempt() == 1:
		return fail("NETWORK_ERROR", "connection reset")
	case name == "stuck":
		for ctx.Err() == nil {
			answer, err := c.Workers().Heartbeat(ctx, &servov1.HeartbeatRequest{WorkerId: "host-1", Leases: []*servov1.HeartbeatItem{{
				Lease: lease.GetLease(), Progress: &servov1.Progress{Fraction: 0.5, Stage: "halfway"},
			}}})
			if err != nil || answer.GetLeases()[0].GetShouldCancel() || !answer.GetLeases()[0].GetHeld() {
				return fail("CANCELLED", "asked to stop")
			}
		}
		return nil
	default:
		return &servov1.ReportItem{Lease: lease.GetLease(), Action: &servov1.ReportItem_Complete{Complete: &servov1.Complete{
			Result: structpb.NewStringValue("result of " + lease.GetAsset()),
		}}}
	}
}
