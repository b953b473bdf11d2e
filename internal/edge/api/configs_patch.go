package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// patchAttempts bounds how often a patch is merged again because another call changed the config
// in between. Each of these calls has succeeded, so there is progress.
const patchAttempts = 20

// wholeSpec is the path of all fields of a spec.
const wholeSpec = "spec"

// patch is the change that a request asks for.
type patch struct {
	from    *servov1.ConfigSpec
	paths   [][]string // of the spec, such as retry, max_delay
	whole   bool       // the spec is replaced
	enabled *bool
}

// UpdateConfig implements servov1.ConfigServiceServer.
func (s configService) UpdateConfig(ctx context.Context, req *servov1.UpdateConfigRequest) (*servov1.Config, error) {
	for attempt := 1; ; attempt++ {
		current, err := s.find(ctx, req)
		if err != nil {
			return nil, err
		}
		p, err := patchOf(req)
		if err != nil {
			return nil, err
		}
		saved, err := s.patch(ctx, req, current, p)
		if err == nil || req.GetVersion() != 0 || attempt == patchAttempts || !staleVersion(err) {
			return saved, err
		}
	}
}

// staleVersion reports whether a config was changed after it was read.
func staleVersion(err error) bool {
	f, ok := fault.As(err)
	return ok && f.Violation.Code == fault.Conflict && f.Violation.Field == "version"
}

// patch saves a config as it was read, with the changes.
func (s configService) patch(ctx context.Context, req *servov1.UpdateConfigRequest, current store.ConfigView, p patch) (*servov1.Config, error) {
	spec, err := p.apply(current.Spec)
	if err != nil {
		return nil, err
	}
	change := engine.SaveConfig{Name: current.Name, Spec: spec, Enabled: p.enabled, Version: req.GetVersion(), Mode: engine.SaveOld}
	if change.Version == 0 && !p.whole {
		change.Version = current.Version // fields that were read must not undo what another call writes
	}
	return s.save(ctx, req.GetTenant(), engine.SaveConfigs{
		Tenant: current.Tenant, Workspace: current.WorkspaceName, Reason: req.GetReason(), Meta: intercept.Meta(ctx), Configs: []engine.SaveConfig{change},
	})
}

// patchOf reads which fields a request changes: those of its mask, or those that are set.
func patchOf(req *servov1.UpdateConfigRequest) (patch, error) {
	p := patch{from: req.GetSpec()}
	if p.from == nil {
		p.from = &servov1.ConfigSpec{}
	}
	mask := req.GetUpdateMask().GetPaths()
	if len(mask) == 0 {
		p.enabled, p.paths = req.Enabled, setPaths(p.from.ProtoReflect())
		if len(p.paths) == 0 && p.enabled == nil {
			return p, fault.New(fault.InvalidArgument, "no changes specified", fault.Field("spec"),
				fault.Remedy("set the fields that change, or enabled; name fields in update_mask to clear them"))
		}
		return p, nil
	}
	for i, path := range mask {
		if err := p.add(path, req.Enabled); err != nil {
			return p, fault.Under(fmt.Sprintf("update_mask.paths[%d]", i), err)
		}
	}
	return p, nil
}

// add takes one path of a mask.
func (p *patch) add(path string, enabled *bool) error {
	inside, isField := strings.CutPrefix(path, wholeSpec+".")
	switch {
	case path == wholeSpec:
		p.whole = true
		return nil
	case path == "enabled" && enabled == nil:
		return fault.New(fault.InvalidArgument, "enabled has no value", fault.Remedy("send enabled as true or false"))
	case path == "enabled":
		p.enabled = enabled
		return nil
	}
	if paths := specPaths(); !isField || !slices.Contains(paths, path) {
		return unknownPath(path, paths)
	}
	p.paths = append(p.paths, strings.Split(inside, "."))
	return nil
}

// unknownPath refuses an unknown path of a mask, and suggests a valid one.
func unknownPath(path string, paths []string) error {
	remedy := "use spec, enabled, or a field such as spec.priority or spec.retry.max_delay"
	parts := strings.Split(path, ".")
	if len(parts) > 2 && slices.Contains(paths, parts[0]+"."+parts[1]) {
		remedy = "use spec." + parts[1] + ", which is replaced as a whole"
		if mergedByField(parts[1]) {
			remedy = "use spec." + parts[1] + " or one of its fields"
		}
	}
	return fault.New(fault.InvalidArgument, fmt.Sprintf("unknown field %.100q", path)+suggest.DidYouMean(path, append(paths, wholeSpec, "enabled")), fault.Remedy(remedy))
}

// mergedByField reports whether a message of a spec is merged field by field. Trigger, parameters and
// labels are replaced as a whole.
func mergedByField(field string) bool {
	return slices.Contains([]string{"alerts", "catchup", "depends_on", "partitions", "retry"}, field)
}

// specPaths are the paths that a mask may have, below the spec.
func specPaths() (paths []string) {
	fields := (&servov1.ConfigSpec{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		paths = append(paths, wholeSpec+"."+field.TextName())
		if !mergedByField(field.TextName()) {
			continue
		}
		inner := field.Message().Fields()
		for j := range inner.Len() {
			paths = append(paths, wholeSpec+"."+field.TextName()+"."+inner.Get(j).TextName())
		}
	}
	return paths
}

// setPaths are the fields of a spec that are set.
func setPaths(spec protoreflect.Message) (paths [][]string) {
	spec.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if !mergedByField(field.TextName()) {
			paths = append(paths, []string{field.TextName()})
			return true
		}
		value.Message().Range(func(inner protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
			paths = append(paths, []string{field.TextName(), inner.TextName()})
			return true
		})
		return true
	})
	return paths
}

// touches reports whether a field of the spec changes.
func (p patch) touches(parts ...string) bool {
	return p.whole || slices.ContainsFunc(p.paths, func(path []string) bool {
		return slices.Equal(path, parts) || len(path) < len(parts) && slices.Equal(path, parts[:len(path)])
	})
}

// apply is the spec with the changes.
func (p patch) apply(current config.Spec) (config.Spec, error) {
	if p.whole {
		return specOf("spec", p.from)
	}
	if len(p.paths) == 0 {
		return current, nil
	}
	merged, err := specToProto(current)
	if err != nil {
		return config.Spec{}, err
	}
	for _, path := range p.paths {
		copyField(merged.ProtoReflect(), p.from.ProtoReflect(), path)
	}
	if proto.Size(merged.GetRetry()) == 0 {
		merged.Retry = nil // one without fields equals none
	}
	if merged.GetCatchup().GetPolicy() != string(config.CatchupAll) && !p.touches("catchup", "max_slots") && merged.GetCatchup() != nil {
		merged.Catchup.MaxSlots = nil // it is a part of the policy all, which fills it in
	}
	spec, err := specOf("spec", merged)
	if err != nil {
		return config.Spec{}, err
	}
	if !p.touches("parameters") {
		spec.Parameters = current.Parameters
	}
	if !p.touches("trigger") {
		spec.Trigger = current.Trigger
	}
	return spec, nil
}

// copyField gives a field the value that it has in another message, or none.
func copyField(to, from protoreflect.Message, path []string) {
	field := to.Descriptor().Fields().ByTextName(path[0])
	switch {
	case len(path) > 1:
		copyField(to.Mutable(field).Message(), from.Get(field).Message(), path[1:])
	case from.Has(field):
		to.Set(field, from.Get(field))
	default:
		to.Clear(field)
	}
}
