package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
)

// pathStep is one step of a JSONPath: a field, an index, or everything.
type pathStep struct {
	field string
	index int
	kind  stepKind
}

type stepKind int

const (
	stepField stepKind = iota
	stepIndex
	stepAll
)

// parseJSONPath reads the part of JSONPath that names values: $, .name, ['name'], [0], [-1], [*]
// and .*, as in {[*].id}. Braces around it are optional.
func parseJSONPath(text string) (steps []pathStep, err error) {
	refused := func(at string) error {
		return fmt.Errorf("cannot read the JSONPath %q at %q: use steps such as .name, [0] and [*]", text, at)
	}
	rest := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "{"), "}")
	rest = strings.TrimPrefix(rest, "$")
	if rest != "" && rest[0] != '.' && rest[0] != '[' {
		rest = "." + rest
	}
	for rest != "" && rest != "." {
		at := rest
		switch rest[0] {
		case '.':
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			name := rest[1 : end+1]
			rest = rest[end+1:]
			switch {
			case name == "*":
				steps = append(steps, pathStep{kind: stepAll})
			case name == "" || strings.ContainsAny(name, "]'\"{}"):
				return nil, refused(at)
			default:
				steps = append(steps, pathStep{field: name})
			}
		case '[':
			inner, after, ok := strings.Cut(rest[1:], "]")
			if !ok {
				return nil, refused(at)
			}
			rest = after
			index, notNumber := strconv.Atoi(inner)
			switch {
			case inner == "*":
				steps = append(steps, pathStep{kind: stepAll})
			case notNumber == nil:
				steps = append(steps, pathStep{kind: stepIndex, index: index})
			case len(inner) > 2 && (inner[0] == '\'' || inner[0] == '"') && inner[len(inner)-1] == inner[0]:
				steps = append(steps, pathStep{field: inner[1 : len(inner)-1]})
			default:
				return nil, refused(at)
			}
		default:
			return nil, refused(at)
		}
	}
	return steps, nil
}

// valuesAt are the values that steps lead to.
func valuesAt(value any, steps []pathStep) []any {
	if len(steps) == 0 {
		return []any{value}
	}
	var found []any
	switch step := steps[0]; v := value.(type) {
	case map[string]any:
		if inner, ok := v[step.field]; ok && step.kind == stepField {
			found = append(found, valuesAt(inner, steps[1:])...)
		}
		if step.kind == stepAll {
			var names []string
			for name := range v {
				names = append(names, name)
			}
			slices.Sort(names)
			for _, name := range names {
				found = append(found, valuesAt(v[name], steps[1:])...)
			}
		}
	case []any:
		index := step.index
		if index < 0 {
			index += len(v)
		}
		if step.kind == stepIndex && index >= 0 && index < len(v) {
			found = append(found, valuesAt(v[index], steps[1:])...)
		}
		if step.kind == stepAll {
			for _, inner := range v {
				found = append(found, valuesAt(inner, steps[1:])...)
			}
		}
	}
	return found
}

// plainTree is a value as JSON readers see it, with numbers as they are written.
func plainTree(value any) (tree any, err error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("write the answer as JSON: %w", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("read the answer as JSON: %w", err)
	}
	return tree, nil
}

// renderPath prints the values that an expression leads to, one on a line: texts as they are,
// everything else as JSON.
func renderPath(w io.Writer, expression string, value any) error {
	steps, err := parseJSONPath(expression)
	if err != nil {
		return fault.New(fault.InvalidArgument, err.Error(), fault.Field("--output"), fault.Remedy("see the fields with --output json"))
	}
	tree, err := plainTree(value)
	if err != nil {
		return err
	}
	found := valuesAt(tree, steps)
	list, isList := tree.([]any)
	if len(found) == 0 && (!isList || len(list) > 0) {
		return fault.New(fault.NotFound, fmt.Sprintf("nothing is at the JSONPath %q", expression), fault.Field("--output"), fault.Remedy("see the fields with --output json"))
	}
	for _, v := range found {
		text, ok := v.(string)
		if !ok {
			data, err := json.Marshal(v)
			if err != nil {
				return fmt.Errorf("write the answer as JSON: %w", err)
			}
			text = string(data)
		}
		if _, err := fmt.Fprintln(w, clean(text)); err != nil {
			return wrote(err)
		}
	}
	return nil
}

// namingFields are the fields that name a thing, the best first.
var namingFields = []string{"name", "key", "id", "position"}

// renderNames prints the names of things, one on a line. An answer that only wraps a thing, such
// as a new run, has the name of that thing.
func renderNames(w io.Writer, value any) error {
	tree, err := plainTree(value)
	if err != nil {
		return err
	}
	list, ok := tree.([]any)
	if !ok {
		list = []any{tree}
	}
	for _, entry := range list {
		name, ok := nameOf(entry)
		if !ok {
			return fault.New(fault.InvalidArgument, "this answer has no name", fault.Field("--output"), fault.Remedy("use --output json"))
		}
		if _, err := fmt.Fprintln(w, clean(name)); err != nil {
			return wrote(err)
		}
	}
	return nil
}

func nameOf(value any) (string, bool) {
	fields, ok := value.(map[string]any)
	if !ok {
		return "", false
	}
	for _, field := range namingFields {
		if text, ok := fields[field].(string); ok && text != "" {
			return text, true
		}
	}
	var inner []any
	for _, v := range fields {
		if object, ok := v.(map[string]any); ok {
			inner = append(inner, object)
		}
	}
	if len(inner) == 1 {
		return nameOf(inner[0])
	}
	return "", false
}
