package api_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/edge/api"
)

func TestExplain(t *testing.T) {
	t.Parallel()

	t.Run("a task and its run list their blockers, with the values", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "diamond").GetId()
		b.admit(t)
		task := b.taskOf(t, run, "d/d")
		why, err := b.tasks.ExplainTask(t.Context(), &servov1.ExplainTaskRequest{Tenant: "acme", Run: run, Task: task.GetId()})
		require.NoError(t, err)
		require.Equal(t, []string{run, task.GetId(), "d/d", "PENDING"}, []string{why.GetRun(), why.GetTask(), why.GetAsset(), why.GetState()})
		require.True(t, why.GetSince().AsTime().Equal(task.GetSince().AsTime()))
		require.Len(t, why.GetBlockers(), 2)
		require.Equal(t, "UPSTREAM", why.GetBlockers()[0].GetCode())
		require.Equal(t, "d/b", why.GetBlockers()[0].GetValues().AsMap()["asset"])
		require.NotEmpty(t, why.GetBlockers()[0].GetRemedy())

		why, err = b.runs.ExplainRun(t.Context(), &servov1.ExplainRunRequest{Tenant: "acme", Run: run})
		require.NoError(t, err)
		require.Equal(t, []string{run, "", "diamond", "RUNNING"}, []string{why.GetRun(), why.GetTask(), why.GetPipeline(), why.GetState()})
		require.Equal(t, "NO_LIVE_WORKER", why.GetBlockers()[0].GetCode())
		require.Equal(t, "d/a", why.GetBlockers()[0].GetValues().AsMap()["asset"])
	})

	t.Run("a missing object, and one of another tenant, is not found", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "single").GetId()
		task := b.taskOf(t, run, "s/one").GetId()
		for _, req := range []*servov1.ExplainTaskRequest{
			{Tenant: "brick", Run: run, Task: task},
			{Tenant: "missing", Run: run, Task: task},
			{Tenant: "acme", Run: uuid.NewString(), Task: task},
			{Tenant: "acme", Run: run, Task: uuid.NewString()},
		} {
			_, err := b.tasks.ExplainTask(t.Context(), req)
			require.Equal(t, codes.NotFound, codeOf(err), req)
		}
		_, err := b.runs.ExplainRun(t.Context(), &servov1.ExplainRunRequest{Tenant: "brick", Run: run})
		require.Equal(t, codes.NotFound, codeOf(err))
		_, err = b.runs.ExplainRun(t.Context(), &servov1.ExplainRunRequest{Tenant: "acme", Run: "x"})
		require.Equal(t, codes.InvalidArgument, codeOf(err))
	})

	t.Run("a server adds that it does not call a pool which has failed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "single").GetId()
		b.admit(t)
		task := b.taskOf(t, run, "s/one").GetId()
		tasks := b.beside(t, openBreaker{"default"})
		why, err := tasks.ExplainTask(t.Context(), &servov1.ExplainTaskRequest{Tenant: "acme", Run: run, Task: task})
		require.NoError(t, err)
		last := why.GetBlockers()[len(why.GetBlockers())-1]
		require.Equal(t, "BREAKER_OPEN", last.GetCode())
		require.Equal(t, "2026-11-15T12:00:00Z", last.GetValues().AsMap()["retry_at"])
		require.NotContains(t, last.GetMessage()+last.GetRemedy(), "secret.example.com", "what a URL answers is for operators")
	})
}

// TestExplainOverREST asks a whole server.
func TestExplainOverREST(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	conn := server.Dial(t)
	_, err := servov1.NewTenantServiceClient(conn).CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "acme"})
	require.NoError(t, err)
	_, err = servov1.NewDeploymentServiceClient(conn).Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: manifestOf(t, manifestText)})
	require.NoError(t, err)
	triggered, err := servov1.NewRunServiceClient(conn).TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "diamond"})
	require.NoError(t, err)
	run := triggered.GetRun().GetId()
	tasks, err := servov1.NewTaskServiceClient(conn).ListTasks(t.Context(), &servov1.ListTasksRequest{Tenant: "acme", Run: run, Asset: "d/b"})
	require.NoError(t, err)
	for path, state := range map[string]string{
		"/v1/tenants/acme/runs/" + run + ":whyNot":                                           "RUNNING",
		"/v1/tenants/acme/runs/" + run + "/tasks/" + tasks.GetTasks()[0].GetId() + ":whyNot": "PENDING",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		var why struct{ State, Next string }
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&why))
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode, path)
		require.Equal(t, state, why.State)
		require.NotEmpty(t, why.Next)
	}
}

// openBreaker is a server that has given up on a pool.
type openBreaker struct{ pool string }

func (o openBreaker) Breaker(pool string) (api.Breaker, bool) {
	return api.Breaker{State: push.BreakerOpen, RetryAt: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC), LastError: "secret.example.com: 500"}, pool == o.pool
}

// beside is another API on the same engine.
func (b *bundle) beside(t testing.TB, breakers api.Breakers) servov1.TaskServiceClient {
	t.Helper()
	other := api.New(api.Options{Store: b.db.Store, Engine: b.engine, Breakers: breakers, Open: true})
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(other.Unary()))
	other.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		other.Close()
		require.NoError(t, conn.Close())
		server.Stop()
		require.NoError(t, <-served)
	})
	return servov1.NewTaskServiceClient(conn)
}
