package api

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/store"
)

// specReader maps a spec of the contract. Package config validates it.
type specReader struct {
	path  string // of the spec
	found []fault.Violation
}

// at is where a field of the spec lies in the request.
func (r *specReader) at(field string) string {
	if r.path == "" {
		return field
	}
	return r.path + "." + field
}

// duration reads a text such as 1h30m; none is 0.
func (r *specReader) duration(field, text string) asset.Duration {
	if text == "" {
		return 0
	}
	d, err := asset.ParseDuration(text)
	if err != nil {
		r.found = append(r.found, fault.Violation{
			Code: fault.InvalidArgument, Field: r.at(field), Message: err.Error(), Remedy: "write a duration such as 90s or 1h30m",
		})
	}
	return d
}

// positive reads a duration of which 0 would silently become the default.
func (r *specReader) positive(field, text string) asset.Duration {
	d := r.duration(field, text)
	if text != "" && d == 0 && !slices.ContainsFunc(r.found, func(v fault.Violation) bool { return v.Field == r.at(field) }) {
		r.found = append(r.found, fault.Violation{
			Code: fault.InvalidArgument, Field: r.at(field), Message: "is 0", Remedy: "write a longer duration, or leave the field out for its default",
		})
	}
	return d
}

// specOf reads a spec that lies at a path of a request.
func specOf(path string, p *servov1.ConfigSpec) (config.Spec, error) {
	r := &specReader{path: path}
	parameters, err := jsonOfStruct(path+".parameters", p.GetParameters())
	if err != nil {
		return config.Spec{}, err
	}
	s := config.Spec{
		Pipeline: p.GetPipeline(), Parameters: parameters, Priority: int16(p.GetPriority()), Timezone: p.GetTimezone(), //nolint:gosec // 0 to 10
		Overlap: config.Overlap(p.GetOverlap()), MaxOverlap: int(p.GetMaxOverlap()), Jitter: r.duration("jitter", p.GetJitter()),
		Catchup: config.Catchup{
			Policy: config.CatchupPolicy(p.GetCatchup().GetPolicy()), MaxSlots: int(p.GetCatchup().GetMaxSlots()), Window: r.positive("catchup.window", p.GetCatchup().GetWindow()),
		},
		Retry: r.retry(p.GetRetry()), MaxExecution: r.positive("max_execution", p.GetMaxExecution()),
		SLAStartDelay: r.positive("sla_start_delay", p.GetSlaStartDelay()), MaxConsecutiveFailures: int(p.GetMaxConsecutiveFailures()),
	}
	if len(p.GetLabels()) > 0 {
		s.Labels = p.GetLabels()
	}
	if parts := p.GetPartitions(); proto.Size(parts) > 0 {
		s.Partitions = &config.Partitions{Max: int(parts.GetMaxPartitions()), Values: parts.GetValues()}
	}
	if a := p.GetAlerts(); proto.Size(a) > 0 {
		s.Alerts = &config.Alerts{Failures: int(a.GetFailures()), MediumFailures: int(a.GetMediumFailures())}
	}
	if d := p.GetDependsOn(); d != nil {
		s.DependsOn = &config.Dependency{Config: d.GetConfig(), Within: r.positive("depends_on.within", d.GetWithin()), Wait: r.duration("depends_on.wait", d.GetWait())}
	}
	if s.Trigger, err = r.trigger(p.GetTrigger()); err != nil {
		return s, err
	}
	return s, fault.FromViolations(r.found)
}

func (r *specReader) trigger(p *servov1.ConfigTrigger) (config.Trigger, error) {
	t := config.Trigger{Cron: p.GetCron(), Template: p.GetTemplate(), Interval: r.positive("trigger.interval", p.GetInterval()), Manual: p.GetManual()}
	if e := p.GetEvent(); e != nil {
		t.Event = &config.Event{Config: e.GetConfig(), Name: e.GetName()}
	}
	anchor, err := timeOf(r.at("trigger.anchor"), p.GetAnchor())
	if !anchor.IsZero() {
		t.Anchor = &anchor
	}
	return t, err
}

func (r *specReader) retry(p *servov1.ConfigRetry) *asset.Retry {
	if p == nil {
		return nil
	}
	return &asset.Retry{
		MaxAttempts: int(p.GetMaxAttempts()), MaxDeaths: int(p.GetMaxDeaths()), InitialDelay: r.positive("retry.initial_delay", p.GetInitialDelay()), MaxDelay: r.positive("retry.max_delay", p.GetMaxDelay()),
		Multiplier: p.GetMultiplier(), Jitter: p.GetJitter(), RetryOn: p.GetRetryOn(), NoRetryOn: p.GetNoRetryOn(), TimeoutGrowth: p.GetTimeoutGrowth(),
	}
}

// besideSpec are the fields of requests that are not in the spec. Package config knows a config
// without the message around it, and names the fields of the spec without it.
func besideSpec(field string) bool {
	first, _, _ := strings.Cut(field, ".")
	return slices.Contains([]string{"", "name", "version", "enabled", "workspace", "reason", "tenant", "config", "configs", "spec"}, first)
}

// inSpec names the fields of a fault as the contract does.
func inSpec(err error) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	named := *f
	named.Others = slices.Clone(f.Others)
	name := func(v *fault.Violation) {
		place, field := "", v.Field
		if strings.HasPrefix(field, "configs[") {
			first, rest, _ := strings.Cut(field, ".")
			place, field = first+".", rest
		}
		if !besideSpec(field) {
			v.Field = place + "spec." + field
		}
	}
	name(&named.Violation)
	for i := range named.Others {
		name(&named.Others[i])
	}
	return &named
}

// ofConfig reports whether an error is about a config, not about the request.
func ofConfig(err error) bool {
	f, ok := fault.As(err)
	return ok && !slices.Contains([]string{"", "workspace", "reason", "tenant", "configs"}, f.Violation.Field)
}

// definition returns a config as JSON: its spec, and whether it is enabled, paused or rescheduled.
func definition(c config.Config) (*structpb.Struct, error) {
	type definition struct {
		config.Spec

		Enabled       bool       `json:"enabled"`
		Paused        bool       `json:"paused,omitempty"`
		RescheduledTo *time.Time `json:"rescheduled_to,omitempty"`
	}
	w := definition{Spec: c.Spec, Enabled: c.Enabled, Paused: !c.PausedAt.IsZero()}
	if !c.MovedTo.IsZero() {
		w.RescheduledTo = &c.MovedTo
	}
	data, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	return structOf(data)
}

func configToProto(tenant string, c store.ConfigState) (*servov1.Config, error) {
	spec, err := specToProto(c.Spec)
	if err != nil {
		return nil, err
	}
	out := &servov1.Config{
		Id: c.ID.String(), Tenant: tenant, Workspace: c.WorkspaceName, Name: c.Name, Version: c.Version, State: servov1.Config_ACTIVE, Spec: spec,
		DisabledReason: c.DisabledReason, PausedAt: timestamp(c.PausedAt), PauseNote: c.PauseNote, RescheduledTo: timestamp(c.MovedTo),
		Warnings: c.Spec.Warnings(), DueAt: timestamp(c.DueAt), LastSlot: timestamp(c.LastSlot), LastSuccessAt: timestamp(c.LastSuccessAt),
		ConsecutiveFailures: c.Failures, CreatedBy: c.CreatedBy, CreatedAt: timestamp(c.CreatedAt), UpdatedAt: timestamp(c.UpdatedAt), DeletedAt: timestamp(c.DeletedAt),
	}
	if c.Fires() {
		out.NextSlot = timestamp(c.NextSlot)
	}
	switch {
	case !c.Enabled:
		out.State = servov1.Config_DISABLED
	case !c.PausedAt.IsZero():
		out.State = servov1.Config_PAUSED
	}
	if c.LastRun != nil {
		out.LastRun = &servov1.LastRun{Id: c.LastRun.String(), State: servov1.Run_State(c.LastState), FinishedAt: timestamp(c.LastRunAt)}
	}
	return out, nil
}

// durationText leaves out a duration that is not set.
func durationText(d asset.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// number leaves out a number that is not set.
func number[N int | int16](n N) *int32 {
	if n == 0 {
		return nil
	}
	return proto.Int32(int32(n))
}

// factor is the same for numbers with a fraction.
func factor(f float64) *float64 {
	if f == 0 {
		return nil
	}
	return &f
}

func specToProto(s config.Spec) (*servov1.ConfigSpec, error) {
	parameters, err := structOf(s.Parameters)
	if err != nil {
		return nil, err
	}
	out := &servov1.ConfigSpec{
		Pipeline: s.Pipeline, Labels: s.Labels, Parameters: parameters, Priority: number(s.Priority), Timezone: s.Timezone, Trigger: triggerToProto(s.Trigger),
		Overlap: string(s.Overlap), MaxOverlap: number(s.MaxOverlap), Jitter: durationText(s.Jitter),
		Catchup:      &servov1.ConfigCatchup{Policy: string(s.Catchup.Policy), MaxSlots: number(s.Catchup.MaxSlots), Window: durationText(s.Catchup.Window)},
		MaxExecution: durationText(s.MaxExecution), SlaStartDelay: durationText(s.SLAStartDelay), MaxConsecutiveFailures: number(s.MaxConsecutiveFailures),
	}
	if parts := s.Partitions; parts != nil {
		out.Partitions = &servov1.ConfigPartitions{MaxPartitions: number(parts.Max), Values: parts.Values}
	}
	if a := s.Alerts; a != nil {
		out.Alerts = &servov1.ConfigAlerts{Failures: number(a.Failures), MediumFailures: number(a.MediumFailures)}
	}
	if d := s.DependsOn; d != nil {
		out.DependsOn = &servov1.ConfigDependency{Config: d.Config, Within: durationText(d.Within), Wait: durationText(d.Wait)}
	}
	if r := s.Retry; r != nil {
		out.Retry = &servov1.ConfigRetry{
			MaxAttempts: number(r.MaxAttempts), MaxDeaths: number(r.MaxDeaths), InitialDelay: durationText(r.InitialDelay), MaxDelay: durationText(r.MaxDelay),
			Multiplier: factor(r.Multiplier), Jitter: factor(r.Jitter), RetryOn: r.RetryOn, NoRetryOn: r.NoRetryOn, TimeoutGrowth: factor(r.TimeoutGrowth),
		}
	}
	return out, nil
}

func triggerToProto(t config.Trigger) *servov1.ConfigTrigger {
	out := &servov1.ConfigTrigger{Cron: t.Cron, Template: t.Template, Expression: t.Expression, Interval: durationText(t.Interval), Manual: t.Manual}
	if t.Anchor != nil {
		out.Anchor = timestamppb.New(*t.Anchor)
	}
	if t.Event != nil {
		out.Event = &servov1.ConfigEvent{Config: t.Event.Config, Name: t.Event.Name}
	}
	return out
}
