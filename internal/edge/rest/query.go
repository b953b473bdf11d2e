package rest

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

// The messages that JSON writes in a form of their own.
const (
	structName    = "google.protobuf.Struct"
	valueName     = "google.protobuf.Value"
	listName      = "google.protobuf.ListValue"
	timestampName = "google.protobuf.Timestamp"
	durationName  = "google.protobuf.Duration"
	fieldMaskName = "google.protobuf.FieldMask"
)

// checkQuery refuses query parameters that a call does not have, or has otherwise. Where
// the gateway has a hook for this it is not called for calls with a body.
func checkQuery(r *route, raw string) error {
	query, err := parseQuery(raw)
	if err != nil {
		return err
	}
	var violations []fault.Violation
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		field := fieldNamed(r.input, name)
		switch {
		case field == nil || (!r.hasBody && !inQuery(field)):
			violations = append(violations, violation(name, "there is no such query parameter"+suggest.DidYouMean(name, r.parameters()), r.parametersRemedy()))
		case slices.Contains(r.inPath, field.TextName()):
			violations = append(violations, violation(name, "is a part of the path", "leave it out of the query"))
		case r.hasBody:
			violations = append(violations, violation(name, "belongs into the body", "send it as a field of the JSON body"))
		case seen[field.TextName()] != "":
			violations = append(violations, violation(name, "is set more than once, also as "+seen[field.TextName()], "send it once"))
		case !field.IsList() && len(query[name]) > 1:
			violations = append(violations, violation(name, fmt.Sprintf("is set %d times and can have one value", len(query[name])), "send it once"))
		default:
			for _, value := range query[name] {
				if bad := badScalar(field, value); bad != "" {
					violations = append(violations, violation(name, bad, ""))
					break
				}
			}
		}
		if field != nil {
			seen[field.TextName()] = name
		}
	}
	return fault.FromViolations(violations)
}

// parseQuery reads a query strictly: what net/url would drop without a word is refused.
func parseQuery(raw string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fault.New(fault.InvalidArgument, "the query cannot be read", fault.Remedy("write name=value&name=value, with escapes such as %20"), fault.Cause(err))
	}
	for name, values := range query {
		for _, text := range append([]string{name}, values...) {
			if !utf8.ValidString(text) {
				return nil, fault.New(fault.InvalidArgument, "the query is not valid UTF-8", fault.Remedy("escape the bytes of UTF-8 text"))
			}
			if strings.ContainsFunc(text, unicode.IsControl) {
				return nil, fault.New(fault.InvalidArgument, "the query contains control characters", fault.Remedy("remove them"))
			}
		}
	}
	return query, nil
}

func violation(field, message, remedy string) fault.Violation {
	return fault.Violation{Code: fault.InvalidArgument, Field: shorten(field), Message: message, Remedy: remedy}
}

// fieldNamed finds a field as JSON does: by its name in the contract, or in camel case.
func fieldNamed(m protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if field := m.Fields().ByTextName(name); field != nil {
		return field
	}
	return m.Fields().ByJSONName(name)
}

// inQuery reports whether a field can be written as name=value.
func inQuery(field protoreflect.FieldDescriptor) bool {
	if field.Message() == nil {
		return true
	}
	return field.Message().FullName() == timestampName || field.Message().FullName() == durationName
}

// parameters are the names that a query may have.
func (r *route) parameters() (names []string) {
	if r.hasBody {
		return nil
	}
	for i := range r.input.Fields().Len() {
		if field := r.input.Fields().Get(i); inQuery(field) && !slices.Contains(r.inPath, field.TextName()) {
			names = append(names, field.TextName())
		}
	}
	return names
}

func (r *route) parametersRemedy() string {
	if names := r.parameters(); len(names) > 0 {
		return "use " + strings.Join(names, ", ")
	}
	return "this call takes no query parameters"
}

// badScalar returns why a text is not a value of a field; empty if it is.
func badScalar(field protoreflect.FieldDescriptor, text string) string {
	switch field.Kind() {
	case protoreflect.StringKind:
		return ""
	case protoreflect.BoolKind:
		if text != "true" && text != "false" {
			return "must be true or false"
		}
	case protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		if !wholeNumber(field.Kind(), text) {
			return "must be a whole number in decimal, and not too large"
		}
	case protoreflect.EnumKind:
		if !enumValue(field.Enum(), text) {
			return "must be one of " + enumNames(field.Enum()) + suggest.DidYouMean(text, enumList(field.Enum()))
		}
	case protoreflect.MessageKind:
		return badMessage(field.Message(), text)
	default: // floats
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return "must be a number"
		}
	}
	return ""
}

// badMessage is badScalar for the messages that are written as text.
func badMessage(m protoreflect.MessageDescriptor, text string) string {
	switch m.FullName() {
	case timestampName:
		if at, err := time.Parse(time.RFC3339Nano, text); err != nil || at.UTC().Year() < 1 || at.UTC().Year() > 9999 {
			return "must be a time such as 2026-01-31T12:00:00Z"
		}
	case durationName:
		const mostSeconds = 315_576_000_000 // the contract's limit: ten thousand years
		seconds, ok := strings.CutSuffix(text, "s")
		n, err := strconv.ParseFloat(seconds, 64)
		if !ok || err != nil || strings.Trim(seconds, "-0123456789.") != "" || n > mostSeconds || n < -mostSeconds {
			return "must be a duration in seconds such as 1.5s"
		}
	case fieldMaskName:
		if !plainMask(text) {
			return "must be names of fields with commas between them, such as spec.priority,spec.retry"
		}
	default:
		return "cannot be written as text"
	}
	return ""
}

func wholeNumber(kind protoreflect.Kind, text string) bool {
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" || (digits[0] == '0' && len(text) > 1) {
		return false
	}
	var err error
	switch kind {
	case protoreflect.Int32Kind:
		_, err = strconv.ParseInt(text, 10, 32)
	case protoreflect.Int64Kind:
		_, err = strconv.ParseInt(text, 10, 64)
	case protoreflect.Uint32Kind:
		_, err = strconv.ParseUint(text, 10, 32)
	default:
		_, err = strconv.ParseUint(text, 10, 64)
	}
	return err == nil
}

func enumValue(enum protoreflect.EnumDescriptor, text string) bool {
	if enum.Values().ByName(protoreflect.Name(text)) != nil {
		return true
	}
	if !wholeNumber(protoreflect.Int32Kind, text) {
		return false
	}
	number, err := strconv.ParseInt(text, 10, 32)
	return err == nil && enum.Values().ByNumber(protoreflect.EnumNumber(number)) != nil
}

// enumList returns the names of an enum's values without the unspecified one.
func enumList(enum protoreflect.EnumDescriptor) (names []string) {
	for i := range enum.Values().Len() {
		if v := enum.Values().Get(i); v.Number() != 0 {
			names = append(names, string(v.Name()))
		}
	}
	return names
}

func enumNames(enum protoreflect.EnumDescriptor) string { return strings.Join(enumList(enum), ", ") }
