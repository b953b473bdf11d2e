package rest

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the document
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/edge/problem"
)

// generatedOpenAPI is the document as the generator writes it from the contract.
//
//go:embed openapi.json
var generatedOpenAPI []byte

const openAPIPath = "/openapi.json"

// document is the OpenAPI document as it is served.
type document struct {
	root object
	body []byte
	etag string
}

// object is a JSON object.
type object = map[string]any

// newDocument completes the generated document: the generator knows calls and messages, but not the
// behaviour of this edge.
func newDocument(routes map[string]*route) (document, error) {
	var root object
	decoder := json.NewDecoder(bytes.NewReader(generatedOpenAPI))
	decoder.UseNumber()
	if err := decoder.Decode(&root); err != nil {
		return document{}, fmt.Errorf("read the generated OpenAPI document: %w", err)
	}
	examples, err := bodyExamples()
	if err != nil {
		return document{}, err
	}
	f := &finisher{root: root, schemas: at(root, "components", "schemas"), examples: examples}
	f.head()
	f.wellKnown()
	if err := f.paths(routes); err != nil {
		return document{}, err
	}
	f.components()
	f.prune()
	describe(root)
	body, err := json.Marshal(root)
	if err != nil {
		return document{}, err
	}
	body = append(body, '\n')
	sum := sha256.Sum256(body)
	return document{root: root, body: body, etag: `"` + hex.EncodeToString(sum[:16]) + `"`}, nil
}

// ServeHTTP answers with the document.
func (d document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const allow = "GET, HEAD, OPTIONS"
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions:
		w.Header().Set("Allow", allow)
		w.WriteHeader(http.StatusNoContent)
		return
	default:
		w.Header().Set("Allow", allow)
		problem.Write(w, r, fault.New(problem.MethodNotAllowed, r.Method+" is not supported at "+openAPIPath, fault.Remedy("use "+allow)))
		return
	}
	r.Header = r.Header.Clone()
	r.Header.Del("Range") // ranges are not supported
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache") // revalidate each time: the ETag makes it cheap
	w.Header().Set("ETag", d.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.body))
}

// finisher holds the document while it is finished.
type finisher struct {
	root     object
	schemas  object
	examples map[string]object // of request bodies, by message
}

// at returns a nested object, and creates it if it does not exist.
func at(o object, path ...string) object {
	for _, name := range path {
		inner, ok := o[name].(object)
		if !ok {
			inner = object{}
			o[name] = inner
		}
		o = inner
	}
	return o
}

func ref(to string) object { return object{"$ref": "#/components/" + to} }

func (f *finisher) head() {
	f.root["info"] = object{
		"title":   "Servo",
		"version": "v1",
		"summary": "Runs data pipelines for many tenants on PostgreSQL.",
		"description": "Every successful answer has the status 200. Every error is a problem document (RFC 9457) with a stable type. " +
			"Unknown fields, query parameters and paths are refused. Every answer has the header X-Request-Id: the caller's, or a new one.",
		"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
	}
	f.root["security"] = []any{object{"bearer": []any{}}, object{"apiKey": []any{}}, object{}} // a server may be open
	f.root["servers"] = []any{object{"url": "/", "description": "this server"}}
	tags, _ := f.root["tags"].([]any)
	for _, tag := range tags {
		if t, ok := tag.(object); ok {
			t["name"] = tagName(fmt.Sprint(t["name"]))
			t["description"] = unwrap(t["description"])
		}
	}
}

// ruleLine is a line that the generator adds to a description for a rule that has no keyword.
var ruleLine = regexp.MustCompile(`(?m)^\s*[a-z]+\.[a-z_]+ = .*$`)

// describe leaves of descriptions what was written for people, as one paragraph.
func describe(v any) {
	switch v := v.(type) {
	case object:
		if text, ok := v["description"].(string); ok {
			if text = unwrap(ruleLine.ReplaceAllString(text, "")); text == "" {
				delete(v, "description")
			} else {
				v["description"] = text
			}
		}
		for _, inner := range v {
			describe(inner)
		}
	case []any:
		for _, inner := range v {
			describe(inner)
		}
	}
}

// tagName is "Run" of servo.v1.RunService.
func tagName(service string) string {
	return strings.TrimSuffix(service[strings.LastIndexByte(service, '.')+1:], "Service")
}

// unwrap makes one paragraph of a comment's lines.
func unwrap(comment any) string { return strings.Join(strings.Fields(fmt.Sprint(comment)), " ") }

// wellKnown describes messages with their own form in JSON, and corrects the schemas of groups of which
// one field may be set.
func (f *finisher) wellKnown() {
	f.schemas[timestampName] = object{"type": "string", "format": "date-time", "description": "A time by RFC 3339.", "examples": []any{"2026-01-31T12:00:00Z"}}
	f.schemas[durationName] = object{"type": "string", "pattern": `^-?[0-9]+(\.[0-9]{1,9})?s$`, "description": "A duration in seconds.", "examples": []any{"1.5s"}}
	f.schemas[fieldMaskName] = object{"type": "string", "description": "Names of fields, with commas between them.", "examples": []any{"spec.priority,spec.retry.max_delay"}}
	f.schemas[structName] = object{"type": "object", "additionalProperties": true, "description": "Any JSON object."}
	f.schemas[valueName] = object{"description": "Any JSON value."}
	for _, s := range f.schemas {
		schema, ok := s.(object)
		if !ok {
			continue
		}
		// additionalProperties looks at the properties beside it alone: with allOf or oneOf it
		// would refuse every field.
		if (schema["allOf"] != nil || schema["oneOf"] != nil) && schema["additionalProperties"] == false {
			delete(schema, "additionalProperties")
			schema["unevaluatedProperties"] = false
		}
	}
}

// paths finishes the operations, one for each route.
func (f *finisher) paths(routes map[string]*route) error {
	generated := at(f.root, "paths")
	finished := object{}
	for _, r := range routes {
		item := at(generated, generatedPath(r.template))
		operation, ok := item[strings.ToLower(r.method)].(object)
		if !ok {
			return fmt.Errorf("the OpenAPI document has no %s %s: generate it again", r.method, r.template)
		}
		if err := f.operation(r, operation); err != nil {
			return err
		}
		at(finished, publicPath(r.template))[strings.ToLower(r.method)] = operation
	}
	f.root["paths"] = finished
	return nil
}

const assetVariable = "{asset=*/*}"

// generatedPath is how the generator writes a template; it makes little of a variable with
// two parts.
func generatedPath(template string) string {
	return strings.ReplaceAll(template, assetVariable, "*/{*}")
}

// publicPath has the two parts of an asset's key as two parameters, since OpenAPI has no
// variable with a slash in it.
func publicPath(template string) string {
	return strings.ReplaceAll(template, assetVariable, "{namespace}/{name}")
}

func (f *finisher) operation(r *route, o object) error {
	call := r.name[strings.LastIndexByte(r.name, '.')+1:]
	id, description := operationID(fmt.Sprint(o["operationId"]), r.template), unwrap(o["description"])
	o["operationId"], o["description"], o["summary"] = id, description, summary(call, id, description, r.template)
	o["tags"] = []any{tagName(r.name[:strings.LastIndexByte(r.name, '.')])}
	responses := at(o, "responses")
	responses["default"] = ref("responses/Problem")
	at(responses, "200")["description"] = "Success."
	at(responses, "200", "headers")[requestIDHeader] = ref("headers/RequestId")

	parameters, _ := o["parameters"].([]any)
	parameters = slices.DeleteFunc(parameters, func(p any) bool {
		parameter, ok := p.(object)
		if !ok || parameter["name"] == "*" || parameter["in"] == "header" { // parameters of Connect
			return true
		}
		f.parameter(parameter)
		return false
	})
	if strings.Contains(r.template, assetVariable) {
		for _, name := range []string{"namespace", "name"} {
			parameters = append(parameters, object{"name": name, "in": "path", "required": true, "description": "Of the asset's key: namespace/name.", "schema": object{"type": "string", "minLength": 1, "maxLength": 100}})
		}
	}
	if takesIdempotencyKey(r.name) {
		parameters = append(parameters, ref("parameters/IdempotencyKey"))
		at(responses, "200", "headers")["Idempotency-Replayed"] = ref("headers/IdempotencyReplayed")
	}
	if r.name == eventsCall {
		parameters = append(parameters, ref("parameters/LastEventID"), ref("parameters/After"))
		at(responses, "200", "content")[streamType] = object{"schema": object{"type": "string", "description": streamDescription}}
	}
	if len(parameters) > 0 {
		o["parameters"] = parameters
	}
	return f.requestBody(r, o)
}

// streamDescription documents the stream.
const streamDescription = "With Accept: text/event-stream. Each event has its position in the run as id, its type (such as task.succeeded) as event and the Event as data. " +
	"The last one is \"end\", with the Run as data; \"problem\" reports why the stream ended early, with a problem document as data. " +
	"The server sends a comment every 15 seconds. Continue after the last id with Last-Event-ID; do not reconnect after \"end\"."

// takesIdempotencyKey reports whether a call accepts an idempotency key.
func takesIdempotencyKey(call string) bool {
	dot := strings.LastIndexByte(call, '.')
	return intercept.TakesKey(access.Methods()["/"+call[:dot]+"/"+call[dot+1:]])
}

// parameter shortens what the generator copies from the well-known types.
func (f *finisher) parameter(p object) {
	schema := at(p, "schema")
	if schema["format"] == "date-time" {
		p["schema"] = ref("schemas/" + timestampName)
		return
	}
	delete(schema, "title")
	delete(schema, "description") // the parameter has its own
	if text, ok := p["description"]; ok {
		p["description"] = unwrap(text)
	}
}

// requestBody removes the fields of the path from the body, sets the required fields, and requires a
// body only if there are any. All requests become named schemas.
func (f *finisher) requestBody(r *route, o object) error {
	if _, ok := o["requestBody"]; !ok {
		return nil // all of it is in the path
	}
	name := string(r.input.FullName())
	schema, ok := f.schemas[name].(object)
	if !ok {
		return fmt.Errorf("the OpenAPI document has no schema %s: generate it again", name)
	}
	var required []any
	declared, _ := schema["required"].([]any)
	for _, field := range slices.Sorted(maps.Keys(at(schema, "properties"))) {
		property := at(schema, "properties", field)
		switch {
		case slices.Contains(r.inPath, field):
			delete(at(schema, "properties"), field)
		case slices.Contains(declared, any(field)) || refusesNothing(property):
			required = append(required, field)
		}
	}
	delete(schema, "required")
	if len(required) > 0 {
		schema["required"] = required
	}
	content := object{"schema": ref("schemas/" + name)}
	if example, ok := f.examples[string(r.input.Name())]; ok {
		content["example"] = example
	}
	o["requestBody"] = object{"required": len(required) > 0, "content": object{"application/json": content}}
	return nil
}

// refusesNothing reports whether an absent value violates the rules of a property: the contract treats
// it as the empty value.
func refusesNothing(property object) bool {
	for _, rule := range []string{"minLength", "minItems", "minimum"} {
		if least, ok := property[rule].(json.Number); ok && least != "0" && !strings.HasPrefix(least.String(), "-") {
			return true
		}
	}
	return property["format"] == "uuid"
}

// components adds what every operation refers to.
func (f *finisher) components() {
	components := at(f.root, "components")
	text := object{"type": "string"}
	violation := object{"type": "object", "required": []any{"code", "message"}, "properties": object{"code": text, "field": text, "message": text, "remedy": text}}
	f.schemas["ProblemDocument"] = object{
		"type": "object", "title": "Problem", "description": "What went wrong, by RFC 9457. Figures behind it (limit, current …) are members of their own.",
		"required":             []any{"type", "title", "status", "detail", "code", "message"},
		"additionalProperties": true,
		"properties": object{
			"type":        object{"type": "string", "format": "uri-reference", "description": "Stable for a code.", "examples": []any{problem.TypeOf(fault.NotFound)}},
			"title":       text,
			"status":      object{"type": "integer"},
			"detail":      object{"type": "string", "description": "What is wrong and what to do, for people."},
			"code":        object{"type": "string", "description": "What programs go by.", "examples": []any{string(fault.NotFound)}},
			"message":     object{"type": "string", "description": "What is wrong."},
			"field":       object{"type": "string", "description": "What it is about."},
			"remedy":      object{"type": "string", "description": "What to do about it."},
			"violations":  object{"type": "array", "items": violation, "description": "All broken rules, if there are several."},
			"retry_after": object{"type": "integer", "description": "Seconds after which the same request may work."},
		},
	}
	at(components, "responses")["Problem"] = object{
		"description": "It did not work.",
		"headers": object{
			requestIDHeader: ref("headers/RequestId"),
			"Retry-After":   object{"description": "Seconds after which the same request may work.", "schema": object{"type": "integer"}},
		},
		"content": object{problem.ContentType: object{"schema": ref("schemas/ProblemDocument")}},
	}
	at(components, "headers")["IdempotencyReplayed"] = object{"description": "true, if the answer was given before to the same Idempotency-Key.", "schema": text}
	at(components, "headers")["RequestId"] = object{"description": "Names the request in logs: the caller's, or a new one.", "schema": text}
	components["securitySchemes"] = object{
		"bearer": object{"type": "http", "scheme": "bearer", "description": "An API key: sk_…"},
		"apiKey": object{"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "The same, for those who cannot set Authorization."},
	}
	parameters := at(components, "parameters")
	parameters["IdempotencyKey"] = object{
		"name": "Idempotency-Key", "in": "header", "description": "The same request with the same key, within a day, is answered as the first was, without its secrets; another request with it is a conflict (409).",
		"schema": object{"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]*$"},
	}
	parameters["LastEventID"] = object{"name": "Last-Event-ID", "in": "header", "description": "Continues a stream after the event with this id.", "schema": object{"type": "string", "maxLength": 100}}
	parameters["After"] = object{"name": "after", "in": "query", "description": "Of a stream: the same as Last-Event-ID, which is stronger.", "schema": object{"type": "string", "maxLength": 100}}
}

// prune removes the schemas that nothing refers to: requests that are all path and query.
func (f *finisher) prune() {
	used := map[string]bool{}
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case object:
			if to, ok := v["$ref"].(string); ok {
				name, isSchema := strings.CutPrefix(to, "#/components/schemas/")
				if isSchema && !used[name] {
					used[name] = true
					visit(f.schemas[name])
				}
			}
			for _, inner := range v {
				visit(inner)
			}
		case []any:
			for _, inner := range v {
				visit(inner)
			}
		}
	}
	visit(f.root["paths"])
	visit(at(f.root, "components", "responses"))
	for name := range f.schemas {
		if !used[name] {
			delete(f.schemas, name)
		}
	}
}
