package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/asset"
)

// parameters is the flags for a run's parameters.
type parameters struct {
	pairs []string // name=value
	whole string   // a JSON object, or @FILE
}

func (p *parameters) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&p.pairs, "param", nil, "parameter as name=value, of the type that the pipeline declares; repeatable")
	cmd.Flags().StringVar(&p.whole, "params", "", "parameters as a JSON object, or @FILE")
}

// given reports whether at least one parameter was set.
func (p *parameters) given() bool { return len(p.pairs) > 0 || p.whole != "" }

// declarer returns the declared parameters, and whether they are known.
type declarer func() (declared []asset.Parameter, known bool, err error)

// read returns the flags as one object, or nil if there are none. The declaration is read only if
// a value must be converted to its type.
func (p *parameters) read(cmd *cobra.Command, declaration declarer) (map[string]any, error) {
	object, err := p.object(cmd)
	if err != nil || len(p.pairs) == 0 {
		return object, err
	}
	if object == nil {
		object = map[string]any{}
	}
	declared, known, err := declaration()
	if err != nil {
		return nil, err
	}
	return object, addPairs(object, p.pairs, declared, known)
}

// object reads --params.
func (p *parameters) object(cmd *cobra.Command) (map[string]any, error) {
	if p.whole == "" {
		return nil, nil
	}
	text := []byte(p.whole)
	if name, isFile := strings.CutPrefix(p.whole, "@"); isFile {
		var err error
		if text, err = readInput(cmd, "--params", name, asset.MaxParameterBytes); err != nil {
			return nil, err
		}
	}
	canonical, err := canon.Exact(text)
	if f, ok := fault.As(err); ok {
		return nil, fault.New(fault.InvalidArgument, f.Message, fault.Field("--params"), fault.Remedy(`write a JSON object such as {"day": "2026-01-31"}`))
	}
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if json.Unmarshal(canonical, &object) != nil || object == nil {
		return nil, fault.New(fault.InvalidArgument, "is not a JSON object", fault.Field("--params"), fault.Remedy(`write it as {"name": value}`))
	}
	return object, nil
}

// ofServer reads the flags for a request.
func (p *parameters) ofServer(ctx context.Context, s *session, req *servov1.TriggerRunRequest) (*structpb.Struct, error) {
	object, err := p.read(s.cmd, func() ([]asset.Parameter, bool, error) { return deployedParameters(ctx, s, req) }) //nolint:contextcheck // the command has the same context
	if err != nil || object == nil {
		return nil, err
	}
	return structOf("--params", object)
}

// ofManifest reads the flags for a pipeline of a manifest, as JSON.
func (p *parameters) ofManifest(cmd *cobra.Command, manifest *asset.Manifest, pipeline string) (json.RawMessage, error) {
	object, err := p.read(cmd, func() ([]asset.Parameter, bool, error) {
		declared, known := manifestParameters(manifest, pipeline)
		return declared, known, nil
	})
	if err != nil || object == nil {
		return nil, err
	}
	return canon.Marshal(object)
}

// deployedParameters returns the parameters that the request's pipeline declares. The server
// refuses an unknown pipeline: it can suggest a similar name.
func deployedParameters(ctx context.Context, s *session, req *servov1.TriggerRunRequest) (declared []asset.Parameter, known bool, err error) {
	if req.GetPipeline() == "" {
		return nil, true, nil // a selection declares none
	}
	for pipeline, err := range client.AllPipelines(ctx, s.client, &servov1.ListPipelinesRequest{Tenant: req.GetTenant(), Workspace: req.GetWorkspace()}) {
		if err != nil {
			return nil, false, err
		}
		if pipeline.GetName() != req.GetPipeline() {
			continue
		}
		for _, p := range pipeline.GetParameters() {
			declared = append(declared, asset.Parameter{Name: p.GetName(), Type: asset.ParameterType(p.GetType())})
		}
		return declared, true, nil
	}
	return nil, false, nil
}

// manifestParameters returns the parameters that a pipeline of a manifest declares. The plan refuses
// an unknown pipeline.
func manifestParameters(manifest *asset.Manifest, pipeline string) (declared []asset.Parameter, known bool) {
	if pipeline == "" {
		return nil, true
	}
	for _, p := range manifest.Pipelines {
		if p.Name == pipeline {
			return p.Parameters, true
		}
	}
	return nil, false
}

// addPairs reads name=value pairs into an object. All mistakes are reported at once.
func addPairs(object map[string]any, pairs []string, declared []asset.Parameter, known bool) error {
	types := map[string]asset.ParameterType{}
	var names []string
	for _, p := range declared {
		types[p.Name] = p.Type
		names = append(names, p.Name)
	}
	var found []fault.Violation
	wrong := func(field, message, remedy string) {
		found = append(found, fault.Violation{Code: fault.InvalidArgument, Field: field, Message: message, Remedy: remedy})
	}
	given := map[string]bool{}
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		kind, isDeclared := types[name]
		switch {
		case !ok || name == "":
			wrong("--param", fmt.Sprintf("%q is not name=value", pair), "write it as day=2026-01-31")
		case given[name]:
			wrong("--param "+name, "is given twice", "give it once")
		case known && !isDeclared:
			remedy := "the pipeline declares no parameters: remove it, or run the pipeline that declares it"
			if len(names) > 0 {
				remedy = "known parameters: " + strings.Join(names, ", ")
			}
			wrong("--param "+name, "unknown parameter"+suggest.DidYouMean(name, names), remedy)
		default:
			value, message := typed(kind, text)
			if message != "" {
				wrong("--param "+name, message, "give a value of type "+string(kind))
			}
			object[name] = value
		}
		given[name] = true
	}
	return fault.FromViolations(found)
}

// typed reads a value as its type. Ranges and lists of values are the server's to check.
func typed(kind asset.ParameterType, text string) (value any, wrong string) {
	switch kind {
	case asset.TypeInteger:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Sprintf("%q is not an integer", text)
		}
		if !canon.ExactNumber(text) {
			wrong, _ = canon.InexactNumber(text)
			return nil, wrong
		}
		return float64(n), ""
	case asset.TypeNumber:
		var f float64
		if json.Unmarshal([]byte(text), &f) != nil {
			return nil, fmt.Sprintf("%q is not a number", text)
		}
		if !canon.ExactNumber(text) {
			wrong, _ = canon.InexactNumber(text)
			return nil, wrong
		}
		return f, ""
	case asset.TypeBoolean:
		switch text {
		case "true":
			return true, ""
		case "false":
			return false, ""
		}
		return nil, fmt.Sprintf("%q is neither true nor false", text)
	case asset.TypeObject:
		var object map[string]any
		if json.Unmarshal([]byte(text), &object) != nil || object == nil {
			return nil, fmt.Sprintf("%q is not a JSON object", clip(text, 60))
		}
		if wrong := inexact(text); wrong != "" {
			return nil, wrong
		}
		return object, ""
	case asset.TypeArray:
		var array []any
		if json.Unmarshal([]byte(text), &array) != nil || array == nil {
			return nil, fmt.Sprintf("%q is not a JSON array", clip(text, 60))
		}
		if wrong := inexact(text); wrong != "" {
			return nil, wrong
		}
		return array, ""
	case asset.TypeString:
	}
	return text, ""
}

// inexact explains why numbers of a JSON value would be rounded, or is "".
func inexact(text string) string {
	f, ok := fault.As(canon.CheckExact([]byte(text)))
	if !ok {
		return ""
	}
	return f.Violation.Field + ": " + f.Message
}
