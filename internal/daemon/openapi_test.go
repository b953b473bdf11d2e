package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// described is a client that knows nothing but a server's OpenAPI document: where a value goes
// and what comes back is what the document defines, and is checked against it.
type described struct {
	server   string
	root     map[string]any
	compiler *jsonschema.Compiler
}

func describedBy(t *testing.T, server string) *described {
	t.Helper()
	d := &described{server: server, compiler: jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	body := d.send(t, http.MethodGet, "/openapi.json", nil, http.StatusOK)
	require.NoError(t, json.Unmarshal(body, &d.root))
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, d.compiler.AddResource("openapi.json", parsed))
	return d
}

func (d *described) send(t *testing.T, method, path string, body []byte, want int) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, d.server+path, bytes.NewReader(body))
	require.NoError(t, err)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, want, response.StatusCode, "%s %s %s: %s", method, path, body, answer)
	return answer
}

// find is an operation by its id: method, path, and its description.
func (d *described) find(t *testing.T, id string) (method, path string, operation map[string]any) {
	t.Helper()
	for path, item := range d.root["paths"].(map[string]any) {
		for method, o := range item.(map[string]any) {
			if operation := o.(map[string]any); operation["operationId"] == id {
				return strings.ToUpper(method), path, operation
			}
		}
	}
	require.Fail(t, "no operation "+id)
	return "", "", nil
}

// at walks into the document, along references.
func (d *described) at(o any, path ...string) (any, string) {
	pointer := ""
	for _, name := range append([]string{""}, path...) {
		inner, ok := o.(map[string]any)
		if !ok {
			return nil, ""
		}
		if name != "" {
			o, pointer = inner[name], pointer+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		}
		if next, ok := o.(map[string]any); ok {
			if reference, ok := next["$ref"].(string); ok {
				pointer = strings.TrimPrefix(reference, "#")
				o, _ = d.at(d.root, strings.Split(strings.TrimPrefix(pointer, "/"), "/")...)
			}
		}
	}
	return o, pointer
}

// fits checks a JSON text against the schema at a place of the document.
func (d *described) fits(t *testing.T, pointer string, text []byte, what string) {
	t.Helper()
	schema, err := d.compiler.Compile("openapi.json#" + pointer)
	require.NoError(t, err, what)
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err, what)
	require.NoError(t, schema.Validate(instance), "%s: %s", what, text)
}

// call makes a call with these values, each where the document has it, and gives the answer.
func (d *described) call(t *testing.T, id string, values map[string]any) map[string]any {
	t.Helper()
	method, path, operation := d.find(t, id)
	query, left := url.Values{}, map[string]any{}
	for name, value := range values {
		left[name] = value
	}
	parameters, _ := operation["parameters"].([]any)
	for _, p := range parameters {
		found, _ := d.at(p)
		parameter := found.(map[string]any)
		name := parameter["name"].(string)
		value, given := left[name]
		require.True(t, given || parameter["required"] != true, "%s needs %s", id, name)
		if !given {
			continue
		}
		delete(left, name)
		switch parameter["in"] {
		case "path":
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(fmt.Sprint(value)))
		case "query":
			query.Set(name, fmt.Sprint(value))
		}
	}
	require.NotContains(t, path, "{", "%s: a part of the path has no parameter", id)
	var body []byte
	if schema, pointer := d.at(operation, "requestBody", "content", "application/json", "schema"); schema != nil {
		var err error
		body, err = json.Marshal(left)
		require.NoError(t, err)
		d.fits(t, pointer, body, "the body of "+id)
	} else {
		require.Empty(t, left, "%s has no place for this", id)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	answer := d.send(t, method, path, body, http.StatusOK)
	_, pointer := d.at(operation, "responses", "200", "content", "application/json", "schema")
	d.fits(t, pointer, answer, "the answer of "+id)
	var out map[string]any
	require.NoError(t, json.Unmarshal(answer, &out))
	return out
}

// TestClientOfOpenAPI goes through the life of a tenant with a client that was made of
// the document alone, as generated ones are.
func TestClientOfOpenAPI(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	d := describedBy(t, server.URL)

	d.call(t, "CreateTenant", map[string]any{"name": "acme"})
	require.Equal(t, "acme", d.call(t, "GetTenant", map[string]any{"tenant": "acme"})["name"])
	d.call(t, "ListTenants", map[string]any{"page_size": 1})
	manifest := map[string]any{
		"version": 1, "assets": []any{map[string]any{"key": "bronze/orders", "go": map[string]any{}, "pool": "idle"}},
		"pipelines": []any{map[string]any{"name": "orders", "overlap": "allow"}},
	}
	d.call(t, "Deploy", map[string]any{"tenant": "acme", "manifest": manifest})
	d.call(t, "ListDeployments", map[string]any{"tenant": "acme"})
	d.call(t, "ListPipelines", map[string]any{"tenant": "acme"})
	d.call(t, "GetAsset", map[string]any{"tenant": "acme", "namespace": "bronze", "name": "orders"})
	d.call(t, "PlanRun", map[string]any{"tenant": "acme", "pipeline": "orders"})

	run := d.call(t, "TriggerRun", map[string]any{"tenant": "acme", "pipeline": "orders"})["run"].(map[string]any)["id"]
	list := d.call(t, "ListRuns", map[string]any{"tenant": "acme", "pipeline": "orders", "page_size": 10})
	require.Len(t, list["runs"], 1)
	of := map[string]any{"tenant": "acme", "run": run}
	require.Equal(t, run, d.call(t, "GetRun", of)["id"])
	d.call(t, "ListTasks", of)
	d.call(t, "ListRunEvents", of)
	d.call(t, "ExplainRun", of)
	require.Equal(t, "CANCELLED", d.call(t, "CancelRun", map[string]any{"tenant": "acme", "run": run, "reason": "a test"})["state"])
	d.call(t, "RetryRun", of)

	spec := map[string]any{"pipeline": "orders", "trigger": map[string]any{"cron": "0 6 * * *"}}
	config := d.call(t, "CreateConfig", map[string]any{"tenant": "acme", "name": "daily", "spec": spec})["name"]
	named := map[string]any{"tenant": "acme", "config": config}
	d.call(t, "GetConfig", named)
	d.call(t, "ListConfigs", map[string]any{"tenant": "acme"})
	d.call(t, "PreviewConfig", named)
	d.call(t, "ListSlots", named)
	d.call(t, "GetOutcomes", named)
	d.call(t, "PauseConfig", named)
	d.call(t, "ExplainConfig", named)
	d.call(t, "ResumeConfig", named)
	d.call(t, "ListConfigAudit", named)
	d.call(t, "DeleteConfig", named)

	d.call(t, "CreateAlertChannel", map[string]any{"tenant": "acme", "name": "on-call", "url": "https://hooks.example.com/servo"})
	d.call(t, "ListAlertChannels", map[string]any{"tenant": "acme"})
	d.call(t, "ListAlerts", map[string]any{"tenant": "acme"})
	d.call(t, "DeleteAlertChannel", map[string]any{"tenant": "acme", "channel": "on-call"})
	key := d.call(t, "CreateKey", map[string]any{"tenant": "acme", "name": "ci", "role": "developer"})["key"].(map[string]any)["id"]
	d.call(t, "ListKeys", map[string]any{"tenant": "acme"})
	d.call(t, "RevokeKey", map[string]any{"tenant": "acme", "key": key})
	d.call(t, "ListAudit", map[string]any{"tenant": "acme"})
	d.call(t, "GetQuotas", map[string]any{"tenant": "acme"})
	d.call(t, "GetStatus", nil)
	d.call(t, "GetActivity", map[string]any{"tenant": "acme", "hours": 2})

	// An error has the form that the document defines for every call.
	problem := d.send(t, http.MethodGet, "/v1/tenants/missing", nil, http.StatusNotFound)
	d.fits(t, "/components/schemas/ProblemDocument", problem, "a problem")
}
