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
	"go.arco.dev/servo/internal/asset"
	"go.arco.dev/servo/internal/canon"
	"go.arco.dev/servo/internal/fault"
	"go.arco.dev/servo/internal/suggest"
)

// parameters is the flags for a run's parameters.
type parameters struct {
	pairs []string // name=value
	whole string   // a JSON object, or @FILE
}

func (p *parameters) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&p.pairs, "param", nil, "a parameter as name=value, read as the type that the pipeline declares")
	cmd.Flags().StringVar(&p.whole, "params", "", "the parameters as a JSON object, or @FILE")
}

// read makes the parameters of a request. What the pipeline declares is asked for only if a
// value must be read as its type.
func (p *parameters) read(ctx context.Context, s *session, req *servov1.TriggerRunRequest) (*structpb.Struct, error) {
	object, err := p.object(s.cmd)
	if err != nil || (object == nil && len(p.pairs) == 0) {
		return nil, err
	}
	if object == nil {
		object = map[string]any{}
	}
	if len(p.pairs) > 0 {
		declared, known, err := declaration(ctx, s, req)
		if err != nil {
			return nil, err
		}
		if err := addPairs(object, p.pairs, declared, known); err != nil {
			return nil, err
		}
	}
	return structOf("--params", object)
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
	canonical, err := canon.JSON(text)
	if f, ok := fault.As(err); ok {
		return nil, fault.New(fault.InvalidArgument, f.Message, fault.Field("--params"), fault.Remedy(`write a JSON object such as {"day": "2026-01-31"}`))
	}
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if json.Unmarshal(canonical, &object) != nil || object == nil {
		return nil, fault.New(fault.InvalidArgument, "is no JSON object", fault.Field("--params"), fault.Remedy(`write it as {"name": value}`))
	}
	return object, nil
}

// declaration is the parameters that the request's pipeline declares. A pipeline that is not
// there is the server's to refuse: it knows the one that was meant.
func declaration(ctx context.Context, s *session, req *servov1.TriggerRunRequest) (declared []*servov1.Parameter, known bool, err error) {
	if req.GetPipeline() == "" {
		return nil, true, nil // a selection declares none
	}
	for pipeline, err := range client.AllPipelines(ctx, s.client, &servov1.ListPipelinesRequest{Tenant: req.GetTenant(), Workspace: req.GetWorkspace()}) {
		if err != nil {
			return nil, false, err
		}
		if pipeline.GetName() == req.GetPipeline() {
			return pipeline.GetParameters(), true, nil
		}
	}
	return nil, false, nil
}

// addPairs reads name=value pairs into an object. All mistakes are told at once.
func addPairs(object map[string]any, pairs []string, declared []*servov1.Parameter, known bool) error {
	types := map[string]string{}
	var names []string
	for _, p := range declared {
		types[p.GetName()] = p.GetType()
		names = append(names, p.GetName())
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
			remedy := "none are declared: send none, or name the pipeline that declares it"
			if len(names) > 0 {
				remedy = "known parameters: " + strings.Join(names, ", ")
			}
			wrong("--param "+name, "unknown parameter"+suggest.DidYouMean(name, names), remedy)
		default:
			value, message := typed(kind, text)
			if message != "" {
				wrong("--param "+name, message, "give a value of type "+kind)
			}
			object[name] = value
		}
		given[name] = true
	}
	return fault.FromViolations(found)
}

// typed reads a value as its type. Ranges and lists of values are the server's to check.
func typed(kind, text string) (value any, wrong string) {
	switch asset.ParameterType(kind) {
	case asset.TypeInteger:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Sprintf("%q is no integer", text)
		}
		if n > 1<<53 || n < -(1<<53) {
			return nil, fmt.Sprintf("%s is an integer that JSON readers would round", text)
		}
		return float64(n), ""
	case asset.TypeNumber:
		var f float64
		if json.Unmarshal([]byte(text), &f) != nil {
			return nil, fmt.Sprintf("%q is no number", text)
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
			return nil, fmt.Sprintf("%q is no JSON object", clip(text, 60))
		}
		return object, ""
	case asset.TypeArray:
		var array []any
		if json.Unmarshal([]byte(text), &array) != nil || array == nil {
			return nil, fmt.Sprintf("%q is no JSON array", clip(text, 60))
		}
		return array, ""
	case asset.TypeString:
	}
	return text, ""
}
