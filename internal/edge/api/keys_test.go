package api_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/access"
)

func TestRevocation(t *testing.T) {
	t.Parallel()

	t.Run("a revoked key is refused at once where it was revoked, soon elsewhere, and its streams end", func(t *testing.T) {
		t.Parallel()
		g := setupGuarded(t)
		other := g.another(t)
		key, made := g.key(t, "acme", access.Settings{Role: access.Viewer})
		admin := g.roleKey(t, access.TenantAdmin)
		run := g.trigger(t, "diamond")
		stream, err := servov1.NewRunServiceClient(other.conn).WatchRun(with(t.Context(), key), &servov1.WatchRunRequest{Tenant: "acme", Run: run.GetId()})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		read := func(g *guarded) codes.Code {
			_, err := servov1.NewRunServiceClient(g.conn).GetRun(with(t.Context(), key), &servov1.GetRunRequest{Tenant: "acme", Run: run.GetId()})
			return status.Code(err)
		}
		require.Equal(t, codes.OK, read(g))

		// Many callers use it while it is revoked: a call that begins after the answer is refused.
		var users sync.WaitGroup
		ended := make(chan struct{})
		for range 8 {
			users.Go(func() {
				for {
					select {
					case <-ended:
						if code := read(g); code != codes.Unauthenticated {
							t.Errorf("answered with %s after the key was revoked", code)
						}
						return
					default:
						read(g)
					}
				}
			})
		}
		_, err = servov1.NewKeyServiceClient(g.conn).RevokeKey(with(t.Context(), admin), &servov1.RevokeKeyRequest{Tenant: "acme", Key: made.Public})
		require.NoError(t, err)
		close(ended)
		users.Wait()
		require.Eventually(t, func() bool { return read(other) == codes.Unauthenticated }, waitLong, waitShort)
		for err == nil {
			_, err = stream.Recv()
		}
		require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
		again, err := servov1.NewKeyServiceClient(g.conn).RevokeKey(with(t.Context(), admin), &servov1.RevokeKeyRequest{Tenant: "acme", Key: made.Public})
		require.NoError(t, err, "once more changes nothing")
		require.Equal(t, servov1.Key_REVOKED, again.GetState())
		verifytest.Clean(t, g.db)
	})

	t.Run("an unreachable database is reported as such, and no reason to refuse a key", func(t *testing.T) {
		t.Parallel()
		g := setupGuarded(t)
		key := g.roleKey(t, access.Viewer)
		g.db.Exec(t, `ALTER TABLE servo.api_keys RENAME TO gone`)
		_, err := servov1.NewRunServiceClient(g.conn).ListRuns(with(t.Context(), key), &servov1.ListRunsRequest{Tenant: "acme"})
		require.Equal(t, codes.Internal, status.Code(err))
		g.db.Exec(t, `ALTER TABLE servo.gone RENAME TO api_keys`)
		_, err = servov1.NewRunServiceClient(g.conn).ListRuns(with(t.Context(), key), &servov1.ListRunsRequest{Tenant: "acme"})
		require.NoError(t, err)
	})
}

func TestKeyService(t *testing.T) {
	t.Parallel()

	t.Run("a key is shown once, listed without its secret, and its last use is known", func(t *testing.T) {
		t.Parallel()
		g := setupGuarded(t)
		g.api.GatherUses()
		keys := servov1.NewKeyServiceClient(g.conn)
		admin := g.roleKey(t, access.TenantAdmin)
		made, err := keys.CreateKey(with(t.Context(), admin), &servov1.CreateKeyRequest{Tenant: "acme", Name: "ci", Role: "developer", ExpiresIn: durationpb.New(time.Hour)})
		require.NoError(t, err)
		require.Regexp(t, `^sk_`+made.GetKey().GetId()+`_`, made.GetSecret())
		_, err = keys.CreateKey(with(t.Context(), admin), &servov1.CreateKeyRequest{Tenant: "acme", Name: "ci", Role: "developer"})
		require.Equal(t, codes.AlreadyExists, codeOf(err))
		_, err = servov1.NewRunServiceClient(g.conn).ListRuns(with(t.Context(), made.GetSecret()), &servov1.ListRunsRequest{Tenant: "acme"})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			listed, err := keys.ListKeys(with(t.Context(), admin), &servov1.ListKeysRequest{Tenant: "acme"})
			require.NoError(t, err)
			require.NotContains(t, protojson.Format(listed), "sk_")
			require.Len(t, listed.GetKeys(), 2)
			require.NotNil(t, listed.GetKeys()[0].GetExpiresAt())
			return listed.GetKeys()[0].GetName() == "ci" && listed.GetKeys()[0].GetLastUsedAt() != nil
		}, waitLong, waitShort)
		page, err := keys.ListKeys(with(t.Context(), admin), &servov1.ListKeysRequest{Tenant: "acme", PageSize: 1})
		require.NoError(t, err)
		next, err := keys.ListKeys(with(t.Context(), admin), &servov1.ListKeysRequest{Tenant: "acme", PageSize: 1, PageToken: page.GetNextPageToken()})
		require.NoError(t, err)
		require.NotEqual(t, page.GetKeys()[0].GetId(), next.GetKeys()[0].GetId())
		require.Empty(t, next.GetNextPageToken())

		rotated, err := keys.RotateKey(with(t.Context(), admin), &servov1.RotateKeyRequest{Tenant: "acme", Key: "ci", Overlap: durationpb.New(time.Minute)})
		require.NoError(t, err)
		require.Equal(t, "developer", rotated.GetKey().GetRole())
		for _, secret := range []string{made.GetSecret(), rotated.GetSecret()} { // for a minute both
			_, err = servov1.NewRunServiceClient(g.conn).ListRuns(with(t.Context(), secret), &servov1.ListRunsRequest{Tenant: "acme"})
			require.NoError(t, err)
		}
		_, err = keys.RotateKey(with(t.Context(), admin), &servov1.RotateKeyRequest{Tenant: "acme", Key: made.GetKey().GetId()})
		require.Equal(t, codes.FailedPrecondition, codeOf(err))
		require.Zero(t, g.db.Count(t, `SELECT count(*) FROM servo.entity_events WHERE data::text LIKE '%`+made.GetSecret()[20:]+`%'`))
		verifytest.Clean(t, g.db)
	})

	t.Run("a tenant cannot make keys of others, of the installation, or of pools that are not its own", func(t *testing.T) {
		t.Parallel()
		g := setupGuarded(t)
		keys := servov1.NewKeyServiceClient(g.conn)
		admin := with(t.Context(), g.roleKey(t, access.TenantAdmin))
		_, err := keys.CreateKey(admin, &servov1.CreateKeyRequest{Tenant: "brick", Name: "x", Role: "viewer"})
		require.Equal(t, codes.NotFound, codeOf(err))
		_, err = keys.CreateKey(admin, &servov1.CreateKeyRequest{Name: "x", Role: "platform"})
		require.Equal(t, codes.PermissionDenied, codeOf(err))
		_, err = keys.CreateKey(admin, &servov1.CreateKeyRequest{Tenant: "acme", Name: "x", Role: "platform"})
		requireRefused(t, err, codes.InvalidArgument, "role")
		_, err = keys.CreateKey(admin, &servov1.CreateKeyRequest{Tenant: "acme", Name: "x", Role: "worker", Pools: []string{"default"}})
		requireRefused(t, err, codes.InvalidArgument, "pools[0]")
		_, err = keys.CreateKey(admin, &servov1.CreateKeyRequest{Tenant: "acme", Name: "x", Role: "viewer", Workspace: "nowhere"})
		requireRefused(t, err, codes.NotFound, "workspace")
		listed, err := keys.ListKeys(with(t.Context(), g.roleKey(t, access.Platform)), &servov1.ListKeysRequest{All: true})
		require.NoError(t, err)
		require.Len(t, listed.GetKeys(), 1)
		tenants, err := servov1.NewTenantServiceClient(g.conn).ListTenants(admin, &servov1.ListTenantsRequest{})
		require.NoError(t, err)
		require.Len(t, tenants.GetTenants(), 1, "its own")
		require.Equal(t, "acme", tenants.GetTenants()[0].GetName())
	})

	t.Run("a key of one workspace reaches nothing of another", func(t *testing.T) {
		t.Parallel()
		g := setupGuarded(t)
		_, err := g.tenants.CreateWorkspace(t.Context(), &servov1.CreateWorkspaceRequest{Tenant: "acme", Name: "prod"})
		require.NoError(t, err)
		here := g.trigger(t, "diamond")
		key, _ := g.key(t, "acme", access.Settings{Role: access.TenantAdmin, Workspace: "prod"})
		own, _ := g.key(t, "acme", access.Settings{Role: access.Viewer, Workspace: "default"})
		for _, method := range methods(t) {
			m := access.Methods()[pathOf(method)]
			if m.Within != access.ByRun {
				continue
			}
			req := request(t, method, "acme")
			req.ProtoReflect().Set(method.Input().Fields().ByName("run"), protoreflect.ValueOfString(here.GetId()))
			err := g.call(t, method, req, key)
			require.Equal(t, codes.NotFound, codeOf(err), "%s: %v", method.Name(), err)
			require.Equal(t, "run", problemOf(t, err).GetField(), method.Name())
		}
		_, err = servov1.NewRunServiceClient(g.conn).GetRun(with(t.Context(), own), &servov1.GetRunRequest{Tenant: "acme", Run: here.GetId()})
		require.NoError(t, err)
		_, err = servov1.NewDeploymentServiceClient(g.conn).GetDeployment(with(t.Context(), key), &servov1.GetDeploymentRequest{Tenant: "acme", Deployment: here.GetDeployment()})
		require.Equal(t, codes.NotFound, codeOf(err))
		_, err = servov1.NewRunServiceClient(g.conn).ListRuns(with(t.Context(), key), &servov1.ListRunsRequest{Tenant: "acme"})
		require.Equal(t, codes.PermissionDenied, codeOf(err))
		listed, err := servov1.NewRunServiceClient(g.conn).ListRuns(with(t.Context(), key), &servov1.ListRunsRequest{Tenant: "acme", Workspace: "prod"})
		require.NoError(t, err)
		require.Empty(t, listed.GetRuns())
	})

	t.Run("a worker key works for its pools and speaks of no other's leases", func(t *testing.T) {
		t.Parallel()
		g := setupGuarded(t)
		workers := servov1.NewWorkerServiceClient(g.conn)
		fleet := with(t.Context(), g.roleKey(t, access.Worker)) // of the pool default
		others, _ := g.key(t, "", access.Settings{Role: access.Worker, Pools: []string{"fetch"}})
		g.trigger(t, "single")
		g.admit(t)
		req := claimRequest(1)
		_, err := workers.Claim(fleet, req)
		requireRefused(t, err, codes.PermissionDenied, "pools[1]")
		req.Pools = []string{"default"}
		claimed, err := workers.Claim(fleet, req)
		require.NoError(t, err)
		require.Len(t, claimed.GetLeases(), 1)
		item := complete(claimed.GetLeases()[0], nil)
		refused, err := workers.Report(with(t.Context(), others), &servov1.ReportRequest{WorkerId: "w", Items: []*servov1.ReportItem{item}})
		require.NoError(t, err)
		require.Equal(t, "FORBIDDEN", refused.GetAnswers()[0].GetError().GetCode())
		requireHeldToPool(t, workers, fleet, with(t.Context(), others), claimed.GetLeases()[0].GetLease())
		done, err := workers.Report(fleet, &servov1.ReportRequest{WorkerId: "w", Items: []*servov1.ReportItem{item}})
		require.NoError(t, err)
		require.Nil(t, done.GetAnswers()[0].GetError())
		lease := claimed.GetLeases()[0]
		_, err = servov1.NewTaskServiceClient(g.conn).GetTask(fleet, &servov1.GetTaskRequest{Tenant: "acme", Run: lease.GetRun(), Task: lease.GetTask()})
		require.NoError(t, err, "what its task builds on")
		verifytest.Clean(t, g.db)
	})

	t.Run("a worker of one tenant has no lease of another", func(t *testing.T) {
		t.Parallel()
		g := setupGuarded(t)
		_, err := servov1.NewPoolServiceClient(g.bundle.conn).CreatePool(t.Context(), &servov1.CreatePoolRequest{Name: "bricks", Kind: servov1.Pool_PULL, Owner: "brick"})
		require.NoError(t, err)
		key, _ := g.key(t, "brick", access.Settings{Role: access.Worker, Pools: []string{"bricks"}})
		g.trigger(t, "single")
		lease := g.one(t) // of acme
		workers := servov1.NewWorkerServiceClient(g.conn)
		answer, err := workers.Report(with(t.Context(), key), &servov1.ReportRequest{WorkerId: "w", Items: []*servov1.ReportItem{complete(lease, nil)}})
		require.NoError(t, err)
		require.Equal(t, "INVALID_ARGUMENT", answer.GetAnswers()[0].GetError().GetCode())
		_, err = workers.Heartbeat(with(t.Context(), key), &servov1.HeartbeatRequest{WorkerId: "w", Leases: []*servov1.HeartbeatItem{{Lease: lease.GetLease()}}})
		require.Equal(t, codes.InvalidArgument, codeOf(err))
		_, err = servov1.NewPoolServiceClient(g.bundle.conn).DeletePool(t.Context(), &servov1.DeletePoolRequest{Pool: "bricks"})
		require.NoError(t, err)
		claim := claimRequest(1)
		claim.Pools = []string{"bricks"}
		fresh := g.another(t) // that has not seen the key yet
		_, err = servov1.NewWorkerServiceClient(fresh.conn).Claim(with(t.Context(), key), claim)
		require.Equal(t, codes.PermissionDenied, codeOf(err), "the pool is not the tenant's any more")
	})
}

// TestReportAfterAccess: a worker ends what it claimed while it could, and claims nothing more.
func TestReportAfterAccess(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	pools := servov1.NewPoolServiceClient(g.bundle.conn)
	_, err := pools.CreatePool(t.Context(), &servov1.CreatePoolRequest{Name: "fetch", Kind: servov1.Pool_PULL, Owner: "acme"})
	require.NoError(t, err)
	key, _ := g.key(t, "acme", access.Settings{Role: access.Worker, Pools: []string{"fetch"}})
	for range 2 {
		_, err = g.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Select: []string{"f/fetch"}})
		require.NoError(t, err)
	}
	g.admit(t)
	claim := claimRequest(1)
	claim.Pools = []string{"fetch"}
	workers := servov1.NewWorkerServiceClient(g.conn)
	claimed, err := workers.Claim(with(t.Context(), key), claim)
	require.NoError(t, err)
	require.Len(t, claimed.GetLeases(), 1)

	_, err = pools.UpdatePool(t.Context(), &servov1.UpdatePoolRequest{Pool: "fetch", Owner: new("brick")})
	require.NoError(t, err)
	fresh := servov1.NewWorkerServiceClient(g.another(t).conn) // that has not seen the key yet
	again := claimRequest(1)
	again.Pools = []string{"fetch"}
	_, err = fresh.Claim(with(t.Context(), key), again)
	requireRefused(t, err, codes.PermissionDenied, "pools[0]")
	again.ClaimId = uuid.NewString()
	nothing, err := workers.Claim(with(t.Context(), key), again) // of a server that still knows the key as it was
	require.NoError(t, err)
	require.Empty(t, nothing.GetLeases())
	lease := claimed.GetLeases()[0]
	beat, err := fresh.Heartbeat(with(t.Context(), key), &servov1.HeartbeatRequest{WorkerId: "w1", Leases: []*servov1.HeartbeatItem{{Lease: lease.GetLease()}}})
	require.NoError(t, err)
	require.True(t, beat.GetLeases()[0].GetHeld())
	done, err := fresh.Report(with(t.Context(), key), &servov1.ReportRequest{WorkerId: "w1", Items: []*servov1.ReportItem{complete(lease, nil)}})
	require.NoError(t, err)
	require.Nil(t, done.GetAnswers()[0].GetError())
	verifytest.Clean(t, g.db)
}

// requireHeldToPool: a key of the lease's pool sends heartbeats, logs and progress, and a key of
// another pool is refused and does not disturb the others.
func requireHeldToPool(t *testing.T, workers servov1.WorkerServiceClient, mine, others context.Context, lease string) {
	t.Helper()
	log := &servov1.ReportItem{Lease: lease, Action: &servov1.ReportItem_Log{Log: &servov1.LogChunk{Seq: 1, Text: "hello"}}}
	progress := &servov1.ReportItem{Lease: lease, Action: &servov1.ReportItem_Progress{Progress: &servov1.Progress{Fraction: 0.5}}}
	for ctx, code := range map[context.Context]string{mine: "", others: "FORBIDDEN"} {
		answer, err := workers.Report(ctx, &servov1.ReportRequest{WorkerId: "w", Items: []*servov1.ReportItem{log, progress}})
		require.NoError(t, err)
		for _, a := range answer.GetAnswers() {
			require.Equal(t, code, a.GetError().GetCode())
		}
		for _, sent := range []*servov1.Progress{nil, {Fraction: 0.7}} {
			beat, err := workers.Heartbeat(ctx, &servov1.HeartbeatRequest{WorkerId: "w", Leases: []*servov1.HeartbeatItem{{Lease: lease, Progress: sent}}})
			if code != "" {
				requireRefused(t, err, codes.PermissionDenied, "leases[0].lease")
				continue
			}
			require.NoError(t, err)
			require.True(t, beat.GetLeases()[0].GetHeld())
		}
	}
}
