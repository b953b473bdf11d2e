package cli_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/cli"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// watched is an output that signals when a text has been written.
type watched struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wants string
	seen  chan struct{}
}

func watchFor(text string) *watched { return &watched{wants: text, seen: make(chan struct{})} }

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := strings.Contains(w.text.String(), w.wants)
	n, err := w.text.Write(p)
	if !before && strings.Contains(w.text.String(), w.wants) {
		close(w.seen)
	}
	return n, err
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// trigger makes the tenant acme with a run of some assets, each after the one before.
func trigger(t *testing.T, server string, assets ...string) (c *client.Client, run string) {
	t.Helper()
	c, err := client.New(client.Options{Servers: []string{server}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Tenants().CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "acme"})
	require.NoError(t, err)
	var list []any
	for i, key := range assets {
		entry := map[string]any{"key": key, "go": map[string]any{}}
		if i > 0 {
			entry["upstream"] = []any{assets[i-1]}
		}
		list = append(list, entry)
	}
	manifest, err := structpb.NewStruct(map[string]any{"version": 1, "assets": list, "pipelines": []any{map[string]any{"name": "daily", "overlap": "allow"}}})
	require.NoError(t, err)
	_, err = c.Deployments().Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: manifest})
	require.NoError(t, err)
	answer, err := c.Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "daily"})
	require.NoError(t, err)
	return c, answer.GetRun().GetId()
}

// begin works on what is queued until the test ends.
func begin(t *testing.T, c *client.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { work(ctx, c) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// watching runs "servo runs watch" beside the test, until it ends or the context is over.
func watching(ctx context.Context, server, run string, stdout, stderr io.Writer) (code func() int) {
	done := make(chan int, 1)
	go func() {
		done <- cli.Main(ctx, []string{"runs", "watch", run, "--server", server, "-t", "acme"}, strings.NewReader(""), stdout, stderr)
	}()
	return func() int { return <-done }
}

func TestWatchOverARestart(t *testing.T) {
	t.Parallel()
	url := servotest.DB(t).URL
	server := servertest.StartAt(t, url, "")
	c, run := trigger(t, server.GRPC, "a/one", "a/two")
	stdout, stderr := watchFor("a/one QUEUED"), watchFor("trying again")
	code := watching(t.Context(), server.GRPC, run, stdout, stderr)
	<-stdout.seen
	require.NoError(t, server.Stop(context.Background()))
	<-stderr.seen
	servertest.StartAt(t, url, server.GRPC)
	begin(t, c)
	require.Zero(t, code(), stderr)
	require.Equal(t, 1, strings.Count(stdout.String(), "a/one QUEUED\n"))
	require.Equal(t, 1, strings.Count(stdout.String(), "a/two SUCCEEDED"))
	require.Contains(t, stderr.String(), "lost the server while watching a run; trying again\n")
}

func TestWatchInterrupted(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	c, run := trigger(t, server.GRPC, "a/one")
	ctx, interrupt := context.WithCancel(t.Context())
	stdout, stderr := watchFor("a/one QUEUED"), watchFor("stopped")
	code := watching(ctx, server.GRPC, run, stdout, stderr)
	<-stdout.seen
	interrupt()
	require.Equal(t, 1, code())
	require.Equal(t, "stopped watching; the run continues: servo runs watch "+run+" -t acme --server "+server.GRPC+"\n", stderr.String())
	still, err := c.Runs().GetRun(t.Context(), &servov1.GetRunRequest{Tenant: "acme", Run: run})
	require.NoError(t, err)
	require.Equal(t, servov1.Run_RUNNING, still.GetState())
}

func TestRunByItsBeginning(t *testing.T) {
	t.Parallel()
	db := servotest.DB(t)
	db.SetClock(t, time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)) // ids begin with it
	server := servertest.StartAt(t, db.URL, "")
	get := func(name string) (code int, stdout, stderr string) {
		var out, errors bytes.Buffer
		code = cli.Main(t.Context(), []string{"runs", "get", name, "--server", server.GRPC, "-t", "acme"}, strings.NewReader(""), &out, &errors)
		return code, out.String(), errors.String()
	}
	c, run := trigger(t, server.GRPC, "a/one")
	for _, name := range []string{run, run[:8], strings.ToUpper(run[:20])} {
		code, stdout, stderr := get(name)
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, run)
	}
	_, err := c.Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "daily"})
	require.NoError(t, err)
	code, _, stderr := get(run[:8])
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "RUN: 2 runs begin or end with "+run[:8]+" (use the end of one: ")
	require.Contains(t, stderr, run[len(run)-6:])
}
