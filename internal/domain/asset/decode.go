package asset

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/suggest"
)

// object is a JSON object that is decoded field by field. Fields that no decoder has requested are
// errors.
type object struct {
	found  *violations
	path   string
	fields map[string]any
	known  []string
}

// asObject starts to decode a value as an object. A value of another type counts as an object
// without fields, and close reports nothing about it.
func asObject(found *violations, path string, value any) *object {
	fields, ok := value.(map[string]any)
	if !ok {
		found.add(path, "must be an object, is "+nameOf(value), "write its fields as key: value")
		found.broken = append(found.broken, path)
	}
	return &object{found: found, path: path, fields: fields}
}

// close reports the fields that no decoder has requested.
func (o *object) close() {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		if slices.Contains(o.known, name) {
			continue
		}
		slices.Sort(o.known)
		o.found.add(join(o.path, name), "unknown field"+suggest.DidYouMean(name, o.known),
			"known fields: "+strings.Join(o.known, ", "))
	}
}

// take returns the value of a field and adds the field to the known ones.
func (o *object) take(name string) (value any, path string, set bool) {
	o.known = append(o.known, name)
	value, set = o.fields[name]
	return value, join(o.path, name), set
}

// required reports a missing field.
func (o *object) required(name, remedy string) {
	if _, set := o.fields[name]; !set && o.fields != nil {
		o.found.add(join(o.path, name), "is missing", remedy)
	}
}

// field returns the value of a field if it has type T, and reports a value of another type.
func field[T any](o *object, name, want, remedy string) (value T, path string, ok bool) {
	taken, path, set := o.take(name)
	if value, ok = taken.(T); set && !ok {
		o.found.add(path, "must be "+want+", is "+nameOf(taken), remedy)
	}
	return value, path, ok
}

func (o *object) text(name string) string {
	value, path, set := o.take(name)
	if !set {
		return ""
	}
	text, ok := asText(o.found, path, value)
	if ok && text == "" {
		o.found.add(path, "is empty", "remove the field or set a value")
	}
	return text
}

func asText(found *violations, path string, value any) (string, bool) {
	text, ok := value.(string)
	if !ok {
		remedy := "write text"
		switch value.(type) {
		case float64, bool:
			remedy = fmt.Sprintf("put it in quotes: %q", plainScalar(value))
		}
		found.add(path, "must be a string, is "+nameOf(value), remedy)
		return "", false
	}
	if strings.ContainsRune(text, 0) {
		found.add(path, "contains a NUL character", "remove it")
		return "", false
	}
	return text, true
}

func (o *object) boolean(name string) bool {
	b, _, _ := field[bool](o, name, "true or false", "write true or false without quotes")
	return b
}

// number decodes a number. Zero means "not set" in Go, so an explicit zero is out of range here.
func (o *object) number(name string, low, high float64) float64 {
	f, path, ok := field[float64](o, name, "a number", "write a number without quotes")
	if ok && f == 0 {
		o.found.add(path, outOfRange(f, low, high), "use a value in the range, or remove the field for the default")
	}
	return f
}

// integer decodes a whole number from 1 to high.
func (o *object) integer(name string, high int) int {
	value, path, set := o.take(name)
	if !set {
		return 0
	}
	f, ok := value.(float64)
	if !ok || f != math.Trunc(f) {
		o.found.add(path, "must be a whole number, is "+nameOf(value), "write a whole number without quotes")
		return 0
	}
	if f == 0 || math.Abs(f) > maxSafeInteger {
		o.found.add(path, outOfRange(f, 1, high), "choose a number in the range")
		return 0
	}
	return int(f)
}

func (o *object) duration(name string, low, high Duration) Duration {
	value, path, set := o.take(name)
	if !set {
		return 0
	}
	text, ok := value.(string)
	if !ok {
		remedy := "write a duration such as 90s or 1h30m"
		if f, isNumber := value.(float64); isNumber && f > 0 {
			remedy = fmt.Sprintf("add a unit: %ss", plainScalar(f))
		}
		o.found.add(path, "must be a duration, is "+nameOf(value), remedy)
		return 0
	}
	d, err := ParseDuration(text)
	if err != nil {
		o.found.add(path, err.Error(), "write a duration such as 90s or 1h30m")
		return 0
	}
	if d == 0 {
		o.found.add(path, outOfRange(d, low, high), "use a value in the range, or remove the field for the default")
	}
	return d
}

// list decodes a list of values; limit bounds its length before its entries are decoded.
func (o *object) list(name string, limit int) (values []any, path string, set bool) {
	values, path, set = field[[]any](o, name, "a list", "write it as [a, b], or one '- ' per line")
	if len(values) > limit {
		o.found.add(path, tooMany(len(values), limit), "use fewer entries")
		values = values[:limit]
	}
	return values, path, set
}

// texts decodes a list of strings: nil if the field is not set, empty if the list is empty.
func (o *object) texts(name string, limit int) []string {
	values, path, set := o.list(name, limit)
	if !set {
		return nil
	}
	texts := make([]string, 0, len(values))
	for i, value := range values {
		text, _ := asText(o.found, at(path, i), value)
		texts = append(texts, text)
	}
	return texts
}

// dictionary decodes an object whose values are strings.
func (o *object) dictionary(name string) map[string]string {
	fields, path, ok := field[map[string]any](o, name, "an object", "write its entries as name: value")
	if !ok {
		return nil
	}
	texts := make(map[string]string, len(fields))
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		texts[key], _ = asText(o.found, join(path, key), fields[key])
	}
	return texts
}

// raw returns any JSON value in canonical form.
func (o *object) raw(name string) json.RawMessage {
	value, path, set := o.take(name)
	if !set {
		return nil
	}
	return asRaw(o.found, path, value)
}

func asRaw(found *violations, path string, value any) json.RawMessage {
	canonical, err := canon.Marshal(value)
	if err != nil {
		found.add(path, "is not a JSON value", "write a value that JSON can express")
		return nil
	}
	if holdsNUL(value) {
		found.add(path, "contains a NUL character", "remove it")
	}
	return canonical
}

// holdsNUL finds the one character that PostgreSQL cannot store in text or jsonb.
func holdsNUL(value any) bool {
	switch v := value.(type) {
	case string:
		return strings.ContainsRune(v, 0)
	case []any:
		return slices.ContainsFunc(v, holdsNUL)
	case map[string]any:
		for key, entry := range v {
			if holdsNUL(key) || holdsNUL(entry) {
				return true
			}
		}
	}
	return false
}

// nameOf names the type of a JSON value for messages.
func nameOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("a %T", value)
}

// plainScalar formats a scalar as a manifest would write it.
func plainScalar(value any) string {
	if f, ok := value.(float64); ok {
		if text, err := canon.Number(f); err == nil {
			return text
		}
	}
	return fmt.Sprint(value)
}

func outOfRange(value, low, high any) string {
	return fmt.Sprintf("is %v, must be %v to %v", value, low, high)
}
