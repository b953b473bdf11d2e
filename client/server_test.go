package client_test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// deploy gives a server the tenant acme with a pipeline of a chain of assets.
func deploy(t *testing.T, c *client.Client, assets ...string) {
	t.Helper()
	_, err := c.Tenants().CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "acme"})
	require.NoError(t, err)
	var list []any
	for i, key := range assets {
		entry := map[string]any{"key": key, "go": map[string]any{}}
		if i > 0 {
			entry["upstream"] = []any{assets[i-1]}
		}
		list = append(list, entry)
	}
	manifest, err := structpb.NewStruct(map[string]any{"version": 1, "assets": list, "pipelines": []any{map[string]any{"name": "chain", "overlap": "allow"}}})
	require.NoError(t, err)
	_, err = c.Deployments().Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: manifest})
	require.NoError(t, err)
}

// step claims one task and completes it.
func step(t *testing.T, c *client.Client) {
	t.Helper()
	claim, err := c.Workers().Claim(t.Context(), &servov1.ClaimRequest{
		WorkerId: "host-1", ClaimId: uuid.NewString(), Pools: []string{"default"}, Max: 1, Wait: durationpb.New(time.Minute), Start: true,
	})
	require.NoError(t, err)
	require.Len(t, claim.GetLeases(), 1)
	report, err := c.Workers().Report(t.Context(), &servov1.ReportRequest{WorkerId: "host-1", Items: []*servov1.ReportItem{{
		Lease: claim.GetLeases()[0].GetLease(), Action: &servov1.ReportItem_Complete{Complete: &servov1.Complete{}},
	}}})
	require.NoError(t, err)
	require.Nil(t, report.GetAnswers()[0].GetError())
}

func TestRestart(t *testing.T) {
	t.Parallel()
	url := servotest.DB(t).URL
	server := servertest.StartAt(t, url, "")
	c := open(t, client.Options{Servers: []string{server.GRPC}})
	deploy(t, c, "a/one", "a/two", "a/three")
	answer, err := c.Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "chain"})
	require.NoError(t, err)

	// The watch is open when the server goes, and does not know of the next one.
	step(t, c)
	seen := map[string]int{}
	var types []string
	var ended *servov1.Run
	restarted := false
	for message, err := range client.WatchRun(t.Context(), c, &servov1.WatchRunRequest{Tenant: "acme", Run: answer.GetRun().GetId()}) {
		require.NoError(t, err)
		ended = message.GetEnd()
		if e := message.GetEvent(); e != nil {
			seen[e.GetId()]++
			require.Equal(t, 1, seen[e.GetId()], "none comes twice")
			types = append(types, e.GetType())
			if e.GetType() == "task.succeeded" && !restarted {
				restarted = true
				require.NoError(t, server.Stop(context.Background()))
				server = servertest.StartAt(t, url, server.GRPC)
				step(t, c) // and a claim and a report over the same connection
				step(t, c)
			}
		}
	}
	require.True(t, restarted)
	require.Equal(t, servov1.Run_SUCCEEDED, ended.GetState())
	recorded, err := collect(client.AllRunEvents(t.Context(), c, &servov1.ListRunEventsRequest{Tenant: "acme", Run: answer.GetRun().GetId()}))
	require.NoError(t, err)
	require.Len(t, types, len(recorded), "nothing is left out")

	// A trigger that finds no server waits for the next one.
	require.NoError(t, server.Stop(context.Background()))
	var waiting sync.WaitGroup
	waiting.Go(func() { server = servertest.StartAt(t, url, server.GRPC) })
	again, err := c.Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "chain"})
	require.NoError(t, err)
	waiting.Wait()
	require.NotEqual(t, answer.GetRun().GetId(), again.GetRun().GetId())
}

func collect[Item any](list func(yield func(Item, error) bool)) ([]Item, error) {
	var items []Item
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func TestCutConnections(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	p := newProxy(t, server.GRPC)
	c := open(t, client.Options{Servers: []string{p.address}})
	deploy(t, c, "a/one")

	// Each trigger loses its connection when the server begins to answer: whether the run was
	// made is unknown to the client, and it must be made once.
	const triggers = 20
	ids := map[string]bool{}
	for range triggers {
		p.armed.Store(true)
		answer, err := c.Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "chain"})
		require.NoError(t, err)
		ids[answer.GetRun().GetId()] = true
	}
	require.Len(t, ids, triggers)
	require.GreaterOrEqual(t, int(p.cuts.Load()), triggers, "the proxy has cut")
	runs, err := collect(client.AllRuns(t.Context(), c, &servov1.ListRunsRequest{Tenant: "acme", PageSize: 7}))
	require.NoError(t, err)
	require.Len(t, runs, triggers)
	for _, run := range runs {
		require.True(t, ids[run.GetId()])
	}
}

// proxy passes bytes on, and cuts a connection at the first byte that the server sends while
// it is armed.
type proxy struct {
	address string
	armed   atomic.Bool
	cuts    atomic.Int32
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{address: listener.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.pass(from, target) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return p
}

func (p *proxy) pass(from net.Conn, target string) {
	defer from.Close()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer to.Close()
	var asking sync.WaitGroup
	defer asking.Wait()
	defer from.Close() // so that the other direction ends
	asking.Go(func() {
		defer to.Close()
		_, _ = io.Copy(to, from)
	})
	buffer := make([]byte, 32<<10)
	for {
		n, err := to.Read(buffer)
		if n > 0 && p.armed.CompareAndSwap(true, false) {
			p.cuts.Add(1)
			return
		}
		if _, failed := from.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}
