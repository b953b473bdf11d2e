package api_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
)

func keyed(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
}

// replayed reports whether an answer was given before.
func replayed(md metadata.MD) bool { return len(md.Get(intercept.Replayed)) == 1 }

const lockedManifest = manifestText + `  - {name: locked, select: [s/one]}
`

// partitionedManifest has an asset to backfill besides.
var partitionedManifest = strings.Replace(lockedManifest, "assets:\n", `assets:
  - {key: p/days, exec: {command: [run]}, partitions: [{dimension: date, kind: daily, start: "2026-01-01"}]}
`, 1)

// effects makes a request for every call that takes a key, each of which changes something, in
// an order in which all are possible.
func effects(t *testing.T, b *bundle) []proto.Message {
	t.Helper()
	spec := &servov1.ConfigSpec{Pipeline: "single", Trigger: &servov1.ConfigTrigger{Cron: "0 6 * * *"}}
	other := proto.CloneOf(spec)
	other.Trigger.Cron = "0 7 * * *"
	first := b.deploy(t, partitionedManifest).GetDeployment().GetId()
	january := &servov1.CreateBackfillRequest{Tenant: "acme", Asset: "p/days", Partitions: []string{"date=2026-01"}}
	filling, err := servov1.NewBackfillServiceClient(b.conn).CreateBackfill(t.Context(), january)
	require.NoError(t, err)
	cancelled, held := b.trigger(t, "diamond"), b.trigger(t, "single")
	for _, l := range b.claim(t, 100) {
		if l.GetRun() != held.GetId() {
			b.report(t, complete(l, nil))
		}
	}
	tasks, err := b.tasks.ListTasks(t.Context(), &servov1.ListTasksRequest{Tenant: "acme", Run: held.GetId()})
	require.NoError(t, err)
	_, err = b.runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: held.GetId()})
	require.NoError(t, err)
	locked := b.trigger(t, "locked")
	locks, err := servov1.NewLockServiceClient(b.conn).ListLocks(t.Context(), &servov1.ListLocksRequest{Tenant: "acme"})
	require.NoError(t, err)
	require.Len(t, locks.GetLocks(), 1)
	_, err = servov1.NewPoolServiceClient(b.conn).CreatePool(t.Context(), &servov1.CreatePoolRequest{Name: "first", Kind: servov1.Pool_PUSH, Url: "https://example.com"})
	require.NoError(t, err)
	signing, err := servov1.NewSigningKeyServiceClient(b.conn).CreateSigningKey(t.Context(), &servov1.CreateSigningKeyRequest{})
	require.NoError(t, err)
	for name, text := range map[string]string{"r1": partitionedManifest, "r2": strings.Replace(partitionedManifest, "the second", "the third", 1)} {
		_, err = servov1.NewReleaseServiceClient(b.conn).CreateRelease(t.Context(), &servov1.CreateReleaseRequest{Name: name, Manifest: manifestOf(t, text)})
		require.NoError(t, err)
	}
	_, err = servov1.NewReleaseChannelServiceClient(b.conn).CreateReleaseChannel(t.Context(), &servov1.CreateReleaseChannelRequest{Name: "unused"})
	require.NoError(t, err)
	return []proto.Message{
		&servov1.CreateTenantRequest{Name: "cargo"},
		&servov1.CreateWorkspaceRequest{Tenant: "acme", Name: "lab"},
		&servov1.SetQuotasRequest{Tenant: "acme", Quotas: &servov1.Quotas{MaxConcurrentRuns: proto.Int32(77)}},
		january,
		&servov1.PauseBackfillRequest{Tenant: "acme", Backfill: filling.GetId(), Reason: "maintenance"},
		&servov1.ResumeBackfillRequest{Tenant: "acme", Backfill: filling.GetId()},
		&servov1.CancelBackfillRequest{Tenant: "acme", Backfill: filling.GetId()},
		&servov1.RetryBackfillRequest{Tenant: "acme", Backfill: filling.GetId()},
		&servov1.DeployRequest{Tenant: "acme", Manifest: manifestOf(t, strings.Replace(partitionedManifest, "the second", "the next", 1))},
		&servov1.ActivateDeploymentRequest{Tenant: "acme", Deployment: first},
		&servov1.CopyDeploymentRequest{Tenant: "acme", Deployment: first, To: "lab"},
		&servov1.PauseAssetRequest{Tenant: "acme", Asset: "s/one"},
		&servov1.ResumeAssetRequest{Tenant: "acme", Asset: "s/one"},
		&servov1.CancelRunRequest{Tenant: "acme", Run: cancelled.GetId()},
		&servov1.ForceCancelTaskRequest{Tenant: "acme", Run: held.GetId(), Task: tasks.GetTasks()[0].GetId()},
		&servov1.ReleaseLockRequest{Tenant: "acme", Key: locks.GetLocks()[0].GetKey()},
		&servov1.RepairRunRequest{Tenant: "acme", Run: locked.GetId()},
		&servov1.CreateConfigRequest{Tenant: "acme", Name: "nightly", Spec: spec},
		&servov1.UpdateConfigRequest{Tenant: "acme", Config: "nightly", Spec: other},
		&servov1.ApplyConfigsRequest{Tenant: "acme", Configs: []*servov1.ConfigInput{{Name: "nightly", Spec: spec}, {Name: "weekly", Spec: spec}}},
		&servov1.RescheduleConfigRequest{Tenant: "acme", Config: "nightly", Slot: timestamppb.New(time.Now().Add(time.Hour))},
		&servov1.PauseConfigRequest{Tenant: "acme", Config: "nightly"},
		&servov1.ResumeConfigRequest{Tenant: "acme", Config: "nightly"},
		&servov1.DeleteConfigRequest{Tenant: "acme", Config: "nightly"},
		&servov1.SetTemplateRequest{Tenant: "acme", Name: "own", Cron: "0 6 * * *"},
		&servov1.DeleteTemplateRequest{Tenant: "acme", Name: "own"},
		&servov1.SendEventRequest{Tenant: "acme", Name: "arrived", DedupeKey: "1"},
		&servov1.CreateSubscriptionRequest{Tenant: "acme", Name: "hook", Url: "https://example.com/hook"},
		&servov1.PauseSubscriptionRequest{Tenant: "acme", Subscription: "hook"},
		&servov1.ResumeSubscriptionRequest{Tenant: "acme", Subscription: "hook"},
		&servov1.ReplaySubscriptionRequest{Tenant: "acme", Subscription: "hook", From: "beginning"},
		&servov1.DeleteSubscriptionRequest{Tenant: "acme", Subscription: "hook"},
		&servov1.CreateAlertChannelRequest{Tenant: "acme", Name: "pager", Url: "http://127.0.0.1:1/closed"},
		&servov1.TestAlertChannelRequest{Tenant: "acme", Channel: "pager"},
		&servov1.DeleteAlertChannelRequest{Tenant: "acme", Channel: "pager"},
		&servov1.CreateKeyRequest{Tenant: "acme", Name: "ci", Role: "viewer"},
		&servov1.RotateKeyRequest{Tenant: "acme", Key: "ci", Overlap: durationpb.New(0)},
		&servov1.RevokeKeyRequest{Tenant: "acme", Key: "ci"},
		&servov1.TickRequest{},
		&servov1.CreatePoolRequest{Name: "cloud", Kind: servov1.Pool_PUSH, Url: "https://example.com", Owner: "acme"},
		&servov1.UpdatePoolRequest{Pool: "cloud", MaxConcurrency: proto.Int32(3)},
		&servov1.DeletePoolRequest{Pool: "cloud"},
		&servov1.CreateSigningKeyRequest{},
		&servov1.RotateSigningKeysRequest{},
		&servov1.RevokeSigningKeyRequest{Key: signing.GetKey().GetId()},
		&servov1.CreateReleaseRequest{Name: "r3", Manifest: manifestOf(t, manifestText)},
		&servov1.DeleteReleaseRequest{Release: "r3"},
		&servov1.CreateReleaseChannelRequest{Name: "stable", Release: "r1"},
		&servov1.UpdateReleaseChannelRequest{Channel: "stable", Default: true},
		&servov1.SetTenantLabelsRequest{Tenant: "brick", Labels: map[string]string{"tier": "internal"}},
		&servov1.FollowChannelByLabelRequest{Channel: "stable", Label: "tier=internal"},
		&servov1.FollowChannelRequest{Tenant: "acme", Workspace: "lab", Channel: "stable"},
		&servov1.RollChannelRequest{Channel: "stable", Release: "r2", Waves: []float64{50, 100}, First: "tier=internal"},
		&servov1.PauseRolloutRequest{Channel: "stable", Reason: "by hand"},
		&servov1.ResumeRolloutRequest{Channel: "stable"},
		&servov1.AdvanceRolloutRequest{Channel: "stable"},
		&servov1.RollBackChannelRequest{Channel: "stable", Reason: "by hand"},
		&servov1.DeleteReleaseChannelRequest{Channel: "unused"},
		&servov1.VerifyProjectionsRequest{},
		&servov1.PauseDispatchRequest{Reason: "by hand"},
		&servov1.ResumeDispatchRequest{},
	}
}

// TestChangesAreIdempotent makes every call of the contract that changes something twice with a
// key.
func TestChangesAreIdempotent(t *testing.T) {
	t.Parallel()
	b := setupBare(t, engine.Config{PollEvery: 50 * time.Millisecond, ForceCancelAfter: time.Nanosecond})
	for _, name := range []string{"acme", "brick"} {
		_, err := b.tenants.CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: name})
		require.NoError(t, err)
	}
	left := map[protoreflect.FullName]protoreflect.MethodDescriptor{}
	for _, method := range methods(t) {
		if intercept.TakesKey(access.Methods()[pathOf(method)]) && !intercept.KeepsOwnKey(pathOf(method)) {
			left[method.Input().FullName()] = method
		}
	}
	events := func() int {
		return b.db.Count(t, `SELECT (SELECT count(*) FROM servo.entity_events) + (SELECT count(*) FROM servo.platform_events) + (SELECT count(*) FROM servo.run_events)`)
	}
	harmless := []protoreflect.Name{"Tick", "RepairRun", "VerifyProjections", "TestAlertChannel"} // with nothing to do, or an effect elsewhere
	for _, req := range effects(t, b) {
		method := left[req.ProtoReflect().Descriptor().FullName()]
		require.NotNil(t, method, "%T", req)
		delete(left, req.ProtoReflect().Descriptor().FullName())
		call := func(key string) (proto.Message, metadata.MD, error) {
			answer, md := newAnswer(t, method), metadata.MD{}
			err := b.conn.Invoke(keyed(t.Context(), key), pathOf(method), req, answer, grpc.Header(&md))
			return answer, md, err
		}
		key := uuid.NewString()
		before := events()
		first, md, err := call(key)
		require.NoError(t, err, "%s", method.Name())
		require.False(t, replayed(md))
		after := events()
		if !contains(harmless, method.Name()) {
			require.Greater(t, after, before, "%s has an effect", method.Name())
		}
		again, md, err := call(key)
		require.NoError(t, err, "%s", method.Name())
		require.True(t, replayed(md), "%s", method.Name())
		require.True(t, proto.Equal(intercept.WithoutSecrets(first), again), "%s: %v is not %v", method.Name(), again, first)
		require.Equal(t, after, events(), "%s is made once", method.Name())
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.answered_calls WHERE key = $1`, key))
	}
	require.Empty(t, left, "a new call needs a request here that has an effect")
	require.Zero(t, b.db.PoolStats().Acquired, "every connection was given back")
	verifytest.Clean(t, b.db)
}

func contains(list []protoreflect.Name, name protoreflect.Name) bool {
	for _, one := range list {
		if one == name {
			return true
		}
	}
	return false
}

// TestSecretsAreMarked walks all answers: what has the name of a secret is not kept.
func TestSecretsAreMarked(t *testing.T) {
	t.Parallel()
	harmless := []protoreflect.FullName{ // names of things, and places
		"servo.v1.Asset.key", "servo.v1.Lock.key",
	}
	seen, marked := map[protoreflect.FullName]bool{}, 0
	var walk func(m protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] || m.IsMapEntry() { // a deployment's manifest is kept with it
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			field := m.Fields().Get(i)
			if intercept.SecretField(field) {
				marked++
				continue
			}
			if holds := field.Kind() == protoreflect.StringKind || field.Kind() == protoreflect.BytesKind; holds && intercept.SecretName.MatchString(string(field.Name())) {
				require.Contains(t, harmless, field.FullName(), "mark it with debug_redact, or list it here as harmless")
			}
			if field.Message() != nil {
				walk(field.Message())
			}
		}
	}
	for _, method := range methods(t) {
		if intercept.TakesKey(access.Methods()[pathOf(method)]) {
			walk(method.Output())
		}
	}
	require.Equal(t, 4, marked, "secrets of keys, channels, subscriptions, and keys of workers")
}
