package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/internal/base/fault"
)

// Values are google.protobuf.Value in messages and JSON in the database. They are encoded here and not
// by a library, because every result passes here, and errors must name the field that JSON or the
// database cannot represent.

// maxDepth bounds objects and arrays inside each other.
const maxDepth = 100

// jsonOf encodes a value as JSON; nil if it is not set.
func jsonOf(field string, v *structpb.Value) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	w := valueWriter{}
	return w.finish(field, w.value(v, 0))
}

// jsonOfStruct encodes an object as JSON; nil if it is not set.
func jsonOfStruct(field string, s *structpb.Struct) (json.RawMessage, error) {
	if s == nil {
		return nil, nil
	}
	w := valueWriter{}
	return w.finish(field, w.object(s.GetFields(), 0))
}

// valueWriter appends JSON. Keys are sorted, so that equal values have equal text.
type valueWriter struct{ out []byte }

// unwritable is a value without a JSON form, with its path.
type unwritable struct{ path, message, remedy string }

func (u *unwritable) under(step string) *unwritable {
	if u.path != "" && u.path[0] != '[' {
		step += "."
	}
	u.path = step + u.path
	return u
}

func (w *valueWriter) finish(field string, bad *unwritable) (json.RawMessage, error) {
	if bad == nil {
		return w.out, nil
	}
	if field != "" {
		bad = bad.under(field)
	}
	return nil, fault.New(fault.InvalidArgument, bad.message, fault.Field(bad.path), fault.Remedy(bad.remedy))
}

func (w *valueWriter) value(v *structpb.Value, depth int) *unwritable {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_NullValue:
		w.out = append(w.out, "null"...)
	case *structpb.Value_BoolValue:
		w.out = strconv.AppendBool(w.out, kind.BoolValue)
	case *structpb.Value_NumberValue:
		return w.number(kind.NumberValue)
	case *structpb.Value_StringValue:
		return w.text(kind.StringValue)
	case *structpb.Value_StructValue:
		return w.object(kind.StructValue.GetFields(), depth)
	case *structpb.Value_ListValue:
		return w.array(kind.ListValue.GetValues(), depth)
	default:
		return &unwritable{message: "has no kind", remedy: "send null for an empty value"}
	}
	return nil
}

func (w *valueWriter) object(fields map[string]*structpb.Value, depth int) *unwritable {
	if depth >= maxDepth {
		return tooDeep()
	}
	w.out = append(w.out, '{')
	for i, key := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if bad := w.text(key); bad != nil {
			return bad
		}
		w.out = append(w.out, ':')
		if bad := w.value(fields[key], depth+1); bad != nil {
			return bad.under(key)
		}
	}
	w.out = append(w.out, '}')
	return nil
}

func (w *valueWriter) array(values []*structpb.Value, depth int) *unwritable {
	if depth >= maxDepth {
		return tooDeep()
	}
	w.out = append(w.out, '[')
	for i, v := range values {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if bad := w.value(v, depth+1); bad != nil {
			return bad.under(fmt.Sprintf("[%d]", i))
		}
	}
	w.out = append(w.out, ']')
	return nil
}

func tooDeep() *unwritable {
	return &unwritable{message: fmt.Sprintf("is nested more than %d levels deep", maxDepth), remedy: "send flatter data"}
}

// Beyond these, numbers are written with an exponent, as JavaScript does.
const (
	smallestPlain = 1e-6
	largestPlain  = 1e21
)

func (w *valueWriter) number(f float64) *unwritable {
	size := math.Abs(f)
	switch {
	case size == 0:
		w.out = append(w.out, '0') // without a sign
	case math.IsNaN(f) || math.IsInf(f, 0):
		return &unwritable{message: fmt.Sprintf("%v is not a JSON number", f), remedy: "send a finite number, or null"}
	case size < smallestPlain || size >= largestPlain:
		w.out = strconv.AppendFloat(w.out, f, 'e', -1, 64)
	default:
		w.out = strconv.AppendFloat(w.out, f, 'f', -1, 64)
	}
	return nil
}

const hexDigits = "0123456789abcdef"

// text encodes a string. It is UTF-8, which protobuf ensures.
func (w *valueWriter) text(s string) *unwritable {
	w.out = append(w.out, '"')
	plain := 0 // what was not written yet
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		if c == 0 {
			return &unwritable{message: "contains a zero character", remedy: "remove it"}
		}
		w.out = append(w.out, s[plain:i]...)
		plain = i + 1
		switch c {
		case '"', '\\':
			w.out = append(w.out, '\\', c)
		case '\n':
			w.out = append(w.out, '\\', 'n')
		default:
			w.out = append(w.out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
	}
	w.out = append(append(w.out, s[plain:]...), '"')
	return nil
}

// valueOf decodes stored JSON; nil if there is none.
func valueOf(data json.RawMessage) (*structpb.Value, error) {
	if len(data) == 0 {
		return nil, nil //nolint:nilnil // nothing is stored
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("decode stored JSON: %w", err)
	}
	return structpb.NewValue(tree)
}

// structOf decodes a stored object; nil if there is none.
func structOf(data json.RawMessage) (*structpb.Struct, error) {
	if len(data) == 0 {
		return nil, nil //nolint:nilnil // nothing is stored
	}
	if string(data) == "{}" {
		return &structpb.Struct{}, nil
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("decode a stored JSON object: %w", err)
	}
	return structpb.NewStruct(tree)
}
