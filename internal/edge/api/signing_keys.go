package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// signingKeyService implements servo.v1.SigningKeyService. Secrets go out through workerKey
// alone.
type signingKeyService struct{ *Server }

// CreateSigningKey implements servov1.SigningKeyServiceServer.
func (s signingKeyService) CreateSigningKey(ctx context.Context, req *servov1.CreateSigningKeyRequest) (*servov1.CreateSigningKeyResponse, error) {
	made, err := s.engine.CreateKey(ctx, orElse(req.GetLead(), platform.DefaultKeyLead), intercept.Meta(ctx))
	return s.made(ctx, made, err)
}

// RotateSigningKeys implements servov1.SigningKeyServiceServer.
func (s signingKeyService) RotateSigningKeys(ctx context.Context, req *servov1.RotateSigningKeysRequest) (*servov1.CreateSigningKeyResponse, error) {
	made, err := s.engine.RotateKeys(ctx, orElse(req.GetLead(), platform.DefaultKeyLead), orElse(req.GetOverlap(), platform.DefaultKeyOverlap), intercept.Meta(ctx))
	return s.made(ctx, made, err)
}

// orElse returns a duration, or a default if it is not set. Zero is a set value.
func orElse(d *durationpb.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.AsDuration()
}

// made returns a new key with the worker keys of each push pool.
func (s signingKeyService) made(ctx context.Context, key push.Key, err error) (*servov1.CreateSigningKeyResponse, error) {
	if err != nil {
		return nil, err
	}
	listed, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	answer := &servov1.CreateSigningKeyResponse{}
	for _, k := range listed {
		if k.GetId() == key.ID {
			answer.Key = k
		}
	}
	pools, err := s.store.Pools(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range pools {
		if p.Kind == platform.Push {
			answer.WorkerKeys = append(answer.WorkerKeys, workerKey(key, p.Name))
		}
	}
	return answer, nil
}

// ListSigningKeys implements servov1.SigningKeyServiceServer.
func (s signingKeyService) ListSigningKeys(ctx context.Context, _ *servov1.ListSigningKeysRequest) (*servov1.ListSigningKeysResponse, error) {
	keys, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	return &servov1.ListSigningKeysResponse{Keys: keys}, nil
}

func (s signingKeyService) list(ctx context.Context) ([]*servov1.SigningKey, error) {
	rows, now, err := s.store.SigningKeys(ctx)
	if err != nil {
		return nil, err
	}
	ring := make(push.Keyring, len(rows))
	for i, row := range rows {
		ring[i] = push.Key{ID: row.ID, Secret: row.Secret, CreatedAt: row.CreatedAt, ActiveAt: row.SignsFrom, ExpiresAt: row.ExpiresAt, RevokedAt: row.RevokedAt}
	}
	signing, _ := ring.Signing(now) // none is no error here
	keys := make([]*servov1.SigningKey, len(rows))
	for i, row := range rows {
		keys[i] = keyToProto(row, now)
		keys[i].Signing = row.ID == signing.ID
	}
	return keys, nil
}

func keyToProto(k store.SigningKey, now time.Time) *servov1.SigningKey {
	return &servov1.SigningKey{
		Id: k.ID, State: servov1.SigningKey_State(servov1.SigningKey_State_value[string(k.StateAt(now))]), CreatedAt: timestamp(k.CreatedAt),
		SignsFrom: timestamp(k.SignsFrom), ExpiresAt: timestamp(k.ExpiresAt), RevokedAt: timestamp(k.RevokedAt),
	}
}

// RevokeSigningKey implements servov1.SigningKeyServiceServer.
func (s signingKeyService) RevokeSigningKey(ctx context.Context, req *servov1.RevokeSigningKeyRequest) (*servov1.SigningKey, error) {
	revoked, err := s.engine.RevokeKey(ctx, req.GetKey(), req.GetReason(), intercept.Meta(ctx))
	if err != nil {
		return nil, err
	}
	return keyToProto(revoked, revoked.RevokedAt), nil
}
