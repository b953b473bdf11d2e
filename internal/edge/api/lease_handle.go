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

// handle identifies a lease. Workers receive it as opaque text.
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

// encode returns the handle as text.
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

// leaseOf parses the handle of a lease. For a worker of one tenant, leases of other tenants are
// invalid.
func leaseOf(ctx context.Context, text string) (handle, error) {
	h, err := decodeHandle(text)
	if of := workerTenant(ctx); err == nil && of != (id.Tenant{}) && of != h.Tenant {
		return handle{}, brokenHandle()
	}
	return h, err
}

// poolsOf returns the pools whose leases a caller may report; nil permits all. They include pools that
// its tenant no longer owns, because tasks that were claimed before must end.
func poolsOf(ctx context.Context) []string {
	if worker := intercept.Caller(ctx); worker.Role == access.Worker {
		return append([]string{}, worker.Reports...)
	}
	return nil
}

// workerTenant returns the tenant of a worker of one tenant; zero for a worker of all tenants.
func workerTenant(ctx context.Context) id.Tenant {
	if worker := intercept.Caller(ctx); worker.Role == access.Worker {
		return worker.Tenant
	}
	return id.Tenant{}
}

// leasesOutsidePools returns the indexes of leases of pools that the caller's key is not for. The engine
// refuses expired leases.
func (s *Server) leasesOutsidePools(ctx context.Context, leases []handle) (map[int]bool, error) {
	mine := poolsOf(ctx)
	if mine == nil || len(leases) == 0 {
		return nil, nil //nolint:nilnil // no leases
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

// otherPool is the error of a report about a lease of another pool.
func otherPool() error {
	return fault.New(fault.Forbidden, "the API key is not for the pool of this lease", fault.Field("lease"), fault.Remedy("use the key with which the task was claimed"))
}

// decodeHandle parses the text of encode.
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
	return fault.New(fault.InvalidArgument, "is not a lease", fault.Field("lease"), fault.Remedy("send the lease as the claim returned it"))
}

// handleFor parses the handle of a call about one attempt, and compares it with the path.
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
			fault.Remedy("use the task of the lease: "+h.Task.String()))
	case h.attempt != attempt:
		return handle{}, fault.New(fault.InvalidArgument, "is the lease of another attempt", fault.Field("lease"),
			fault.Remedy("send the attempt as the claim returned it"), fault.Value("attempt", h.attempt))
	}
	return h, nil
}
