package api

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// configService implements servo.v1.ConfigService.
type configService struct{ *Server }

// configRequest is about one config.
type configRequest interface {
	GetTenant() string
	GetConfig() string
	GetWorkspace() string
}

// find returns the config that a request names by id or by name. A name may look like an id.
func (s configService) find(ctx context.Context, req configRequest) (store.ConfigView, error) {
	return s.findBy(ctx, req, s.store.GetConfig)
}

// findAny also returns deleted configs, by id only: their names may be used again.
func (s configService) findAny(ctx context.Context, req configRequest) (store.ConfigView, error) {
	return s.findBy(ctx, req, s.store.GetAnyConfig)
}

func (s configService) findBy(ctx context.Context, req configRequest, byID func(context.Context, store.ConfigKey) (store.ConfigView, error)) (store.ConfigView, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return store.ConfigView{}, err
	}
	if parsed, err := uuid.Parse(req.GetConfig()); err == nil {
		found, err := byID(ctx, store.ConfigKey{Tenant: tenant, Config: id.Of[id.Config](parsed)})
		if err == nil {
			err = intercept.Reaches(ctx, found.WorkspaceName, "config", req.GetConfig())
		}
		if !fault.Is(err, fault.NotFound) {
			return found, err
		}
	}
	if config.ValidateName(req.GetConfig()) != nil { // no config can have this name
		return store.ConfigView{}, fault.New(fault.NotFound, fmt.Sprintf("no config %.100q", req.GetConfig()), fault.Field("config"), fault.Remedy("list them with servo configs list"))
	}
	return s.store.GetConfigByName(ctx, tenant, orDefault(req.GetWorkspace()), req.GetConfig())
}

// CreateConfig implements servov1.ConfigServiceServer.
func (s configService) CreateConfig(ctx context.Context, req *servov1.CreateConfigRequest) (*servov1.Config, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	spec, err := specOf("spec", req.GetSpec())
	if err != nil {
		return nil, err
	}
	return s.save(ctx, req.GetTenant(), engine.SaveConfigs{
		Tenant: tenant, Workspace: req.GetWorkspace(), Reason: req.GetReason(), Meta: intercept.Meta(ctx),
		Configs: []engine.SaveConfig{{Name: req.GetName(), Spec: spec, Enabled: req.Enabled, Mode: engine.SaveNew}},
	})
}

// save saves one config.
func (s configService) save(ctx context.Context, tenant string, r engine.SaveConfigs) (*servov1.Config, error) {
	saved, err := s.engine.SaveConfigs(ctx, r)
	if err != nil {
		return nil, inSpec(err)
	}
	return configToProto(tenant, saved[0].After)
}

// saveInputs saves the configs of a request. Errors name the config by its index.
func (s *Server) saveInputs(ctx context.Context, r engine.SaveConfigs, inputs []*servov1.ConfigInput) ([]engine.SavedConfig, error) {
	for i, c := range inputs {
		spec, err := specOf(fmt.Sprintf("configs[%d].spec", i), c.GetSpec())
		if err != nil {
			return nil, err
		}
		r.Configs = append(r.Configs, engine.SaveConfig{Name: c.GetName(), Spec: spec, Enabled: c.Enabled, Version: c.GetVersion()})
	}
	saved, err := s.engine.SaveConfigs(ctx, r)
	if err != nil && len(r.Configs) == 1 && ofConfig(err) {
		err = fault.Under("configs[0]", err) // with several configs the engine adds the index
	}
	return saved, inSpec(err)
}

// ApplyConfigs implements servov1.ConfigServiceServer.
func (s configService) ApplyConfigs(ctx context.Context, req *servov1.ApplyConfigsRequest) (*servov1.ApplyConfigsResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	r := engine.SaveConfigs{
		Tenant: tenant, Workspace: req.GetWorkspace(), Reason: req.GetReason(), DryRun: req.GetDryRun(), Coming: req.GetComing(), Meta: intercept.Meta(ctx),
	}
	saved, err := s.saveInputs(ctx, r, req.GetConfigs())
	if err != nil {
		return nil, err
	}
	answer := &servov1.ApplyConfigsResponse{Configs: make([]*servov1.AppliedConfig, len(saved))}
	for i, one := range saved {
		if answer.Configs[i], err = appliedToProto(one); err != nil {
			return nil, err
		}
		switch answer.GetConfigs()[i].GetAction() {
		case servov1.AppliedConfig_CREATED:
			answer.Created++
		case servov1.AppliedConfig_CHANGED:
			answer.Changed++
		default:
			answer.Unchanged++
		}
	}
	return answer, nil
}

// appliedToProto maps a saved config. Only changed configs have their definition.
func appliedToProto(saved engine.SavedConfig) (*servov1.AppliedConfig, error) {
	out := &servov1.AppliedConfig{Name: saved.After.Name, Version: saved.After.Version, Action: servov1.AppliedConfig_UNCHANGED, Warnings: saved.After.Spec.Warnings()}
	if !saved.Changed {
		return out, nil
	}
	var err error
	if out.Action = servov1.AppliedConfig_CREATED; saved.Before != nil {
		out.Action = servov1.AppliedConfig_CHANGED
		if out.Before, err = definition(saved.Before.Config); err != nil {
			return nil, err
		}
	}
	out.After, err = definition(saved.After.Config)
	return out, err
}

// ListConfigs implements servov1.ConfigServiceServer. Without a tenant it lists the configs of all
// tenants.
func (s configService) ListConfigs(ctx context.Context, req *servov1.ListConfigsRequest) (*servov1.ListConfigsResponse, error) {
	tenant, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	var recent map[id.Config][]store.RecentSlot
	configs, next, err := list(req, func(p page) ([]store.ConfigView, error) {
		configs, err := s.listConfigs(ctx, tenant, req, p)
		if err == nil && req.GetWithRecent() {
			recent, err = s.store.RecentSlots(ctx, tenant, mapAll(configs, store.ConfigView.Key))
		}
		return configs, err
	}, func(c store.ConfigView) string {
		if req.GetTenant() == "" {
			return c.Tenant.String() + " " + c.ID.String()
		}
		return c.ID.String()
	}, func(c store.ConfigView) int { return len(c.Spec.Parameters) }, func(c store.ConfigView) (*servov1.Config, error) {
		name, err := s.tenants.Name(ctx, c.Tenant)
		if err != nil {
			return nil, err
		}
		out, err := configToProto(name, c.ConfigState)
		if err != nil {
			return nil, err
		}
		out.Recent = mapAll(recent[c.ID], recentToProto)
		return out, nil
	})
	return &servov1.ListConfigsResponse{Configs: configs, NextPageToken: next}, err
}

// listConfigs reads a page and one more entry, of a tenant or, for the zero tenant, of all.
func (s configService) listConfigs(ctx context.Context, tenant id.Tenant, req *servov1.ListConfigsRequest, p page) ([]store.ConfigView, error) {
	filter := store.ConfigFilter{Workspace: req.GetWorkspace(), Pipeline: req.GetPipeline(), Prefix: req.GetNamePrefix(), Failing: req.GetFailing(), Deleted: req.GetDeleted()}
	if req.GetState() != servov1.Config_STATE_UNSPECIFIED {
		filter.State = req.GetState().String()
	}
	var err error
	if filter.Labels, err = labelsOf(req.GetLabel()); err != nil {
		return nil, err
	}
	if tenant != (id.Tenant{}) {
		after, err := idPosition[id.Config](p)
		if err != nil {
			return nil, err
		}
		if after == nil {
			after = &id.Config{}
		}
		return s.store.ListConfigs(ctx, tenant, filter, *after, p.size+1)
	}
	var after store.ConfigKey
	if p.after != "" {
		owner, config, _ := strings.Cut(p.after, " ")
		if after.Tenant, err = id.Parse[id.Tenant]("page_token", owner); err == nil {
			after.Config, err = id.Parse[id.Config]("page_token", config)
		}
		if err != nil {
			return nil, notAToken()
		}
	}
	return s.store.ListAllConfigs(ctx, filter, after, p.size+1)
}

func recentToProto(r store.RecentSlot) *servov1.RecentSlot {
	slot := &servov1.RecentSlot{Slot: timestamp(r.At), Outcome: servov1.Slots_Outcome(r.Outcome), Count: r.Slots, State: servov1.Run_State(r.State), Triggered: r.Triggered}
	if r.Outcome == config.Fired && r.Run != nil {
		slot.Run = r.Run.String()
	}
	return slot
}

// labelsOf parses labels of the form name=value.
func labelsOf(pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	labels := make(map[string]string, len(pairs))
	for i, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		_, twice := labels[name]
		if !ok || name == "" || twice || strings.ContainsRune(pair, 0) {
			return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("%.100q is not name=value, or a duplicate", pair),
				fault.Field(fmt.Sprintf("label[%d]", i)), fault.Remedy("use a label such as provider=AWS"))
		}
		labels[name] = value
	}
	return labels, nil
}

// GetConfig implements servov1.ConfigServiceServer.
func (s configService) GetConfig(ctx context.Context, req *servov1.GetConfigRequest) (*servov1.Config, error) {
	found, err := s.findAny(ctx, req)
	if err != nil {
		return nil, err
	}
	return configToProto(req.GetTenant(), found.ConfigState)
}

// change changes the config that a request names.
func (s configService) change(ctx context.Context, req configRequest, version int32, reason string, do func(context.Context, engine.ChangeConfig) (store.ConfigState, error)) (*servov1.Config, error) {
	found, err := s.find(ctx, req)
	if err != nil {
		return nil, err
	}
	changed, err := do(ctx, engine.ChangeConfig{Tenant: found.Tenant, Config: found.ID, Version: version, Reason: reason, Meta: intercept.Meta(ctx)})
	if err != nil {
		return nil, err
	}
	return configToProto(req.GetTenant(), changed)
}

// DeleteConfig implements servov1.ConfigServiceServer.
func (s configService) DeleteConfig(ctx context.Context, req *servov1.DeleteConfigRequest) (*servov1.DeleteConfigResponse, error) {
	_, err := s.change(ctx, req, req.GetVersion(), req.GetReason(), func(ctx context.Context, r engine.ChangeConfig) (store.ConfigState, error) {
		r.Force = req.GetForce()
		return s.engine.DeleteConfig(ctx, r)
	})
	return &servov1.DeleteConfigResponse{}, err
}

// PauseConfig implements servov1.ConfigServiceServer.
func (s configService) PauseConfig(ctx context.Context, req *servov1.PauseConfigRequest) (*servov1.Config, error) {
	return s.change(ctx, req, 0, req.GetReason(), s.engine.PauseConfig)
}

// ResumeConfig implements servov1.ConfigServiceServer.
func (s configService) ResumeConfig(ctx context.Context, req *servov1.ResumeConfigRequest) (*servov1.Config, error) {
	return s.change(ctx, req, 0, req.GetReason(), s.engine.ResumeConfig)
}

// RescheduleConfig implements servov1.ConfigServiceServer.
func (s configService) RescheduleConfig(ctx context.Context, req *servov1.RescheduleConfigRequest) (*servov1.Config, error) {
	to, err := timeOf("slot", req.GetSlot())
	if err != nil {
		return nil, err
	}
	return s.change(ctx, req, req.GetVersion(), req.GetReason(), func(ctx context.Context, r engine.ChangeConfig) (store.ConfigState, error) {
		return s.engine.MoveSlot(ctx, r, to)
	})
}

// TriggerConfig implements servov1.ConfigServiceServer.
func (s configService) TriggerConfig(ctx context.Context, req *servov1.TriggerConfigRequest) (*servov1.TriggerRunResponse, error) {
	found, err := s.find(ctx, req)
	if err != nil {
		return nil, err
	}
	key, err := intercept.IdempotencyKey(ctx)
	if err != nil {
		return nil, err
	}
	parameters, err := jsonOfStruct("parameters", req.GetParameters())
	if err != nil {
		return nil, err
	}
	triggered, err := s.engine.TriggerConfig(ctx, found.Tenant, found.ID, engine.Trigger{
		TriggeredBy: intercept.Caller(ctx).Actor, Note: req.GetNote(), IdempotencyKey: key, Meta: intercept.Meta(ctx), Parameters: parameters,
		WaitForLock: req.GetWaitForLock().AsDuration(), WaitForQuota: req.GetWaitForQuota(), Queue: req.GetQueue(),
		Partitions: req.GetPartitions(),
	})
	if err != nil {
		return nil, err
	}
	return runService{s.Server}.triggered(ctx, req.GetTenant(), found.Tenant, triggered)
}

const defaultPreview = 10

// lastSlot bounds previews: with the longest jitter it is still a valid timestamp.
var lastSlot = time.Date(9999, 12, 30, 0, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a constant

// PreviewConfig implements servov1.ConfigServiceServer.
func (s configService) PreviewConfig(ctx context.Context, req *servov1.PreviewConfigRequest) (*servov1.PreviewConfigResponse, error) {
	found, err := s.find(ctx, req)
	if err != nil {
		return nil, err
	}
	after, err := timeOf("after", req.GetAfter())
	if err != nil {
		return nil, err
	}
	if after.IsZero() {
		// Decided slots are past. A config that does not fire has decided none for long.
		if after, err = s.clock(ctx, found.Tenant); err != nil {
			return nil, err
		}
		if found.DecidedUntil.After(after) {
			after = found.DecidedUntil
		}
	}
	count := int(req.GetCount())
	if count == 0 {
		count = defaultPreview
	}
	answer, err := preview(found, after, count)
	if err != nil {
		return nil, err
	}
	return answer, s.previewPartitions(ctx, found, answer)
}

// previewPartitions adds the partitions that each slot covers if all of them fire.
func (s configService) previewPartitions(ctx context.Context, c store.ConfigView, answer *servov1.PreviewConfigResponse) error {
	active, err := s.manifests.active(ctx, c.Tenant, c.WorkspaceName)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) {
		return nil // without code there are no partitions
	}
	if err != nil {
		return err
	}
	schemes := active.planner.SchemesOf(plan.Request{Pipeline: c.Spec.Pipeline})
	if len(schemes) == 0 {
		return nil
	}
	of, covered := c.Config, c.CoveredUntil
	if c.LastSlot.After(of.CreatedAt) {
		of.CreatedAt = c.LastSlot
	}
	for _, slot := range answer.GetSlots() {
		coverage := of.Cover(schemes, covered, slot.GetSlot().AsTime())
		if slot.NoPartition = coverage.None; coverage.None {
			continue
		}
		slot.Partitions, covered = coverage.Names(schemes), coverage.Until
	}
	return nil
}

// preview lists the slots after a time. A rescheduled slot replaces the slots before it.
func preview(c store.ConfigView, after time.Time, count int) (*servov1.PreviewConfigResponse, error) {
	sched, err := c.Spec.Schedule()
	if err != nil {
		return nil, err
	}
	location, err := schedule.Location(sched.Zone())
	if err != nil {
		return nil, err
	}
	answer := &servov1.PreviewConfigResponse{Timezone: sched.Zone()}
	add := func(slot, due time.Time, note string) error {
		window := config.WindowAt(sched, slot, slot)
		shown := &servov1.PreviewedSlot{
			Slot: timestamp(slot), DueAt: timestamp(due), Local: slot.In(location).Format(time.RFC3339), Note: note, IntervalStart: timestamp(window.Start),
		}
		answer.Slots = append(answer.Slots, shown)
		if !c.Spec.Templated() {
			return nil
		}
		parameters, err := c.Spec.Render(window)
		if err != nil {
			return err
		}
		shown.Parameters, err = structOf(parameters)
		return err
	}
	if c.MovedTo.After(after) {
		if err := add(c.MovedTo, c.MovedTo, "rescheduled"); err != nil {
			return nil, err
		}
		after = c.MovedTo
	}
	if !sched.Timed() || len(answer.GetSlots()) == count {
		return answer, nil
	}
	slots, _ := sched.Slots(after, lastSlot, count-len(answer.GetSlots()))
	for _, slot := range slots {
		if err := add(slot, slot.Add(c.Delay()), string(sched.Shift(slot))); err != nil {
			return nil, err
		}
	}
	return answer, nil
}
