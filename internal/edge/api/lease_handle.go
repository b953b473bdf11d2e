package api

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// handle is a lease as workers carry it: opaque to them, and all that is needed to find it.
type handle struct {
	store.TaskKey

	attempt int32
	token   int64
}

// The layout of a handle: version, tenant, run, task, attempt, token.
const (
	handleVersion = 1
	handleBytes   = 1 + 3*16 + 4 + 8
)

// encode writes the handle as text.
func (h handle) encode() string {
	raw := make([]byte, 0, handleBytes)
	raw = append(raw, handleVersion)
	raw = append(raw, h.Tenant.UUID[:]...)
	raw = append(raw, h.Run.UUID[:]...)
	raw = append(raw, h.Task.UUID[:]...)
	raw = binary.BigEndian.AppendUint32(raw, uint32(h.attempt)) //nolint:gosec // bits, not a number
	raw = binary.BigEndian.AppendUint64(raw, uint64(h.token))   //nolint:gosec // bits, not a number
	return base64.RawURLEncoding.EncodeToString(raw)
}

// leaseOf reads the lease that a caller shows. To a worker of one tenant those of others are
// none.
func leaseOf(ctx context.Context, text string) (handle, error) {
	h, err := decodeHandle(text)
	if of := workerTenant(ctx); err == nil && of != (id.Tenant{}) && of != h.Tenant {
		return handle{}, brokenHandle()
	}
	return h, err
}

// poolsOf are the pools whose leases a caller may report; nil is all of them. They include pools
// that its tenant no longer owns: what it claimed while it could it may also end.
func poolsOf(ctx context.Context) []string {
	if worker := intercept.Caller(ctx); worker.Role == access.Worker {
		return append([]string{}, worker.Reports...)
	}
	return nil
}

// workerTenant is the tenant of a caller that works for one tenant only; zero is for all.
func workerTenant(ctx context.Context) id.Tenant {
	if worker := intercept.Caller(ctx); worker.Role == access.Worker {
		return worker.Tenant
	}
	return id.Tenant{}
}

// strangers are the leases that a caller may not speak of: those of other pools than its own. A
// lease that is over is left to who looks at leases anyway.
func (s *Server) strangers(ctx context.Context, leases []handle) (map[int]bool, error) {
	mine := poolsOf(ctx)
	if mine == nil || len(leases) == 0 {
		return nil, nil //nolint:nilnil // none is a good answer
	}
	keys := make([]store.PulseKey, len(leases))
	for i, h := range leases {
		keys[i] = store.PulseKey{TaskKey: h.TaskKey, Token: h.token}
	}
	pools, err := s.store.LeasePools(ctx, keys)
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for i, pool := range pools {
		if pool != "" && !slices.Contains(mine, pool) {
			found[i] = true
		}
	}
	return found, nil
}

// otherPool refuses what is said of a lease of another pool.
func otherPool() error {
	return fault.New(fault.Forbidden, "this key is not for the pool of the lease", fault.Field("lease"), fault.Remedy("report with the key that the task was claimed with"))
}

// decodeHandle reads what encode wrote.
func decodeHandle(text string) (handle, error) {
	var raw [handleBytes + 1]byte
	if base64.RawURLEncoding.DecodedLen(len(text)) != handleBytes {
		return handle{}, brokenHandle()
	}
	n, err := base64.RawURLEncoding.Strict().Decode(raw[:], []byte(text))
	if err != nil || n != handleBytes || raw[0] != handleVersion {
		return handle{}, brokenHandle()
	}
	return handle{
		TaskKey: store.TaskKey{
			Tenant: id.Of[id.Tenant](uuid.UUID(raw[1:17])), Run: id.Of[id.Run](uuid.UUID(raw[17:33])), Task: id.Of[id.Task](uuid.UUID(raw[33:49])),
		},
		attempt: int32(binary.BigEndian.Uint32(raw[49:53])), //nolint:gosec // bits, not a number
		token:   int64(binary.BigEndian.Uint64(raw[53:61])), //nolint:gosec // bits, not a number
	}, nil
}

func brokenHandle() error {
	return fault.New(fault.InvalidArgument, "is not a lease", fault.Field("lease"), fault.Remedy("send the lease as the claim gave it"))
}

// handleFor reads the handle of a call about one attempt, which its path names too.
func handleFor(ctx context.Context, text, task string, attempt int32) (handle, error) {
	h, err := leaseOf(ctx, text)
	if err != nil {
		return handle{}, err
	}
	named, err := id.Parse[id.Task]("task", task)
	switch {
	case err != nil:
		return handle{}, err
	case h.Task != named:
		return handle{}, fault.New(fault.InvalidArgument, "is the lease of another task", fault.Field("lease"),
			fault.Remedy("name the task that the lease is for: "+h.Task.String()))
	case h.attempt != attempt:
		return handle{}, fault.New(fault.InvalidArgument, "is the lease of another attempt", fault.Field("lease"),
			fault.Remedy("send the attempt as the claim gave it"), fault.Value("attempt", h.attempt))
	}
	return h, nil
}
