package intercept

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// validator checks requests against the rules of the contract.
type validator struct{ rules protovalidate.Validator }

// newValidator returns the validator of the process. All servers of a process share it: it depends
// on the contract only.
var newValidator = sync.OnceValue(compile) //nolint:gochecknoglobals // see above

// compile compiles the rules of every message of the contract.
func compile() *validator {
	rules, err := protovalidate.New(protovalidate.WithMessageDescriptors(requests()...), protovalidate.WithDisableLazy())
	if err != nil {
		panic("intercept: compile the rules of the contract: " + err.Error())
	}
	return &validator{rules: rules}
}

// Contract returns the files of the API's contract, by name.
func Contract() []protoreflect.FileDescriptor {
	var files []protoreflect.FileDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage(servov1.File_servo_v1_runs_proto.Package(), func(f protoreflect.FileDescriptor) bool {
		files = append(files, f)
		return true
	})
	slices.SortFunc(files, func(a, b protoreflect.FileDescriptor) int { return strings.Compare(a.Path(), b.Path()) })
	return files
}

// Calls iterates over the calls of the contract, by their full names ("/servo.v1.RunService/GetRun").
func Calls() iter.Seq2[string, protoreflect.MethodDescriptor] {
	return func(yield func(string, protoreflect.MethodDescriptor) bool) {
		for _, file := range Contract() {
			for i := range file.Services().Len() {
				service := file.Services().Get(i)
				for j := range service.Methods().Len() {
					call := service.Methods().Get(j)
					if !yield(fmt.Sprintf("/%s/%s", service.FullName(), call.Name()), call) {
						return
					}
				}
			}
		}
	}
}

// requests returns the request messages of all calls.
func requests() []protoreflect.MessageDescriptor {
	var found []protoreflect.MessageDescriptor
	for _, call := range Calls() {
		found = append(found, call.Input())
	}
	return found
}

// maxViolations bounds the violations in one answer.
const maxViolations = 100

// check returns all violations of a request as one error.
func (v *validator) check(req any) error {
	message, ok := req.(proto.Message)
	if !ok || surelyValid(message) {
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

// remedy returns what to do about a violated rule.
func remedy(rule string) string {
	_, kind, _ := strings.Cut(rule, ".")
	switch {
	case rule == "required":
		return "add the field"
	case kind == "uuid", kind == "uuid_empty":
		return "send the id as the server returned it, such as 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10"
	case kind == "min_len", kind == "min_items":
		return "add a value"
	case kind == "max_len", kind == "max_bytes":
		return "send a shorter text"
	case kind == "max_items":
		return "split the request into several calls"
	case strings.HasPrefix(rule, "enum."):
		return "use one of the values in /openapi.json"
	}
	return "use a value within this range"
}
