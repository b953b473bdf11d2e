package api

import (
	"context"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// keyService implements servo.v1.KeyService.
type keyService struct{ *Server }

// ownerOrAll is the tenant of that name, or the installation if there is none.
func (s *Server) ownerOrAll(ctx context.Context, name string) (id.Tenant, error) {
	if name == "" {
		return id.Tenant{}, nil
	}
	return s.tenants.ID(ctx, name)
}

// CreateKey implements servov1.KeyServiceServer.
func (s keyService) CreateKey(ctx context.Context, req *servov1.CreateKeyRequest) (*servov1.CreateKeyResponse, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	made, secret, err := s.engine.CreateAPIKey(ctx, owner, access.Settings{
		Name: req.GetName(), Role: access.Role(req.GetRole()), Workspace: req.GetWorkspace(), Pools: req.GetPools(),
	}, req.GetExpiresIn().AsDuration(), intercept.Meta(ctx))
	if err != nil {
		return nil, err
	}
	store.AfterCommit(ctx, func() { s.ForgetKey(made.Public) })
	return &servov1.CreateKeyResponse{Key: apiKeyToProto(made, access.Active), Secret: secret.Text()}, nil
}

func apiKeyToProto(k access.Key, state access.State) *servov1.Key {
	return &servov1.Key{
		Id: k.Public, Name: k.Name, Role: string(k.Role), Workspace: k.Workspace, Pools: k.Pools, State: servov1.Key_State(servov1.Key_State_value[string(state)]),
		CreatedBy: k.CreatedBy, CreatedAt: timestamp(k.CreatedAt), ExpiresAt: timestamp(k.ExpiresAt), RevokedAt: timestamp(k.RevokedAt), ReplacedBy: k.ReplacedBy,
	}
}

// ListKeys implements servov1.KeyServiceServer.
func (s keyService) ListKeys(ctx context.Context, req *servov1.ListKeysRequest) (*servov1.ListKeysResponse, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	var now time.Time
	keys, next, err := list(req, func(p page) (found []store.KeyView, err error) {
		var last id.Key
		if before, err := idPosition[id.Key](p); err != nil {
			return nil, err
		} else if before != nil {
			last = *before
		}
		found, now, err = s.store.Keys(ctx, owner, req.GetAll(), last, p.size+1)
		return found, err
	}, func(k store.KeyView) string { return k.ID.String() }, nil, func(k store.KeyView) (*servov1.Key, error) {
		out := apiKeyToProto(k.Key, k.StateAt(now))
		out.LastUsedAt = timestamp(k.LastUsedAt)
		return out, nil
	})
	return &servov1.ListKeysResponse{Keys: keys, NextPageToken: next}, err
}

// WhoAmI implements servov1.KeyServiceServer.
func (s keyService) WhoAmI(ctx context.Context, _ *servov1.WhoAmIRequest) (*servov1.Caller, error) {
	caller := intercept.Caller(ctx)
	answer := &servov1.Caller{
		Actor: caller.Actor, Role: string(caller.Role), Tenant: caller.TenantName, Pools: caller.Pools,
		Open: s.options.Open, Development: s.options.Development, ExpiresAt: timestamp(caller.ExpiresAt),
	}
	if len(caller.Workspaces) > 0 {
		answer.Workspace = caller.Workspaces[0]
	}
	for _, g := range caller.Grants {
		answer.Grants = append(answer.Grants, &servov1.Grant{Role: string(g.Role), Tenant: g.Tenant, Workspace: g.Workspace})
	}
	for _, p := range caller.Role.Permissions() {
		answer.Permissions = append(answer.Permissions, string(p))
	}
	return answer, nil
}

// RotateKey implements servov1.KeyServiceServer.
func (s keyService) RotateKey(ctx context.Context, req *servov1.RotateKeyRequest) (*servov1.CreateKeyResponse, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	overlap := access.DefaultOverlap
	if req.GetOverlap() != nil {
		overlap = req.GetOverlap().AsDuration()
	}
	made, before, secret, err := s.engine.RotateAPIKey(ctx, owner, req.GetKey(), overlap, intercept.Meta(ctx))
	if err != nil {
		return nil, err
	}
	store.AfterCommit(ctx, func() { s.ForgetKey(before.Public) })
	return &servov1.CreateKeyResponse{Key: apiKeyToProto(made, access.Active), Secret: secret.Text()}, nil
}

// RevokeKey implements servov1.KeyServiceServer.
func (s keyService) RevokeKey(ctx context.Context, req *servov1.RevokeKeyRequest) (*servov1.Key, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	revoked, err := s.engine.RevokeAPIKey(ctx, owner, req.GetKey(), req.GetReason(), intercept.Meta(ctx))
	if err != nil {
		return nil, err
	}
	store.AfterCommit(ctx, func() { s.ForgetKey(revoked.Public) })
	return apiKeyToProto(revoked, revoked.StateAt(time.Time{})), nil
}
