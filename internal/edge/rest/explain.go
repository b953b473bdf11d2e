package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

// maxViolations bounds the violations in one answer.
const maxViolations = 20

// explain returns the violations of a refused document, by field. protojson stops at the first error and
// reports lines, not fields, so that a refused document is parsed again.
func explain(m protoreflect.MessageDescriptor, data []byte, refused error) error {
	if err := inexact(m, data); err != nil {
		return err
	}
	return unexplained(refused)
}

// inexact refuses the numbers of a document that would be rounded, and whatever else is wrong with
// it: those of fields that are integers are kept as they are.
func inexact(m protoreflect.MessageDescriptor, data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		return unexplained(err)
	}
	var e explainer
	e.message(m, document, "")
	return fault.FromViolations(e.found)
}

type explainer struct {
	found []fault.Violation
}

func (e *explainer) add(path, message, remedy string) {
	if len(e.found) < maxViolations {
		e.found = append(e.found, violation(path, message, remedy))
	}
}

// message looks at a value that should be a message.
func (e *explainer) message(m protoreflect.MessageDescriptor, value any, path string) {
	switch m.FullName() {
	case valueName:
		e.numbers(value, path)
		return
	case listName:
		if _, ok := value.([]any); !ok {
			e.add(path, "must be an array, not "+kindName(value), "")
		}
		e.numbers(value, path)
		return
	case timestampName, durationName, fieldMaskName:
		if text, ok := value.(string); !ok {
			e.add(path, "must be text, not "+kindName(value), "")
		} else if bad := badMessage(m, text); bad != "" {
			e.add(path, bad, "")
		}
		return
	}
	object, ok := value.(map[string]any)
	if !ok {
		e.add(path, "must be an object, not "+kindName(value), "write it in braces")
		return
	}
	if m.FullName() == structName {
		e.numbers(value, path)
		return
	}
	e.fields(m, object, path)
}

// numbers looks for numbers that would be rounded.
func (e *explainer) numbers(value any, path string) {
	switch v := value.(type) {
	case json.Number:
		if !canon.ExactNumber(v.String()) {
			message, remedy := canon.InexactNumber(v.String())
			e.add(path, message, remedy)
		}
	case []any:
		for i, item := range v {
			e.numbers(item, path+"["+strconv.Itoa(i)+"]")
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			e.numbers(v[name], join(path, name))
		}
	}
}

func (e *explainer) fields(m protoreflect.MessageDescriptor, object map[string]any, path string) {
	seen := map[string]string{} // by the field, or by the group of which one may be set
	for _, name := range slices.Sorted(maps.Keys(object)) {
		at := join(path, name)
		field := fieldNamed(m, name)
		if field == nil {
			e.add(at, "there is no such field"+suggest.DidYouMean(name, names(m)), "leave it out")
			continue
		}
		if object[name] == nil && (field.Message() == nil || field.Message().FullName() != valueName) {
			continue // null equals an absent field
		}
		group := field.TextName()
		if oneof := field.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() {
			group = string(oneof.FullName())
		}
		if other, twice := seen[group]; twice {
			e.add(at, "cannot be there together with "+other, "send one of them")
			continue
		}
		seen[group] = name
		e.field(field, object[name], at)
	}
}

func (e *explainer) field(field protoreflect.FieldDescriptor, value any, path string) {
	switch {
	case field.IsMap():
		object, ok := value.(map[string]any)
		if !ok {
			e.add(path, "must be an object, not "+kindName(value), "write it in braces")
			return
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			e.single(field.MapValue(), object[name], join(path, name))
		}
	case field.IsList():
		list, ok := value.([]any)
		if !ok {
			e.add(path, "must be an array, not "+kindName(value), "write it in brackets")
			return
		}
		for i, item := range list {
			e.single(field, item, path+"["+strconv.Itoa(i)+"]")
		}
	default:
		e.single(field, value, path)
	}
}

// single looks at one value of a field: of a list's, one item.
func (e *explainer) single(field protoreflect.FieldDescriptor, value any, path string) {
	if field.Message() != nil {
		e.message(field.Message(), value, path)
		return
	}
	switch v := value.(type) {
	case bool:
		if field.Kind() != protoreflect.BoolKind {
			e.add(path, "must be "+wanted(field)+", not a boolean", "")
		}
	case string:
		switch field.Kind() {
		case protoreflect.StringKind:
		case protoreflect.BoolKind:
			e.add(path, "must be true or false, not text", "write it without quotes")
		default:
			if bad := badScalar(field, v); bad != "" {
				e.add(path, bad, "")
			}
		}
	case json.Number:
		e.number(field, v, path)
	default:
		e.add(path, "must be "+wanted(field)+", not "+kindName(value), "")
	}
}

func (e *explainer) number(field protoreflect.FieldDescriptor, n json.Number, path string) {
	switch field.Kind() {
	case protoreflect.StringKind:
		e.add(path, "must be text, not a number", "write it in quotes")
	case protoreflect.BoolKind:
		e.add(path, "must be true or false, not a number", "")
	case protoreflect.FloatKind:
	case protoreflect.DoubleKind:
		e.numbers(n, path)
	default:
		f, err := n.Float64()
		whole := n.String()
		if err == nil && f == float64(int64(f)) && f > -1e15 && f < 1e15 {
			whole = strconv.FormatInt(int64(f), 10) // 1e3 and 1.0 are whole numbers too
		}
		if bad := badScalar(field, whole); bad != "" {
			e.add(path, bad, "")
		}
	}
}

// wanted describes the values of a field.
func wanted(field protoreflect.FieldDescriptor) string {
	switch field.Kind() {
	case protoreflect.StringKind:
		return "text"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.EnumKind:
		return "one of " + enumNames(field.Enum())
	default:
		return "a number"
	}
}

func kindName(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "text"
	case json.Number:
		return "a number"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	default:
		return fmt.Sprintf("%T", value)
	}
}

func names(m protoreflect.MessageDescriptor) (list []string) {
	for i := range m.Fields().Len() {
		list = append(list, m.Fields().Get(i).TextName())
	}
	return list
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
