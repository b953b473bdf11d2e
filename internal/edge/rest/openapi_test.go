package rest

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"buf.build/go/protovalidate"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
)

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	e := edgeOver(t, &services{}, nil)

	get := func(t *testing.T, headers ...string) *httptest.ResponseRecorder {
		t.Helper()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, openAPIPath, http.NoBody)
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		e.ServeHTTP(w, req)
		return w
	}
	var root object
	require.NoError(t, json.Unmarshal(get(t).Body.Bytes(), &root))
	operations := map[string]object{}
	for path, item := range at(root, "paths") {
		for method, operation := range item.(object) {
			operations[strings.ToUpper(method)+" "+path] = operation.(object)
		}
	}

	t.Run("it is OpenAPI 3.1 with a head", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "3.1.0", root["openapi"])
		require.Equal(t, "Servo", at(root, "info")["title"])
		require.Equal(t, "v1", at(root, "info")["version"])
		require.NotEmpty(t, root["servers"])
	})

	t.Run("who has it already does not get it again", func(t *testing.T) {
		t.Parallel()
		first := get(t)
		require.Equal(t, "application/json", first.Header().Get("Content-Type"))
		etag := first.Header().Get("ETag")
		require.NotEmpty(t, etag)
		require.Equal(t, http.StatusNotModified, get(t, "If-None-Match", etag).Code)
		require.Equal(t, http.StatusOK, get(t, "If-None-Match", `"other"`).Code)
		require.Equal(t, http.StatusOK, get(t, "Range", "bytes=9-1").Code)
	})

	t.Run("every call of the contract is there, and nothing else", func(t *testing.T) {
		t.Parallel()
		wanted := annotated()
		require.Greater(t, len(wanted), 30)
		for _, one := range wanted {
			require.Contains(t, operations, one)
		}
		require.Len(t, operations, len(wanted))
	})

	t.Run("every operation answers errors with a problem", func(t *testing.T) {
		t.Parallel()
		for name, operation := range operations {
			require.Equal(t, ref("responses/Problem"), at(operation, "responses")["default"], name)
			require.Contains(t, at(operation, "responses"), "200", name)
		}
		require.Contains(t, at(root, "components", "responses", "Problem", "content"), "application/problem+json")
	})

	t.Run("every reference leads somewhere, and every schema is referred to", func(t *testing.T) {
		t.Parallel()
		used := map[string]bool{}
		var visit func(any)
		visit = func(v any) {
			switch v := v.(type) {
			case object:
				if to, ok := v["$ref"].(string); ok {
					used[to] = true
					var target any = root
					for part := range strings.SplitSeq(strings.TrimPrefix(to, "#/"), "/") {
						o, isObject := target.(object)
						require.True(t, isObject && o[part] != nil, "%s leads nowhere", to)
						target = o[part]
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
		visit(root)
		require.Greater(t, len(used), 50)
		for name := range at(root, "components", "schemas") {
			require.True(t, used["#/components/schemas/"+name], "%s is not referenced", name)
		}
	})

	t.Run("operations have names of their own, tags that exist and the parameters of their paths", func(t *testing.T) {
		t.Parallel()
		tags, ids := map[any]bool{}, map[any]string{}
		for _, tag := range root["tags"].([]any) {
			tags[tag.(object)["name"]] = true
		}
		for name, operation := range operations {
			require.Empty(t, ids[operation["operationId"]], name)
			ids[operation["operationId"]] = name
			require.True(t, tags[operation["tags"].([]any)[0]], name)
			var declared []string
			parameters, _ := operation["parameters"].([]any)
			for _, p := range parameters {
				if o := p.(object); o["in"] == "path" {
					require.Equal(t, true, o["required"])
					declared = append(declared, o["name"].(string))
				}
			}
			var inPath []string
			for _, match := range regexp.MustCompile(`\{([^}]+)\}`).FindAllStringSubmatch(name, -1) {
				inPath = append(inPath, match[1])
			}
			require.ElementsMatch(t, inPath, declared, name)
		}
	})

	t.Run("operations have readable ids and summaries", func(t *testing.T) {
		t.Parallel()
		for name, operation := range operations {
			id, summary := operation["operationId"].(string), operation["summary"].(string)
			require.Regexp(t, `^([A-Z][a-z]*)+$`, id, name)
			require.Contains(t, summary, " ", name)
			require.LessOrEqual(t, len(summary), 200, name)
			require.NotContains(t, summary, id, name)
		}
		require.Equal(t, "ListPlatformAlerts", operations["GET /v1/alerts"]["operationId"])
		require.Equal(t, "SearchTenant", operations["GET /v1/tenants/{tenant}/search"]["operationId"])
	})

	t.Run("every body has an example that the server takes", func(t *testing.T) {
		t.Parallel()
		parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(string(e.openapi.body)))
		require.NoError(t, err)
		validator, err := protovalidate.New()
		require.NoError(t, err)
		unused, err := bodyExamples()
		require.NoError(t, err)
		for _, r := range e.routes {
			operation := operations[r.method+" "+publicPath(r.template)]
			if operation["requestBody"] == nil {
				continue
			}
			name := r.method + " " + r.template
			content := at(operation, "requestBody", "content", "application/json")
			require.NotNil(t, content["example"], "%s: add %s to docs/examples.json", name, r.input.Name())
			delete(unused, string(r.input.Name()))
			compiler := jsonschema.NewCompiler()
			require.NoError(t, compiler.AddResource("openapi.json", parsed))
			schema, err := compiler.Compile("openapi.json" + content["schema"].(object)["$ref"].(string))
			require.NoError(t, err)
			require.NoError(t, schema.Validate(content["example"]), name)

			body, err := json.Marshal(content["example"])
			require.NoError(t, err)
			kind, err := protoregistry.GlobalTypes.FindMessageByName(r.input.FullName())
			require.NoError(t, err)
			message := kind.New().Interface()
			require.NoError(t, protojson.Unmarshal(body, message), name)
			var broken *protovalidate.ValidationError
			if err := validator.Validate(message); errors.As(err, &broken) {
				for _, v := range broken.Violations {
					require.Contains(t, r.inPath, string(v.FieldDescriptor.Name()), "%s: %s", name, v.String())
				}
			} else {
				require.NoError(t, err, name)
			}
		}
		require.Empty(t, unused, "examples of no body")
	})

	t.Run("the parts of the edge itself are described", func(t *testing.T) {
		t.Parallel()
		events := operations["GET /v1/tenants/{tenant}/runs/{run}/events"]
		require.Contains(t, at(events, "responses", "200", "content"), "text/event-stream")
		require.Contains(t, at(events, "responses", "200", "content"), "application/json")
		require.Contains(t, events["parameters"], any(ref("parameters/LastEventID")))
		key := any(ref("parameters/IdempotencyKey"))
		for _, change := range []string{"POST /v1/tenants/{tenant}/runs", "POST /v1/tenants", "PATCH /v1/tenants/{tenant}/configs/{config}", "POST /v1/scheduler/tick"} {
			require.Contains(t, operations[change]["parameters"], key, change)
		}
		for _, other := range []string{"GET /v1/tenants/{tenant}/runs", "POST /v1/tasks/{task}/attempts/{attempt}:fail"} {
			require.NotContains(t, operations[other]["parameters"], key, other)
		}
		require.NotContains(t, string(e.openapi.body), "onnect-")
		require.NotContains(t, at(root, "components", "schemas", "servo.v1.TriggerRunRequest", "properties"), "tenant", "the path contains it")
	})

	t.Run("a body is required where fields are required", func(t *testing.T) {
		t.Parallel()
		for name, want := range map[string][]any{
			"POST /v1/tenants": {"name"}, "POST /v1/workers:claim": {"claim_id", "max", "pools", "worker_id"},
			"POST /v1/tasks/{task}/attempts/{attempt}:fail": {"error", "lease"}, "POST /v1/tenants/{tenant}/runs": nil, "POST /v1/tenants/{tenant}/deployments": nil, "POST /v1/tenants/{tenant}/runs/{run}:cancel": nil,
		} {
			require.Equal(t, want != nil, at(operations[name], "requestBody")["required"], name)
			to := at(operations[name], "requestBody", "content", "application/json", "schema")["$ref"].(string)
			got, _ := at(root, "components", "schemas", to[strings.LastIndexByte(to, '/')+1:])["required"].([]any)
			require.Equal(t, want, got, name)
		}
	})

	t.Run("the schemas take what the server takes and sends", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			schema, document string
			fits             bool
		}{
			{"servo.v1.ReportRequest", `{"worker_id":"w","items":[{"lease":"x","start":{}},{"lease":"y","complete":{"result":[1]}}]}`, true},
			{"servo.v1.ReportRequest", `{"worker_id":"w","items":[{"lease":"x","start":{},"unknown":1}]}`, false},
			{"servo.v1.TriggerRunRequest", `{"pipeline":"daily","retry":{"initial_delay":"1.5s"}}`, true},
			{"servo.v1.TriggerRunRequest", `{"retry":{"initial_delay":"PT1S"}}`, false},
			{"servo.v1.Run", `{"id":"x","state":"RUNNING","created_at":"2026-01-31T12:00:00Z","parameters":{"a":[null]}}`, true},
			{"ProblemDocument", problemJSON(t), true},
			{"ProblemDocument", `{"type":"x"}`, false},
		} {
			compiler := jsonschema.NewCompiler()
			parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(string(e.openapi.body)))
			require.NoError(t, err)
			require.NoError(t, compiler.AddResource("openapi.json", parsed))
			schema, err := compiler.Compile("openapi.json#/components/schemas/" + c.schema)
			require.NoError(t, err)
			instance, err := jsonschema.UnmarshalJSON(strings.NewReader(c.document))
			require.NoError(t, err)
			if err = schema.Validate(instance); c.fits {
				require.NoError(t, err, c.document)
			} else {
				require.Error(t, err, c.document)
			}
		}
	})
}

func problemJSON(t *testing.T) string {
	t.Helper()
	_, doc := problem.Document(problem.Status(fault.FromViolations([]fault.Violation{{Code: fault.InvalidArgument, Message: "a"}, {Code: fault.InvalidArgument, Message: "b"}})))
	data, err := json.Marshal(doc)
	require.NoError(t, err)
	return string(data)
}

// annotated is every operation of the contract, read without the help of the edge.
func annotated() (found []string) {
	protoregistry.GlobalFiles.RangeFilesByPackage("servo.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			calls := file.Services().Get(i).Methods()
			for j := range calls.Len() {
				rule, _ := proto.GetExtension(calls.Get(j).Options(), annotations.E_Http).(*annotations.HttpRule)
				if rule == nil {
					continue
				}
				for _, one := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
					for method, path := range map[string]string{
						http.MethodGet: one.GetGet(), http.MethodPost: one.GetPost(), http.MethodPut: one.GetPut(),
						http.MethodPatch: one.GetPatch(), http.MethodDelete: one.GetDelete(),
					} {
						if path != "" {
							found = append(found, method+" "+publicPath(path))
						}
					}
				}
			}
		}
		return true
	})
	return found
}
