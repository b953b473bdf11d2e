package api

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// validator checks requests by the rules that stand in the contract.
type validator struct{ rules protovalidate.Validator }

// newValidator gives the one validator of the process: it depends on nothing but the
// contract, and never changes.
var newValidator = sync.OnceValue(compile) //nolint:gochecknoglobals // see above

// compile compiles the rules of every message of the contract.
func compile() *validator {
	rules, err := protovalidate.New(protovalidate.WithMessageDescriptors(messages()...), protovalidate.WithDisableLazy())
	if err != nil {
		panic("api: the rules of the contract cannot be compiled: " + err.Error())
	}
	return &validator{rules: rules}
}

// Contract is the files that the API is made from.
func Contract() []protoreflect.FileDescriptor {
	return []protoreflect.FileDescriptor{
		servov1.File_servo_v1_admin_proto, servov1.File_servo_v1_alerts_proto, servov1.File_servo_v1_assets_proto, servov1.File_servo_v1_configs_proto, servov1.File_servo_v1_deployments_proto, servov1.File_servo_v1_events_proto, servov1.File_servo_v1_templates_proto, servov1.File_servo_v1_fairness_proto, servov1.File_servo_v1_keys_proto, servov1.File_servo_v1_locks_proto,
		servov1.File_servo_v1_metrics_proto, servov1.File_servo_v1_pools_proto,
		servov1.File_servo_v1_problem_proto, servov1.File_servo_v1_runs_proto, servov1.File_servo_v1_search_proto, servov1.File_servo_v1_simulation_proto, servov1.File_servo_v1_status_proto,
		servov1.File_servo_v1_subscriptions_proto,
		servov1.File_servo_v1_tasks_proto, servov1.File_servo_v1_tenants_proto, servov1.File_servo_v1_why_proto,
		servov1.File_servo_v1_workers_proto,
	}
}

// messages are what calls bring: these and what is inside them are compiled.
func messages() []protoreflect.MessageDescriptor {
	var found []protoreflect.MessageDescriptor
	for _, file := range Contract() {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				found = append(found, methods.Get(j).Input())
			}
		}
	}
	return found
}

// maxViolations is how many broken rules are told at once.
const maxViolations = 100

// check refuses a request that breaks rules, and names all of them.
func (v *validator) check(req any) error {
	message, ok := req.(proto.Message)
	if !ok || plain(message) {
		return nil
	}
	err := v.rules.Validate(message)
	if err == nil {
		return nil
	}
	broken, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok {
		return fmt.Errorf("check %s: %w", message.ProtoReflect().Descriptor().FullName(), err)
	}
	violations := make([]fault.Violation, 0, min(len(broken.Violations), maxViolations))
	for _, b := range broken.Violations[:cap(violations)] {
		violations = append(violations, fault.Violation{
			Code: fault.InvalidArgument, Field: protovalidate.FieldPathString(b.Proto.GetField()),
			Message: strings.TrimPrefix(b.Proto.GetMessage(), "value "), Remedy: remedy(b.Proto.GetRuleId()),
		})
	}
	return fault.FromViolations(violations)
}

// remedy says what to do about a broken rule.
func remedy(rule string) string {
	_, kind, _ := strings.Cut(rule, ".")
	switch {
	case rule == "required":
		return "send it"
	case kind == "uuid", kind == "uuid_empty":
		return "send the id as it was given, such as 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10"
	case kind == "min_len", kind == "min_items":
		return "send it"
	case kind == "max_len", kind == "max_bytes":
		return "send a shorter text"
	case kind == "max_items":
		return "send fewer, in several calls"
	case strings.HasPrefix(rule, "enum."):
		return "send one of the names that the contract lists"
	}
	return "send a value in this range"
}
