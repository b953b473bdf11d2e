package asset

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

const parameterTypeNames = "string, integer, number, boolean, object, array"

// known reports whether the type exists.
func (t ParameterType) known() bool {
	switch t {
	case TypeString, TypeInteger, TypeNumber, TypeBoolean, TypeObject, TypeArray:
		return true
	}
	return false
}

// enumerable reports whether a parameter of the type may list its values.
func (t ParameterType) enumerable() bool {
	return t == TypeString || t == TypeInteger || t == TypeNumber
}

// mismatch describes how a value differs from the type; "" if it has the type.
func (t ParameterType) mismatch(value any) string {
	var ok bool
	switch t {
	case TypeString:
		_, ok = value.(string)
	case TypeNumber:
		_, ok = value.(float64)
	case TypeInteger:
		f, isNumber := value.(float64)
		if isNumber && f == math.Trunc(f) && math.Abs(f) > maxSafeInteger {
			return "is an integer beyond 2^53-1, which JSON readers would round"
		}
		ok = isNumber && f == math.Trunc(f)
		if isNumber && !ok {
			return "must be an integer, is a fraction"
		}
	case TypeBoolean:
		_, ok = value.(bool)
	case TypeObject:
		_, ok = value.(map[string]any)
	case TypeArray:
		_, ok = value.([]any)
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("must be of type %s, is %s", t, nameOf(value))
}

func (p *Pipeline) validateParameters(found *violations, path string) {
	limit(found, path+".parameters", len(p.Parameters), MaxParameters, "combine some of them in one of type object")
	unique(found, path+".parameters", p.Parameters, ".name", func(p Parameter) string { return p.Name })
	size := 0
	for i := range p.Parameters {
		parameter := &p.Parameters[i]
		parameter.validate(found, parameterPath(path, i, parameter.Name))
		size += len(parameter.Name) + len(parameter.Default) + len(`"":,`)
	}
	if size > MaxParameterBytes {
		found.add(path+".parameters", fmt.Sprintf("the defaults have %d bytes, the limit is %d", size, MaxParameterBytes), "store large values elsewhere and pass their URL")
	}
}

func (p *Parameter) validate(found *violations, path string) {
	matches(found, path+".name", p.Name, parameterPattern, "is not a valid name", "use lower case letters, digits and '_', a letter first")
	length(found, path+".description", p.Description, MaxDescription)
	if !p.Type.known() {
		found.add(path+".type", quoted(string(p.Type))+" is not a type"+suggest.DidYouMean(string(p.Type), strings.Split(parameterTypeNames, ", ")),
			"choose one of "+parameterTypeNames)
		return
	}
	if p.Enum != nil {
		p.validateEnum(found, path+".enum")
	}
	if p.Default == nil {
		return
	}
	if p.Required {
		found.add(path+".default", "a required parameter cannot have a default", "remove default or required")
	}
	value, ok := p.check(found, path+".default", p.Default)
	if ok && p.Enum != nil && !p.lists(value) {
		found.add(path+".default", "is not a value of enum", "add it to enum or choose another value")
	}
}

func (p *Parameter) validateEnum(found *violations, path string) {
	if !p.Type.enumerable() {
		found.add(path, fmt.Sprintf("a parameter of type %s cannot have an enum", p.Type), "remove it; only string, integer and number can have one")
		return
	}
	if len(p.Enum) == 0 {
		found.add(path, "is empty", "list the values, or remove the field")
	}
	limit(found, path, len(p.Enum), MaxEnum, "check the value in the asset's code")
	seen := make(map[any]bool, len(p.Enum))
	for i, raw := range p.Enum {
		value, ok := p.check(found, at(path, i), raw)
		if !ok {
			continue
		}
		if seen[value] {
			found.add(at(path, i), "is listed twice", "remove it")
		}
		seen[value] = true
	}
}

// check decodes a declared value and compares it with the type.
func (p *Parameter) check(found *violations, path string, raw json.RawMessage) (any, bool) {
	var value any
	if _, err := canon.Exact(raw); err != nil || json.Unmarshal(raw, &value) != nil {
		found.add(path, "is not JSON", "write one JSON value")
		return nil, false
	}
	if holdsNUL(value) {
		found.add(path, "contains a NUL character", "remove it")
		return nil, false
	}
	if message := p.Type.mismatch(value); message != "" {
		found.add(path, message, "write a value of type "+string(p.Type))
		return nil, false
	}
	return value, true
}

// lists reports whether a value is in the enum.
func (p *Parameter) lists(value any) bool {
	return slices.ContainsFunc(p.Enum, func(raw json.RawMessage) bool {
		var listed any
		return json.Unmarshal(raw, &listed) == nil && listed == value
	})
}

// ValidateParameters checks the parameters of a run against the declarations of its pipeline, and
// returns them in canonical form with the defaults filled in. Empty input is an empty object.
func ValidateParameters(p Pipeline, params json.RawMessage) (json.RawMessage, error) {
	if len(params) > MaxParameterBytes {
		return nil, parametersTooLarge(len(params))
	}
	if len(params) == 0 {
		params = json.RawMessage(`{}`)
	}
	canonical, err := canon.Exact(params)
	if err != nil {
		return nil, underParameters(err)
	}
	var tree any
	if err := json.Unmarshal(canonical, &tree); err != nil {
		return nil, fmt.Errorf("read canonical JSON: %w", err)
	}
	given, ok := tree.(map[string]any)
	if !ok {
		return nil, fault.Invalid("parameters", "must be an object, is "+nameOf(tree), `send {"name": value}`)
	}
	found := newViolations(fault.InvalidArgument)
	p.reportUnknown(found, given)
	for i := range p.Parameters {
		p.Parameters[i].fill(found, given)
	}
	if err := found.err(); err != nil {
		return nil, err
	}
	filled, err := canon.Marshal(given)
	if err != nil {
		return nil, underParameters(err)
	}
	if len(filled) > MaxParameterBytes {
		return nil, parametersTooLarge(len(filled))
	}
	return filled, nil
}

func (p *Pipeline) reportUnknown(found *violations, given map[string]any) {
	names := make([]string, len(p.Parameters))
	for i := range p.Parameters {
		names[i] = p.Parameters[i].Name
	}
	slices.Sort(names)
	remedy := "the pipeline declares no parameters: remove it, or run the pipeline that declares it"
	if len(names) > 0 {
		remedy = "known parameters: " + strings.Join(names, ", ")
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, name) {
			found.add(join("parameters", name), "unknown parameter"+suggest.DidYouMean(name, names), remedy)
		}
	}
}

// fill checks the value of the run, or sets the default.
func (p *Parameter) fill(found *violations, given map[string]any) {
	path := join("parameters", p.Name)
	value, there := given[p.Name]
	switch {
	case !there && p.Required:
		found.add(path, "is missing", fmt.Sprintf("send a value of type %s", p.Type))
	case !there && p.Default != nil:
		var value any
		if json.Unmarshal(p.Default, &value) == nil { // a manifest's default is JSON
			given[p.Name] = value
		}
	case !there:
	case p.Type.mismatch(value) != "":
		found.add(path, p.Type.mismatch(value), "send a value of type "+string(p.Type))
	case p.Enum != nil && !p.lists(value):
		listed := make([]string, len(p.Enum))
		for i, raw := range p.Enum {
			listed[i] = string(raw)
		}
		found.add(path, "is not an allowed value", "choose one of "+strings.Join(listed, ", "))
	case holdsNUL(value):
		found.add(path, "contains a NUL character", "remove it")
	}
}

func parametersTooLarge(n int) error {
	return fault.New(fault.LimitExceeded, fmt.Sprintf("have %d bytes, the limit is %d", n, MaxParameterBytes), fault.Field("parameters"),
		fault.Remedy("store large values elsewhere and pass their URL"), fault.Value("limit", MaxParameterBytes), fault.Value("current", n))
}

// underParameters prefixes the field of a fault with "parameters".
func underParameters(err error) error {
	if f, ok := fault.As(err); ok {
		field := "parameters"
		if inner := f.Violation.Field; inner != "" {
			field += "." + inner
		}
		f.Violation.Field = strings.ReplaceAll(field, ".[", "[")
	}
	return err
}
