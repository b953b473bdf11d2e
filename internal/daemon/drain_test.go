package daemon_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// drained is a server with something to run.
type drained struct {
	*servertest.Server

	db   *servotest.Database
	runs servov1.RunServiceClient
}

func startDrained(t *testing.T, drain time.Duration) *drained {
	t.Helper()
	db := servotest.DB(t)
	s := servertest.StartWith(t, daemon.Config{DatabaseURL: db.URL, Drain: drain})
	conn := s.Dial(t)
	_, err := servov1.NewTenantServiceClient(conn).CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "acme"})
	require.NoError(t, err)
	manifest, err := structpb.NewStruct(map[string]any{
		"version":   1,
		"assets":    []any{map[string]any{"key": "a/b", "go": map[string]any{}}},
		"pipelines": []any{map[string]any{"name": "p", "overlap": "allow"}},
	})
	require.NoError(t, err)
	_, err = servov1.NewDeploymentServiceClient(conn).Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: manifest})
	require.NoError(t, err)
	return &drained{Server: s, db: db, runs: servov1.NewRunServiceClient(conn)}
}

func (d *drained) trigger(t *testing.T) error {
	t.Helper()
	_, err := d.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "p"})
	return err
}

// hold keeps every run from being written until the function that it returns is called.
func (d *drained) hold(t *testing.T) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.db.URL)
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE servo.runs IN SHARE MODE`)
	require.NoError(t, err)
	once := sync.OnceFunc(func() { _ = conn.Close(context.Background()) })
	t.Cleanup(once)
	return once
}

// held waits until so many calls of either kind are in flight.
func (d *drained) held(t *testing.T, calls int) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, _, body := get(t, d.URL+"/metrics")
		return strings.Contains(body, fmt.Sprintf("grpc_server_in_flight %d\n", calls)) &&
			strings.Contains(body, fmt.Sprintf("http_requests_in_flight %d\n", calls+1)) // the question itself
	}, eventually, 10*time.Millisecond)
}

func TestStop(t *testing.T) {
	t.Parallel()

	t.Run("calls in flight are answered, over gRPC and REST, and later calls are not", func(t *testing.T) {
		t.Parallel()
		d := startDrained(t, eventually)
		release := d.hold(t)
		answers := make(chan error, 20)
		for range 10 {
			go func() { answers <- d.trigger(t) }()
			go func() { answers <- d.post(t) }()
		}
		d.held(t, 10)
		stopped := make(chan error, 1)
		go func() { stopped <- d.Stop(context.Background()) }()
		require.Eventually(t, func() bool { return len(d.Missing(t.Context())) == 1 }, eventually, time.Millisecond)
		require.Equal(t, []string{"the server is stopping"}, d.Missing(t.Context()))
		refusal := func() codes.Code {
			_, err := d.runs.ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "acme"})
			return status.Code(err)
		}
		require.Eventually(t, func() bool { return refusal() == codes.Unavailable }, eventually, 10*time.Millisecond)
		require.Empty(t, stopped, "the calls are not answered yet")
		release()
		for range 20 {
			require.NoError(t, <-answers)
		}
		require.NoError(t, <-stopped)
		require.Equal(t, codes.Unavailable, refusal())
	})

	t.Run("every call is answered or refused, and what was refused was not done", func(t *testing.T) {
		t.Parallel()
		d := startDrained(t, eventually)
		var done, refused atomic.Int64
		begun := make(chan struct{}, 1000)
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for {
					err := d.trigger(t)
					if err != nil {
						require.Equal(t, codes.Unavailable, status.Code(err), err)
						refused.Add(1)
						return
					}
					done.Add(1)
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 20 {
			<-begun
		}
		require.NoError(t, d.Stop(context.Background()))
		callers.Wait()
		require.EqualValues(t, 8, refused.Load())
		require.EqualValues(t, done.Load(), d.db.Count(t, `SELECT count(*) FROM servo.runs`))
	})

	t.Run("waiting claims and streams are ended", func(t *testing.T) {
		t.Parallel()
		d := startDrained(t, eventually)
		conn := d.Dial(t)
		claimed := make(chan error, 1)
		go func() {
			answer, err := servov1.NewWorkerServiceClient(conn).Claim(t.Context(), &servov1.ClaimRequest{
				WorkerId: "w", ClaimId: uuid.NewString(), Pools: []string{"other"}, Max: 1, Wait: durationpb.New(time.Minute),
			})
			if err == nil && len(answer.GetLeases()) != 0 {
				err = fmt.Errorf("%d leases of an empty pool", len(answer.GetLeases()))
			}
			claimed <- err
		}()
		run, err := d.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "p"})
		require.NoError(t, err)
		stream, err := d.runs.WatchRun(t.Context(), &servov1.WatchRunRequest{Tenant: "acme", Run: run.GetRun().GetId()})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)

		require.NoError(t, d.Stop(context.Background()))
		// Empty if it was asleep; a claim that was just looking is repeated elsewhere by its id.
		require.Contains(t, []codes.Code{codes.OK, codes.Unavailable}, status.Code(<-claimed))
		for err == nil {
			_, err = stream.Recv()
		}
		require.Equal(t, codes.Unavailable, status.Code(err), err)
	})

	t.Run("what does not end in time is cut off, and the server stops", func(t *testing.T) {
		t.Parallel()
		d := startDrained(t, 50*time.Millisecond)
		release := d.hold(t)
		answers := make(chan error, 2)
		go func() { answers <- d.trigger(t) }()
		go func() { answers <- d.post(t) }()
		d.held(t, 1)
		stopped := make(chan error, 1)
		go func() { stopped <- d.Stop(context.Background()) }()
		for range 2 {
			require.Error(t, <-answers)
		}
		release()
		require.NoError(t, <-stopped)
	})

	t.Run("the duty is given back, so that the next server need not wait", func(t *testing.T) {
		t.Parallel()
		d := startDrained(t, eventually)
		holder := `SELECT count(*) FROM servo.duty_renewals WHERE name = 'admission' AND expires_at > now()`
		require.Eventually(t, func() bool { return d.db.Count(t, holder) == 1 }, eventually, 10*time.Millisecond)
		require.NoError(t, d.Stop(context.Background()))
		require.Zero(t, d.db.Count(t, holder))
		require.NoError(t, d.Stop(context.Background()), "again is the same as once")
	})
}

// post triggers a run over REST.
func (d *drained) post(t *testing.T) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL+"/v1/tenants/acme/runs", strings.NewReader(`{"pipeline": "p"}`))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return nil
}
