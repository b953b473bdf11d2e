package api

import (
	"context"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/store"
)

// PreviewSchedule implements servov1.ConfigServiceServer.
func (s configService) PreviewSchedule(ctx context.Context, req *servov1.PreviewScheduleRequest) (*servov1.PreviewScheduleResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	after, err := timeOf("after", req.GetAfter())
	if err != nil {
		return nil, err
	}
	now, err := s.clock(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if after.IsZero() {
		after = now
	}
	r := &specReader{}
	tried := config.Spec{Pipeline: "none", Timezone: req.GetTimezone(), Jitter: r.duration("jitter", req.GetJitter())}
	if tried.Trigger, err = r.trigger(req.GetTrigger()); err != nil {
		return nil, err
	}
	if err := fault.FromViolations(r.found); err != nil {
		return nil, err
	}
	if err := s.resolveTemplate(ctx, tenant, &tried.Trigger); err != nil {
		return nil, err
	}
	tried = tried.Filled(now)
	if _, err := tried.Validate(); err != nil {
		return nil, err
	}
	tried.Jitter = 0 // the delay of a config depends on its id
	count := int(req.GetCount())
	if count == 0 {
		count = defaultPreview
	}
	slots, err := preview(store.ConfigView{ConfigState: store.ConfigState{Config: config.Config{Spec: tried}}}, after, count)
	if err != nil {
		return nil, err
	}
	return &servov1.PreviewScheduleResponse{Slots: slots.GetSlots(), Timezone: slots.GetTimezone(), Expression: tried.Trigger.Expression}, nil
}

// resolveTemplate sets the expression of a trigger from its template.
func (s configService) resolveTemplate(ctx context.Context, tenant id.Tenant, t *config.Trigger) error {
	if t.Template == "" {
		return nil
	}
	own, err := s.store.ListTemplates(ctx, tenant)
	if err != nil {
		return err
	}
	var names []string
	for _, template := range own {
		if template.Name == t.Template {
			t.Expression = template.Cron
			return nil
		}
		names = append(names, template.Name)
	}
	expression, builtIn := schedule.Resolve(t.Template)
	if !builtIn {
		return config.UnknownTemplate(t.Template, names)
	}
	t.Expression = expression
	return nil
}
