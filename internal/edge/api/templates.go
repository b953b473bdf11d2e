package api

import (
	"cmp"
	"context"
	"slices"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
)

// templateService implements servo.v1.TemplateService.
type templateService struct{ *Server }

// ListTemplates implements servov1.TemplateServiceServer.
func (s templateService) ListTemplates(ctx context.Context, req *servov1.ListTemplatesRequest) (*servov1.ListTemplatesResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	own, err := s.store.ListTemplates(ctx, tenant)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListTemplatesResponse{}
	for _, t := range schedule.Templates() {
		answer.Templates = append(answer.Templates, &servov1.Template{Name: t.Name, Cron: t.Expression, Description: t.Description, BuiltIn: true})
	}
	for _, t := range own {
		answer.Templates = append(answer.Templates, templateToProto(t))
	}
	slices.SortFunc(answer.GetTemplates(), func(a, b *servov1.Template) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return answer, nil
}

// SetTemplate implements servov1.TemplateServiceServer.
func (s templateService) SetTemplate(ctx context.Context, req *servov1.SetTemplateRequest) (*servov1.SetTemplateResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	set, changed, err := s.engine.SetTemplate(ctx, engine.SetTemplate{
		Tenant: tenant, Name: req.GetName(), Cron: req.GetCron(), Description: req.GetDescription(), Version: req.GetVersion(), Meta: intercept.Meta(ctx),
	})
	if err != nil {
		return nil, err
	}
	return &servov1.SetTemplateResponse{Template: templateToProto(set), ConfigsChanged: int32(changed)}, nil //nolint:gosec // at most 10,000
}

// DeleteTemplate implements servov1.TemplateServiceServer.
func (s templateService) DeleteTemplate(ctx context.Context, req *servov1.DeleteTemplateRequest) (*servov1.DeleteTemplateResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	return &servov1.DeleteTemplateResponse{}, s.engine.DeleteTemplate(ctx, tenant, req.GetName(), intercept.Meta(ctx))
}

func templateToProto(t config.Template) *servov1.Template {
	return &servov1.Template{
		Name: t.Name, Cron: t.Cron, Description: t.Description, Version: t.Version, ChangedBy: t.ChangedBy,
		CreatedAt: timestamp(t.CreatedAt), UpdatedAt: timestamp(t.UpdatedAt),
	}
}
