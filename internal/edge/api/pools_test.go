package api_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/engine"
)

func pushRequest(name string) *servov1.CreatePoolRequest {
	return &servov1.CreatePoolRequest{Name: name, Kind: servov1.Pool_PUSH, Url: "https://workers.example.com/servo"}
}

func TestPools(t *testing.T) {
	t.Parallel()

	t.Run("a push pool comes with the keys of its workers, once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pools := servov1.NewPoolServiceClient(b.conn)
		made, err := pools.CreatePool(t.Context(), pushRequest("gpu"))
		require.NoError(t, err)
		p := made.GetPool()
		require.Equal(t, "gpu PUSH https://workers.example.com/servo", p.GetName()+" "+p.GetKind().String()+" "+p.GetUrl())
		require.Equal(t, int32(-1), p.GetMaxConcurrency())
		require.Equal(t, 30*time.Second, p.GetTimeout().AsDuration())
		require.True(t, p.GetConfigured())
		require.Len(t, made.GetWorkerKeys(), 1)
		key, err := push.ParseWorkerKey(made.GetWorkerKeys()[0].GetKey())
		require.NoError(t, err)
		require.Equal(t, made.GetWorkerKeys()[0].GetKeyId(), key.ID)

		other, err := pools.CreatePool(t.Context(), pushRequest("tpu"))
		require.NoError(t, err)
		require.NotEqual(t, made.GetWorkerKeys()[0].GetKey(), other.GetWorkerKeys()[0].GetKey(), "each pool has its own")
		verifytest.Clean(t, b.db)
	})

	t.Run("only given fields change", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pools := servov1.NewPoolServiceClient(b.conn)
		req := pushRequest("gpu")
		req.MaxConcurrency, req.RatePerSecond, req.Owner = new(int32(5)), 0.5, "acme"
		_, err := pools.CreatePool(t.Context(), req)
		require.NoError(t, err)
		p, err := pools.UpdatePool(t.Context(), &servov1.UpdatePoolRequest{Pool: "gpu", Version: 1, MaxConcurrency: new(int32(0))})
		require.NoError(t, err)
		require.Equal(t, int32(0), p.GetMaxConcurrency())
		require.InDelta(t, 0.5, p.GetRatePerSecond(), 0)
		require.Equal(t, "acme", p.GetOwner())
		p, err = pools.UpdatePool(t.Context(), &servov1.UpdatePoolRequest{Pool: "gpu", Owner: new(""), Timeout: durationpb.New(1500 * time.Millisecond)})
		require.NoError(t, err)
		require.Empty(t, p.GetOwner())
		require.Equal(t, 2*time.Second, p.GetTimeout().AsDuration())
		require.Equal(t, int32(3), p.GetVersion())

		_, err = pools.UpdatePool(t.Context(), &servov1.UpdatePoolRequest{Pool: "gpu", Version: 1, MaxConcurrency: new(int32(9))})
		requireRefused(t, err, codes.FailedPrecondition, "version")
		_, err = pools.DeletePool(t.Context(), &servov1.DeletePoolRequest{Pool: "gpu", Version: 3})
		require.NoError(t, err)
		_, err = pools.GetPool(t.Context(), &servov1.GetPoolRequest{Pool: "gpu"})
		requireRefused(t, err, codes.NotFound, "pool")
	})

	t.Run("a pool without configuration exists when it is used", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		b.trigger(t, "single")
		b.one(t)
		b.admit(t)
		pools := servov1.NewPoolServiceClient(b.conn)
		p, err := pools.GetPool(t.Context(), &servov1.GetPoolRequest{Pool: "default"})
		require.NoError(t, err)
		require.False(t, p.GetConfigured())
		require.Equal(t, servov1.Pool_PULL, p.GetKind())
		require.Equal(t, int64(2), p.GetQueued()+p.GetLeased())
		all, err := pools.ListPools(t.Context(), &servov1.ListPoolsRequest{})
		require.NoError(t, err)
		require.Len(t, all.GetPools(), 1)
	})

	t.Run("refusals name the field", func(t *testing.T) {
		t.Parallel()
		b := setupBare(t, engine.Config{})
		pools := servov1.NewPoolServiceClient(b.conn)
		for field, req := range map[string]*servov1.CreatePoolRequest{
			"name":            {Name: "Not A Name", Kind: servov1.Pool_PULL},
			"kind":            {Name: "a"},
			"url":             {Name: "a", Kind: servov1.Pool_PUSH, Url: "file:///etc/passwd"},
			"rate_per_second": {Name: "a", Kind: servov1.Pool_PULL, RatePerSecond: 3},
			"max_concurrency": {Name: "a", Kind: servov1.Pool_PULL, MaxConcurrency: new(int32(-2))},
			"timeout":         {Name: "a", Kind: servov1.Pool_PULL, Timeout: durationpb.New(time.Hour)},
		} {
			_, err := pools.CreatePool(t.Context(), req)
			requireRefused(t, err, codes.InvalidArgument, field)
		}
		_, err := pools.CreatePool(t.Context(), &servov1.CreatePoolRequest{Name: "a", Kind: servov1.Pool_PULL, Owner: "missing"})
		requireRefused(t, err, codes.NotFound, "owner")
	})
}

func TestSigningKeys(t *testing.T) {
	t.Parallel()

	t.Run("a rotation shows each pool's key once, and no list shows any", func(t *testing.T) {
		t.Parallel()
		b := setupBare(t, engine.Config{})
		pools, keys := servov1.NewPoolServiceClient(b.conn), servov1.NewSigningKeyServiceClient(b.conn)
		made, err := pools.CreatePool(t.Context(), pushRequest("gpu"))
		require.NoError(t, err)
		rotated, err := keys.RotateSigningKeys(t.Context(), &servov1.RotateSigningKeysRequest{})
		require.NoError(t, err)
		require.Equal(t, servov1.SigningKey_PENDING, rotated.GetKey().GetState())
		require.Len(t, rotated.GetWorkerKeys(), 1)
		require.Equal(t, "gpu", rotated.GetWorkerKeys()[0].GetPool())

		listed, err := keys.ListSigningKeys(t.Context(), &servov1.ListSigningKeysRequest{})
		require.NoError(t, err)
		require.Len(t, listed.GetKeys(), 2)
		require.Equal(t, "RETIRING true", listed.GetKeys()[0].GetState().String()+" "+text(listed.GetKeys()[0].GetSigning()))
		require.False(t, listed.GetKeys()[1].GetSigning())
		shown, err := protojson.Marshal(listed)
		require.NoError(t, err)
		for _, k := range append(made.GetWorkerKeys(), rotated.GetWorkerKeys()...) {
			_, secret, _ := strings.Cut(k.GetKey(), ":")
			require.NotContains(t, string(shown), secret)
			for _, record := range b.log.all() {
				require.NotContains(t, record, secret)
			}
		}

		now, err := keys.RotateSigningKeys(t.Context(), &servov1.RotateSigningKeysRequest{Lead: durationpb.New(0), Overlap: durationpb.New(time.Minute)})
		require.NoError(t, err)
		require.True(t, now.GetKey().GetSigning())
		verifytest.Clean(t, b.db)
	})

	t.Run("keys are made and revoked", func(t *testing.T) {
		t.Parallel()
		b := setupBare(t, engine.Config{})
		keys := servov1.NewSigningKeyServiceClient(b.conn)
		made, err := keys.CreateSigningKey(t.Context(), &servov1.CreateSigningKeyRequest{Lead: durationpb.New(0)})
		require.NoError(t, err)
		require.Empty(t, made.GetWorkerKeys(), "no pool is called yet")
		revoked, err := keys.RevokeSigningKey(t.Context(), &servov1.RevokeSigningKeyRequest{Key: made.GetKey().GetId(), Reason: "leaked"})
		require.NoError(t, err)
		require.Equal(t, servov1.SigningKey_REVOKED, revoked.GetState())
		_, err = keys.RevokeSigningKey(t.Context(), &servov1.RevokeSigningKeyRequest{Key: "sk-missing"})
		requireRefused(t, err, codes.NotFound, "key")
		_, err = keys.RotateSigningKeys(t.Context(), &servov1.RotateSigningKeysRequest{Overlap: durationpb.New(time.Second)})
		requireRefused(t, err, codes.InvalidArgument, "overlap")
	})
}

func text(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// all is everything that was logged, as text.
func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, record := range r.records {
		line := record.Message
		record.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
		lines = append(lines, line)
	}
	return lines
}
