package rest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// docsReader turns parts of the document into what people read.
type docsReader struct{ root object }

// follow gives what a reference leads to, and its name.
func (d docsReader) follow(o object) (to object, name string) {
	reference, ok := o["$ref"].(string)
	if !ok {
		return o, ""
	}
	path := strings.Split(strings.TrimPrefix(reference, "#/"), "/")
	return at(d.root, path...), path[len(path)-1]
}

func (d docsReader) operation(method, path string, o object) docsOperation {
	view := docsOperation{ID: words(o, "operationId"), Method: method, Path: path, Description: words(o, "description")}
	parameters, _ := o["parameters"].([]any)
	for _, p := range parameters {
		reference, ok := p.(object)
		if !ok {
			continue
		}
		parameter, _ := d.follow(reference)
		field := d.field(words(parameter, "name"), at(parameter, "schema"))
		field.In, field.Required = words(parameter, "in"), parameter["required"] == true
		if text := words(parameter, "description"); text != "" {
			field.Description = text
		}
		view.Parameters = append(view.Parameters, field)
	}
	body := object(nil)
	if _, has := o["requestBody"]; has {
		body = at(o, "requestBody", "content", "application/json")
		view.Body = new(docsType)
		*view.Body = d.typeOf(at(body, "schema"))
	}
	view.Answer = d.typeOf(at(o, "responses", "200", "content", "application/json", "schema"))
	view.Curl = d.curl(method, path, body)
	return view
}

// curl is how to make a call from a terminal. The body is the content of the operation's.
func (d docsReader) curl(method, path string, body object) string {
	var text strings.Builder
	text.WriteString("curl -sS ")
	if (body == nil) != (method == "GET") || body != nil && method != "POST" {
		fmt.Fprintf(&text, "-X %s ", method)
	}
	fmt.Fprintf(&text, "\"$SERVO_URL%s\" \\\n  -H \"Authorization: Bearer $SERVO_API_KEY\"", variable.ReplaceAllStringFunc(path, func(v string) string {
		return strings.ToUpper(strings.Trim(v, "{}"))
	}))
	if body != nil {
		example, _ := json.Marshal(body["example"]) // it was read from JSON
		fmt.Fprintf(&text, " \\\n  -H 'Content-Type: application/json' \\\n  -d '%s'", example)
	}
	return text.String()
}

func (d docsReader) schema(name string, s object) docsSchema {
	view := docsSchema{Name: name, Description: words(s, "description")}
	values, _ := s["enum"].([]any)
	for _, value := range values {
		view.Values = append(view.Values, fmt.Sprint(value))
	}
	required, _ := s["required"].([]any)
	add := func(from object) {
		properties, _ := from["properties"].(object)
		for _, property := range sortedKeys(properties) {
			of, _ := properties[property].(object)
			field := d.field(property, of)
			field.Required = slices.Contains(required, any(property))
			view.Fields = append(view.Fields, field)
		}
	}
	add(s)
	for _, group := range []string{"allOf", "oneOf"} { // of which one may be there
		parts, _ := s[group].([]any)
		for _, part := range parts {
			one, _ := part.(object)
			add(one)
			choices, _ := one["oneOf"].([]any)
			for _, choice := range choices {
				if c, ok := choice.(object); ok {
					add(c)
				}
			}
		}
	}
	return view
}

func (d docsReader) field(name string, schema object) docsField {
	target, _ := d.follow(schema)
	f := docsField{Name: name, Type: d.typeOf(schema), Description: words(schema, "description")}
	if f.Description == "" && f.Type.Schema == "" {
		f.Description = words(target, "description")
	}
	var rules []string
	for _, rule := range []struct{ key, text string }{
		{"minLength", "at least %v characters"},
		{"maxLength", "at most %v characters"},
		{"minimum", "at least %v"},
		{"maximum", "at most %v"},
		{"minItems", "at least %v items"},
		{"maxItems", "at most %v items"},
		{"maxProperties", "at most %v entries"},
		{"pattern", "matches %v"},
	} {
		if value, ok := schema[rule.key]; ok && fmt.Sprint(value) != "0" {
			rules = append(rules, fmt.Sprintf(rule.text, value))
		}
	}
	f.Rules = strings.Join(rules, ", ")
	return f
}

// typeOf is the type of a schema in a word.
func (d docsReader) typeOf(schema object) docsType {
	if target, name := d.follow(schema); name != "" && target != nil {
		return docsType{Text: strings.TrimPrefix(strings.TrimPrefix(name, "servo.v1."), "google.protobuf."), Schema: name}
	}
	switch words(schema, "type") {
	case "array":
		inner := d.typeOf(at(schema, "items"))
		return docsType{Text: "list of " + inner.Text, Schema: inner.Schema}
	case "object":
		if values, ok := schema["additionalProperties"].(object); ok {
			inner := d.typeOf(values)
			return docsType{Text: "map to " + inner.Text, Schema: inner.Schema}
		}
		return docsType{Text: "object"}
	case "":
		return docsType{Text: "any value"}
	}
	if format := words(schema, "format"); format != "" {
		return docsType{Text: words(schema, "type") + " (" + format + ")"}
	}
	return docsType{Text: words(schema, "type")}
}
