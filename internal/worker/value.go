package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/internal/base/canon"
)

// maxDepth is the maximum nesting of a result: the limit of the REST edge.
const maxDepth = 100

// encode returns the JSON of a Go value, and the same as a message.
func encode(value any) (*structpb.Value, []byte, error) {
	encoded, err := Marshal(value)
	if err != nil {
		return nil, nil, err
	}
	message, err := toValue(encoded)
	return message, encoded, err
}

// Marshal returns compact JSON without escapes for HTML, as the server stores it.
func Marshal(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// toValue converts JSON to a message. Numbers are sent as doubles: an inexact number is refused, since
// it would arrive as another number.
func toValue(data []byte) (*structpb.Value, error) {
	if isNull(data) {
		return nil, nil
	}
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("is not valid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("is more than one JSON value")
	}
	return valueOf(tree, "", 0)
}

func isNull(data []byte) bool {
	trimmed := bytes.TrimSpace(data)
	return len(trimmed) == 0 || string(trimmed) == "null"
}

func valueOf(tree any, path string, depth int) (*structpb.Value, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("is nested deeper than %d levels", maxDepth)
	}
	switch v := tree.(type) {
	case nil:
		return structpb.NewNullValue(), nil
	case bool:
		return structpb.NewBoolValue(v), nil
	case string:
		return structpb.NewStringValue(v), nil
	case json.Number:
		return numberOf(v, path)
	case []any:
		list := &structpb.ListValue{Values: make([]*structpb.Value, len(v))}
		for i, element := range v {
			value, err := valueOf(element, path+"["+strconv.Itoa(i)+"]", depth+1)
			if err != nil {
				return nil, err
			}
			list.Values[i] = value
		}
		return structpb.NewListValue(list), nil
	case map[string]any:
		fields := make(map[string]*structpb.Value, len(v))
		for key, element := range v {
			value, err := valueOf(element, path+"."+key, depth+1)
			if err != nil {
				return nil, err
			}
			fields[key] = value
		}
		return structpb.NewStructValue(&structpb.Struct{Fields: fields}), nil
	}
	return nil, fmt.Errorf("contains a %T", tree)
}

func numberOf(number json.Number, path string) (*structpb.Value, error) {
	f, err := number.Float64()
	if err != nil || !canon.ExactNumber(number.String()) {
		message, remedy := canon.InexactNumber(number.String())
		return nil, fmt.Errorf("has an inexact number at %s: %s (%s)", at(path), message, remedy)
	}
	return structpb.NewNumberValue(f), nil
}

func at(path string) string {
	if path == "" {
		return "the top level"
	}
	return strings.TrimPrefix(path, ".")
}

// fromValue converts a message to JSON.
func fromValue(value *structpb.Value) json.RawMessage {
	return appendValue(nil, value)
}

// fromStruct converts a message to a JSON object.
func fromStruct(object *structpb.Struct) json.RawMessage {
	return appendObject(nil, object.GetFields())
}

func appendValue(to []byte, value *structpb.Value) []byte {
	switch kind := value.GetKind().(type) {
	case *structpb.Value_BoolValue:
		return strconv.AppendBool(to, kind.BoolValue)
	case *structpb.Value_NumberValue:
		return appendNumber(to, kind.NumberValue)
	case *structpb.Value_StringValue:
		return appendString(to, kind.StringValue)
	case *structpb.Value_ListValue:
		to = append(to, '[')
		for i, element := range kind.ListValue.GetValues() {
			if i > 0 {
				to = append(to, ',')
			}
			to = appendValue(to, element)
		}
		return append(to, ']')
	case *structpb.Value_StructValue:
		return appendObject(to, kind.StructValue.GetFields())
	}
	return append(to, "null"...)
}

func appendObject(to []byte, fields map[string]*structpb.Value) []byte {
	keys := make([]string, 0, len(fields))
	for key := range fields {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	to = append(to, '{')
	for i, key := range keys {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(appendString(to, key), ':')
		to = appendValue(to, fields[key])
	}
	return append(to, '}')
}

// appendNumber writes integers without an exponent, so that they decode into Go's integers.
func appendNumber(to []byte, f float64) []byte {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return append(to, "null"...) // JSON has none, and the server sends none
	case f == 0:
		return append(to, '0') // without a sign
	case f == math.Trunc(f) && math.Abs(f) < 1e21:
		return strconv.AppendFloat(to, f, 'f', -1, 64)
	}
	return strconv.AppendFloat(to, f, 'g', -1, 64)
}

func appendString(to []byte, text string) []byte {
	encoded, err := Marshal(text)
	if err != nil { // a string always encodes
		return append(to, `""`...)
	}
	return append(to, encoded...)
}
