package daemon_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/pgbouncer"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/engine"
)

// deployMany makes a tenant with a number of pipelines of one task each, p0 and so on, a chain,
// and a task of a pool without workers.
func deployMany(t *testing.T, conn *grpc.ClientConn, pipelines int) {
	t.Helper()
	_, err := servov1.NewTenantServiceClient(conn).CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "acme"})
	require.NoError(t, err)
	code := func(key string, more map[string]any) map[string]any {
		asset := map[string]any{"key": key, "go": map[string]any{}}
		for name, value := range more {
			asset[name] = value
		}
		return asset
	}
	assets := []any{
		code("c/first", nil), code("c/second", map[string]any{"upstream": []any{"c/first"}}), code("c/last", map[string]any{"upstream": []any{"c/second"}}),
		code("f/broken", nil), code("n/idle", map[string]any{"pool": "idle"}),
	}
	all := []any{
		map[string]any{"name": "chain", "select": []any{"c/*"}},
		map[string]any{"name": "broken", "select": []any{"f/broken"}},
		map[string]any{"name": "idle", "select": []any{"n/idle"}},
	}
	for i := range pipelines {
		assets = append(assets, code(fmt.Sprintf("p/a%d", i), nil))
		all = append(all, map[string]any{"name": fmt.Sprintf("p%d", i), "select": []any{fmt.Sprintf("p/a%d", i)}})
	}
	manifest, err := structpb.NewStruct(map[string]any{"version": 1, "assets": assets, "pipelines": all})
	require.NoError(t, err)
	_, err = servov1.NewDeploymentServiceClient(conn).Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: manifest})
	require.NoError(t, err)
}

func trigger(t *testing.T, conn *grpc.ClientConn, pipeline string) string {
	t.Helper()
	made, err := servov1.NewRunServiceClient(conn).TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: pipeline})
	require.NoError(t, err)
	return made.GetRun().GetId()
}

// watch returns how a run ended, by the stream of its events.
func watch(t *testing.T, conn *grpc.ClientConn, run string) servov1.Run_State {
	t.Helper()
	stream, err := servov1.NewRunServiceClient(conn).WatchRun(t.Context(), &servov1.WatchRunRequest{Tenant: "acme", Run: run})
	require.NoError(t, err)
	for {
		message, err := stream.Recv()
		require.NoError(t, err)
		if end := message.GetEnd(); end != nil {
			return end.GetState()
		}
	}
}

// work claims from a server and completes every task, except those that fail selects.
func work(ctx context.Context, conn *grpc.ClientConn, name string, fail func(*servov1.Lease) bool) {
	workers := servov1.NewWorkerServiceClient(conn)
	for ctx.Err() == nil {
		claimed, err := workers.Claim(ctx, &servov1.ClaimRequest{
			WorkerId: name, ClaimId: uuid.NewString(), Pools: []string{"default"}, Max: 5, Slots: 5, Wait: durationpb.New(30 * time.Second), Start: true,
		})
		if err != nil || len(claimed.GetLeases()) == 0 {
			continue
		}
		report := &servov1.ReportRequest{WorkerId: name}
		for _, lease := range claimed.GetLeases() {
			item := &servov1.ReportItem{Lease: lease.GetLease(), Action: &servov1.ReportItem_Complete{Complete: &servov1.Complete{}}}
			if fail(lease) {
				item.Action = &servov1.ReportItem_Fail{Fail: &servov1.Fail{Error: &servov1.Failure{Code: "USER_CODE_EXCEPTION", Message: "x"}}}
			}
			report.Items = append(report.Items, item)
		}
		_, _ = workers.Report(ctx, report) // what is lost expires
	}
}

// TestServers: two servers on one database. Claims look without a signal once an hour only, so
// what wakes them is a notice of the other server.
func TestServers(t *testing.T) {
	t.Parallel()
	never := engine.Config{PollEvery: time.Hour}

	t.Run("a claim at one server is woken by a trigger at the other, and both are listed", func(t *testing.T) {
		t.Parallel()
		db := servotest.DB(t)
		a := servertest.StartWith(t, daemon.Config{DatabaseURL: db.URL, Name: "a", Version: "1", Engine: never})
		first := a.Dial(t)
		deployMany(t, first, 10)
		admits(t, first, "a") // else a claim at b would be woken by b itself
		b := servertest.StartWith(t, daemon.Config{DatabaseURL: db.URL, Name: "b", Version: "2", Engine: never})
		second := b.Dial(t)

		got := make(chan *servov1.ClaimResponse, 1)
		go func() {
			claimed, err := servov1.NewWorkerServiceClient(second).Claim(t.Context(), &servov1.ClaimRequest{
				WorkerId: "w", ClaimId: uuid.NewString(), Pools: []string{"default"}, Max: 1, Slots: 7, Wait: durationpb.New(time.Minute),
			})
			if err == nil {
				got <- claimed
			}
		}()
		for i := 0; len(got) == 0 && i < 10; i++ {
			trigger(t, first, fmt.Sprintf("p%d", i))
		}
		require.Len(t, (<-got).GetLeases(), 1)

		status, err := servov1.NewStatusServiceClient(first).GetStatus(t.Context(), &servov1.GetStatusRequest{})
		require.NoError(t, err)
		require.Len(t, status.GetServers(), 2)
		require.Equal(t, []string{"a", "1", "b", "2"}, []string{
			status.GetServers()[0].GetName(), status.GetServers()[0].GetVersion(), status.GetServers()[1].GetName(), status.GetServers()[1].GetVersion(),
		})
		require.Eventually(t, func() bool {
			listed, err := servov1.NewWorkerServiceClient(first).ListWorkers(t.Context(), &servov1.ListWorkersRequest{Pool: "default"})
			return err == nil && len(listed.GetWorkers()) == 1 && listed.GetWorkers()[0].GetSlots() == 7 && listed.GetWorkers()[0].GetLeases() == 1
		}, eventually, 10*time.Millisecond)

		require.NoError(t, b.Stop(context.Background()))
		status, err = servov1.NewStatusServiceClient(first).GetStatus(t.Context(), &servov1.GetStatusRequest{})
		require.NoError(t, err)
		require.Len(t, status.GetServers(), 1, "who stops signs off")
	})

	t.Run("a listener that was cut off listens again", func(t *testing.T) {
		t.Parallel()
		db := servotest.DB(t)
		proxy := servotest.Proxy(t, db.URL)
		deaf := make(chan struct{}, 10)
		a := servertest.StartWith(t, daemon.Config{DatabaseURL: db.URL, Name: "a", Engine: never})
		first := a.Dial(t)
		deployMany(t, first, 10)
		admits(t, first, "a")
		b := servertest.StartWith(t, daemon.Config{
			DatabaseURL: db.URL, ListenURL: proxy.URL, Name: "b", Engine: never,
			Logger: signalOn("not receiving notices of other servers; polling instead", deaf),
		})
		proxy.CutAll()
		<-deaf
		got := make(chan int, 1)
		go func() {
			claimed, _ := servov1.NewWorkerServiceClient(b.Dial(t)).Claim(t.Context(), &servov1.ClaimRequest{
				WorkerId: "w", ClaimId: uuid.NewString(), Pools: []string{"default"}, Max: 1, Wait: durationpb.New(time.Minute),
			})
			got <- len(claimed.GetLeases())
		}()
		for i := 0; len(got) == 0 && i < 10; i++ {
			trigger(t, first, fmt.Sprintf("p%d", i))
		}
		require.Equal(t, 1, <-got, "what was missed without a listener is looked for")
	})
}

// admits waits until a server has the duty of admission.
func admits(t *testing.T, conn *grpc.ClientConn, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		status, err := servov1.NewStatusServiceClient(conn).GetStatus(t.Context(), &servov1.GetStatusRequest{})
		for _, duty := range status.GetDuties() {
			if duty.GetName() == "admission" && duty.GetHolder() == name {
				return true
			}
		}
		return err != nil
	}, eventually, 10*time.Millisecond)
}

// TestPooler: whole servers behind a PgBouncer in transaction mode that has five connections
// for the two of them.
func TestPooler(t *testing.T) {
	t.Parallel()
	for name, listen := range map[string]func(direct string) string{
		"listening past the pooler": func(direct string) string { return direct },
		"without listening":         func(string) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := servotest.DB(t)
			through := pgbouncer.Start(t, db.URL, 5)
			start := func(name string) (*servertest.Server, *grpc.ClientConn) {
				s := servertest.StartWith(t, daemon.Config{DatabaseURL: through, Pooler: true, ListenURL: listen(db.URL), Name: name})
				return s, s.Dial(t)
			}
			a, first := start("a")
			_, second := start("b")
			deployMany(t, first, 8)

			var broken atomic.Int64
			ctx, cancel := context.WithCancel(context.Background())
			var fleet sync.WaitGroup
			defer func() { cancel(); fleet.Wait() }()
			for i := range 4 {
				conn := []*grpc.ClientConn{first, second}[i%2]
				fleet.Go(func() {
					work(ctx, conn, fmt.Sprintf("w%d", i), func(l *servov1.Lease) bool { return l.GetAsset() == "f/broken" && broken.Add(1) == 1 })
				})
			}

			var runs sync.WaitGroup
			for i := range 8 {
				runs.Go(func() {
					for range 3 {
						run := trigger(t, []*grpc.ClientConn{first, second}[i%2], fmt.Sprintf("p%d", i))
						if state := watch(t, second, run); state != servov1.Run_SUCCEEDED {
							t.Errorf("run %s ended as %s", run, state)
						}
					}
				})
			}
			runs.Wait()
			require.Equal(t, servov1.Run_SUCCEEDED, watch(t, second, trigger(t, first, "chain")))

			failed := trigger(t, second, "broken")
			require.Equal(t, servov1.Run_FAILED, watch(t, first, failed))
			again, err := servov1.NewRunServiceClient(first).RetryRun(t.Context(), &servov1.RetryRunRequest{Tenant: "acme", Run: failed})
			require.NoError(t, err)
			require.Equal(t, servov1.Run_SUCCEEDED, watch(t, second, again.GetRun().GetId()))

			idle := trigger(t, first, "idle")
			_, err = servov1.NewRunServiceClient(second).CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: idle})
			require.NoError(t, err)
			require.Equal(t, servov1.Run_CANCELLED, watch(t, first, idle))

			// the other server takes over what only one may do
			admits(t, second, "a")
			require.NoError(t, a.Stop(context.Background()))
			require.Equal(t, servov1.Run_SUCCEEDED, watch(t, second, trigger(t, second, "chain")))
			admits(t, second, "b")
			verifytest.Clean(t, db)
		})
	}

	t.Run("migrations go through it", func(t *testing.T) {
		t.Parallel()
		through := pgbouncer.Start(t, servotest.Empty(t, "template0"), 5)
		s := servertest.StartWith(t, daemon.Config{DatabaseURL: through, Pooler: true, Migrate: true, Name: "a"})
		deployMany(t, s.Dial(t), 1)
	})
}
