package rest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// manifest has one pipeline of two assets.
const manifest = `{"version":1,"assets":[
	{"key":"bronze/orders","go":{"handler":"orders"}},
	{"key":"gold/revenue","upstream":["bronze/orders"],"go":{"handler":"revenue"}}],
	"pipelines":[{"name":"daily","select":["gold/revenue","+gold/revenue"]}]}`

// answer is what came back.
type answer struct {
	*http.Response
	body []byte
}

// json is the body as an object.
func (a answer) json(t testing.TB) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal(a.body, &out), "%s", a.body)
	return out
}

// call sends a request; headers are "Name: value". A JSON body gets its content type.
func call(t testing.TB, base, method, path, body string, headers ...string) answer {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, base+path, reader)
	require.NoError(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Content-Type" {
			req.Header.Del(name)
		}
		if value != "" {
			req.Header.Add(name, value)
		}
	}
	res, err := bare.RoundTrip(req)
	require.NoError(t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return answer{res, data}
}

// world is a server with a tenant, a deployment and a run that waits for a worker.
type world struct {
	url, run string
}

func newWorld(t testing.TB) world {
	t.Helper()
	s := servertest.Start(t)
	require.Equal(t, http.StatusOK, call(t, s.URL, "POST", "/v1/tenants", `{"name":"acme"}`).StatusCode)
	deployed := call(t, s.URL, "POST", "/v1/tenants/acme/deployments", `{"manifest":`+manifest+`}`)
	require.Equal(t, http.StatusOK, deployed.StatusCode, "%s", deployed.body)
	triggered := call(t, s.URL, "POST", "/v1/tenants/acme/runs", `{"pipeline":"daily"}`)
	require.Equal(t, http.StatusOK, triggered.StatusCode, "%s", triggered.body)
	run, _ := triggered.json(t)["run"].(map[string]any)
	return world{url: s.URL, run: fmt.Sprint(run["id"])}
}

// edgeCase is one row: a request, and what must come of it.
type edgeCase struct {
	claim   string
	method  string
	path    string
	body    string
	headers []string

	status int
	code   string
	field  string
	detail string // in the detail
}

// edgeCases is the whole table of what the edge promises. {run} stands for the run's id.
func edgeCases() []edgeCase {
	const runs = "/v1/tenants/acme/runs"
	deep := strings.Repeat(`{"a":`, 101) + "1" + strings.Repeat("}", 101)
	veryDeep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	large := `{"name":"` + strings.Repeat("x", 4<<20) + `"}`
	return []edgeCase{
		{claim: "a known path is answered", method: "GET", path: runs, status: 200},
		{claim: "an asset's key has two parts", method: "GET", path: "/v1/tenants/acme/assets/gold/revenue", status: 200},

		{claim: "an unknown query parameter is refused", method: "GET", path: runs + "?page_siez=3", status: 400, code: "INVALID_ARGUMENT", field: "page_siez", detail: "did you mean page_size?"},
		{claim: "an unknown query parameter is refused where there is a body", method: "POST", path: "/v1/tenants?dry=1", body: `{"name":"x"}`, status: 400, code: "INVALID_ARGUMENT", field: "dry"},
		{claim: "a body's field is refused in the query", method: "POST", path: runs + "?pipeline=daily", body: `{}`, status: 400, code: "INVALID_ARGUMENT", field: "pipeline", detail: "belongs into the body"},
		{claim: "a field of the path is refused in the query", method: "GET", path: runs + "?tenant=other", status: 400, code: "INVALID_ARGUMENT", field: "tenant", detail: "part of the path"},
		{claim: "a part of a message is no query parameter", method: "GET", path: runs + "?from.seconds=1", status: 400, code: "INVALID_ARGUMENT", field: "from.seconds"},
		{claim: "a repeated parameter with one value is refused", method: "GET", path: runs + "?page_size=1&page_size=2", status: 400, code: "INVALID_ARGUMENT", field: "page_size"},
		{claim: "one parameter under two names is refused", method: "GET", path: runs + "?page_size=1&pageSize=2", status: 400, code: "INVALID_ARGUMENT", field: "page_size"},
		{claim: "a list may be repeated", method: "GET", path: runs + "?state=RUNNING&state=PENDING", status: 200},
		{claim: "a number must be one", method: "GET", path: runs + "?page_size=many", status: 400, code: "INVALID_ARGUMENT", field: "page_size"},
		{claim: "a number is decimal", method: "GET", path: runs + "?page_size=0x10", status: 400, code: "INVALID_ARGUMENT", field: "page_size"},
		{claim: "a number must fit", method: "GET", path: runs + "?page_size=99999999999", status: 400, code: "INVALID_ARGUMENT", field: "page_size"},
		{claim: "a number has its range", method: "GET", path: runs + "?page_size=101", status: 400, code: "INVALID_ARGUMENT", field: "page_size"},
		{claim: "a state must be one", method: "GET", path: runs + "?state=RUNNINGG", status: 400, code: "INVALID_ARGUMENT", field: "state", detail: "did you mean RUNNING?"},
		{claim: "a time must be one", method: "GET", path: runs + "?from=yesterday", status: 400, code: "INVALID_ARGUMENT", field: "from"},
		{claim: "a time is taken", method: "GET", path: runs + "?from=2026-01-31T12:00:00%2B01:00", status: 200},
		{claim: "a bad escape in the query is refused", method: "GET", path: runs + "?page_token=%zz", status: 400, code: "INVALID_ARGUMENT"},
		{claim: "a semicolon in the query is refused", method: "GET", path: runs + "?page_size=1;page_token=a", status: 400, code: "INVALID_ARGUMENT"},
		{claim: "a query that is not UTF-8 is refused", method: "GET", path: runs + "?page_token=%ff", status: 400, code: "INVALID_ARGUMENT"},
		{claim: "a zero byte in the query is refused", method: "GET", path: runs + "?pipeline=%00", status: 400, code: "INVALID_ARGUMENT"},

		{claim: "an unknown field is refused by name", method: "POST", path: runs, body: `{"pipelin":"daily"}`, status: 400, code: "INVALID_ARGUMENT", field: "pipelin", detail: "did you mean pipeline?"},
		{claim: "an unknown field is found inside", method: "POST", path: runs, body: `{"pipeline":"daily","retry":{"max_atempts":2}}`, status: 400, code: "INVALID_ARGUMENT", field: "retry.max_atempts"},
		{claim: "a value of the wrong type is refused by name", method: "POST", path: runs, body: `{"pipeline":7}`, status: 400, code: "INVALID_ARGUMENT", field: "pipeline", detail: "must be text, not a number"},
		{claim: "a list must be one", method: "POST", path: runs, body: `{"select":"gold/revenue"}`, status: 400, code: "INVALID_ARGUMENT", field: "select", detail: "must be an array"},
		{claim: "an item of a list is named", method: "POST", path: "/v1/workers:report", body: `{"worker_id":"w","items":[{"lease":"x","start":{}},{"lease":1}]}`, status: 400, code: "INVALID_ARGUMENT", field: "items[1].lease"},
		{claim: "one of a group may be set", method: "POST", path: "/v1/workers:report", body: `{"worker_id":"w","items":[{"lease":"x","start":{},"yield":{}}]}`, status: 400, code: "INVALID_ARGUMENT", field: "items[0].yield"},
		{claim: "a duration is in seconds", method: "POST", path: runs, body: `{"pipeline":"daily","retry":{"initial_delay":"1m"}}`, status: 400, code: "INVALID_ARGUMENT", field: "retry.initial_delay"},
		{claim: "a word of a list of words is checked", method: "POST", path: runs + "/{run}:retry", body: `{"mode":"FAILD"}`, status: 400, code: "INVALID_ARGUMENT", field: "mode", detail: "did you mean FAILED?"},
		{claim: "a whole number has no fraction", method: "POST", path: runs, body: `{"priority":1.5}`, status: 400, code: "INVALID_ARGUMENT", field: "priority"},
		{claim: "anything after the value is refused", method: "POST", path: "/v1/tenants", body: `{"name":"x"} {}`, status: 400, code: "INVALID_ARGUMENT", detail: "after the end"},
		{claim: "a duplicate key is refused", method: "POST", path: "/v1/tenants", body: `{"name":"x","name":"y"}`, status: 400, code: "INVALID_ARGUMENT", field: "name", detail: "duplicate key"},
		{claim: "a field under two names is refused", method: "POST", path: runs, body: `{"wait_for_quota":true,"waitForQuota":true}`, status: 400, code: "INVALID_ARGUMENT", field: "wait_for_quota"},
		{claim: "the actor of a trigger cannot be set", method: "POST", path: runs, body: `{"pipeline":"daily","triggered_by":"root"}`, status: 400, code: "INVALID_ARGUMENT", field: "triggered_by"},
		{claim: "broken JSON is refused", method: "POST", path: "/v1/tenants", body: `{"name":`, status: 400, code: "INVALID_ARGUMENT"},
		{claim: "JSON that is no object is refused", method: "POST", path: "/v1/tenants", body: `null`, status: 400, code: "INVALID_ARGUMENT", detail: "must be an object"},
		{claim: "bytes that are no UTF-8 are refused", method: "POST", path: "/v1/tenants", body: "{\"name\":\"\xff\"}", status: 400, code: "INVALID_ARGUMENT", detail: "UTF-8"},
		{claim: "half a character is refused", method: "POST", path: "/v1/tenants", body: `{"name":"\ud800"}`, status: 400, code: "INVALID_ARGUMENT"},
		{claim: "a zero character is refused", method: "POST", path: runs, body: `{"pipeline":"daily","note":"a\u0000b"}`, status: 400, code: "INVALID_ARGUMENT"},
		{claim: "JSON deeper than a hundred levels is refused", method: "POST", path: runs, body: `{"parameters":` + deep + `}`, status: 400, code: "INVALID_ARGUMENT", detail: "nested deeper"},
		{claim: "nine thousand levels are refused", method: "POST", path: runs, body: veryDeep, status: 400, code: "INVALID_ARGUMENT", detail: "nested deeper"},
		{claim: "a body over 4 MiB is too large", method: "POST", path: "/v1/tenants", body: large, status: 413, code: "TOO_LARGE"},
		{claim: "a form is no JSON", method: "POST", path: "/v1/tenants", body: `name=x`, headers: []string{"Content-Type: application/x-www-form-urlencoded"}, status: 415, code: "UNSUPPORTED_MEDIA_TYPE", field: "Content-Type"},
		{claim: "plain text is no JSON", method: "POST", path: "/v1/tenants", body: `{"name":"x"}`, headers: []string{"Content-Type: text/plain"}, status: 415, code: "UNSUPPORTED_MEDIA_TYPE"},
		{claim: "a body without a type is not guessed at", method: "POST", path: "/v1/tenants", body: `{"name":"x"}`, headers: []string{"Content-Type: "}, status: 400, code: "INVALID_ARGUMENT", field: "Content-Type"},
		{claim: "another charset is refused", method: "POST", path: "/v1/tenants", body: `{"name":"x"}`, headers: []string{"Content-Type: application/json; charset=latin1"}, status: 415, code: "UNSUPPORTED_MEDIA_TYPE"},
		{claim: "a call that takes a body is refused without one", method: "POST", path: runs, status: 400, code: "INVALID_ARGUMENT", detail: "the body is missing"},
		{claim: "a missing body is refused where no field is required", method: "POST", path: runs + "/{run}:cancel", status: 400, code: "INVALID_ARGUMENT", detail: "the body is missing"},
		{claim: "a missing body with a content type is refused", method: "POST", path: "/v1/admin/dispatch:pause", headers: []string{"Content-Type: application/json"}, status: 400, code: "INVALID_ARGUMENT", detail: "the body is missing"},
		{claim: "an empty object is a body", method: "POST", path: "/v1/scheduler/tick", body: `{}`, status: 200},
		{claim: "a trigger names a pipeline or a selection", method: "POST", path: runs, body: `{}`, status: 400, code: "INVALID_ARGUMENT", field: "pipeline", detail: "no pipeline and no selection"},
		{claim: "an empty selection selects nothing", method: "POST", path: runs, body: `{"select":[]}`, status: 400, code: "INVALID_ARGUMENT", field: "pipeline"},
		{claim: "a plan names a pipeline or a selection", method: "POST", path: runs + ":plan", body: `{}`, status: 400, code: "INVALID_ARGUMENT", field: "pipeline"},
		{claim: "everything is selected by a star", method: "POST", path: runs + ":plan", body: `{"select":["*"]}`, status: 200},
		{claim: "a body of a GET is refused", method: "GET", path: runs, body: `{"page_size":3}`, status: 400, code: "INVALID_ARGUMENT", detail: "no body"},
		{claim: "a body that contradicts the path is refused", method: "POST", path: runs, body: `{"tenant":"other","pipeline":"daily"}`, status: 400, code: "INVALID_ARGUMENT", field: "tenant"},
		{claim: "a number that contradicts the path is refused", method: "POST", path: "/v1/tasks/" + uuid.Nil.String() + "/attempts/1:start", body: `{"attempt":2,"lease":"x"}`, status: 400, code: "INVALID_ARGUMENT", field: "attempt"},
		{claim: "a body may repeat the path", method: "POST", path: "/v1/tenants/acme/runs:plan", body: `{"tenant":"acme","pipeline":"daily"}`, status: 200},
		{claim: "a number in the path is decimal", method: "POST", path: "/v1/tasks/" + uuid.Nil.String() + "/attempts/01:start", body: `{"lease":"x"}`, status: 400, code: "INVALID_ARGUMENT", field: "attempt"},

		{claim: "an unknown path is a problem", method: "GET", path: "/v1/tenant", status: 404, code: "NOT_FOUND"},
		{claim: "a path outside of the API is a problem", method: "GET", path: "/favicon.ico", status: 404, code: "NOT_FOUND"},
		{claim: "an unknown verb is an unknown path", method: "POST", path: runs + "/{run}:explode", status: 404, code: "NOT_FOUND"},
		{claim: "an unknown tenant is not found", method: "GET", path: "/v1/tenants/missing", status: 404, code: "NOT_FOUND", field: "tenant"},
		{claim: "an unknown run is not found", method: "GET", path: runs + "/" + uuid.Nil.String(), status: 404, code: "NOT_FOUND"},
		{claim: "an id must be one", method: "GET", path: runs + "/seven", status: 400, code: "INVALID_ARGUMENT", field: "run"},
		{claim: "a path that is not UTF-8 is refused", method: "GET", path: "/v1/tenants/%ff", status: 400, code: "INVALID_ARGUMENT", detail: "UTF-8"},
		{claim: "a zero byte in the path is refused", method: "GET", path: "/v1/tenants/a%00b", status: 400, code: "INVALID_ARGUMENT"},
		{claim: "an escaped slash is refused", method: "GET", path: "/v1/tenants/acme/assets/gold%2Frevenue", status: 400, code: "INVALID_ARGUMENT", detail: "slash"},
		{claim: "an escape is not undone twice", method: "GET", path: "/v1/tenants/acm%2565", status: 404, code: "NOT_FOUND", field: "tenant"},

		{claim: "an idempotency key is printable", method: "POST", path: runs, body: `{"pipeline":"daily"}`, headers: []string{"Idempotency-Key: \xff"}, status: 400, code: "INVALID_ARGUMENT", field: "Idempotency-Key"},
		{claim: "an idempotency key is one", method: "POST", path: runs, body: `{"pipeline":"daily"}`, headers: []string{"Idempotency-Key: a", "Idempotency-Key: b"}, status: 400, code: "INVALID_ARGUMENT", field: "Idempotency-Key"},
		{claim: "a timeout of gRPC's is not listened to", method: "GET", path: "/v1/tenants/acme", headers: []string{"Grpc-Timeout: soon"}, status: 200},
		{claim: "the method cannot be overridden", method: "POST", path: "/v1/tenants/acme", headers: []string{"X-HTTP-Method-Override: GET"}, status: 405, code: "METHOD_NOT_ALLOWED"},
	}
}

func TestEdge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)

	for _, c := range edgeCases() {
		t.Run(c.claim, func(t *testing.T) {
			t.Parallel()
			res := call(t, w.url, c.method, strings.ReplaceAll(c.path, "{run}", w.run), c.body, c.headers...)
			require.Equal(t, c.status, res.StatusCode, "%s", res.body)
			require.NotEmpty(t, res.Header.Get("X-Request-Id"))
			requireLine(t, res)
			if c.status < 400 {
				require.Equal(t, "application/json", res.Header.Get("Content-Type"))
				return
			}
			requireProblem(t, res)
			doc := res.json(t)
			require.Equal(t, c.code, doc["code"], "%s", res.body)
			if c.field != "" {
				require.Equal(t, c.field, doc["field"], "%s", res.body)
			}
			require.Contains(t, doc["detail"], c.detail)
		})
	}

	t.Run("a wrong method is answered with the right ones", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct{ method, path, allow string }{
			{"DELETE", "/v1/tenants", "GET, HEAD, POST, OPTIONS"},
			{"PUT", "/v1/status", "GET, HEAD, OPTIONS"},
			{"GET", "/v1/workers:claim", "POST, OPTIONS"},
			{"GET", "/v1/tenants/acme/runs/" + w.run + ":cancel", "POST, OPTIONS"},
			{"POST", "/v1/tenants/acme/runs/" + w.run, "GET, HEAD, OPTIONS"},
			{"BREW", "/v1/status", "GET, HEAD, OPTIONS"},
			{"POST", "/openapi.json", "GET, HEAD, OPTIONS"},
		} {
			res := call(t, w.url, c.method, c.path, "")
			require.Equal(t, http.StatusMethodNotAllowed, res.StatusCode, "%s %s: %s", c.method, c.path, res.body)
			require.Equal(t, c.allow, res.Header.Get("Allow"))
			requireProblem(t, res)
			options := call(t, w.url, "OPTIONS", c.path, "")
			require.Equal(t, http.StatusNoContent, options.StatusCode)
			require.Equal(t, c.allow, options.Header.Get("Allow"))
			require.Empty(t, options.body)
		}
		require.Equal(t, http.StatusNotFound, call(t, w.url, "OPTIONS", "/v1/nothing", "").StatusCode)
	})

	t.Run("HEAD is GET without a body", func(t *testing.T) {
		t.Parallel()
		for path, status := range map[string]int{"/v1/tenants/acme": 200, "/v1/tenants/missing": 404, "/v1/nothing": 404, "/openapi.json": 200} {
			head, get := call(t, w.url, "HEAD", path, ""), call(t, w.url, "GET", path, "")
			require.Equal(t, status, head.StatusCode, path)
			require.Empty(t, head.body)
			require.Equal(t, get.Header.Get("Content-Type"), head.Header.Get("Content-Type"))
			if status == http.StatusOK { // protojson's spaces are not always the same
				require.Equal(t, int64(len(get.body)), head.ContentLength, path)
			}
		}
		require.Equal(t, http.StatusMethodNotAllowed, call(t, w.url, "HEAD", "/v1/workers:claim", "").StatusCode)
	})

	t.Run("a chunked body is bounded too", func(t *testing.T) {
		t.Parallel()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/v1/tenants", io.MultiReader(strings.NewReader(`{"name":"`), strings.NewReader(strings.Repeat("x", 5<<20)+`"}`)))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
	})

	t.Run("a body that breaks off is refused", func(t *testing.T) {
		t.Parallel()
		target, err := url.Parse(w.url)
		require.NoError(t, err)
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", target.Host)
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "POST /v1/tenants HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"name\":")
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		answered, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Contains(t, string(answered), "400 Bad Request")
	})

	t.Run("all mistakes of a body are reported at once", func(t *testing.T) {
		t.Parallel()
		doc := call(t, w.url, "POST", "/v1/tenants/acme/runs", `{"pipelin":"x","priority":"high","select":[1]}`).json(t)
		require.Len(t, doc["violations"], 3)
	})

	t.Run("the caller's request id comes back, and a bad one does not", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "abc-1.2", call(t, w.url, "GET", "/v1/status", "", "X-Request-Id: abc-1.2").Header.Get("X-Request-Id"))
		for _, bad := range []string{"a b", "<x>", strings.Repeat("a", 129)} {
			got := call(t, w.url, "GET", "/v1/nothing", "", "X-Request-Id: "+bad).Header.Get("X-Request-Id")
			_, err := uuid.Parse(got)
			require.NoError(t, err, got)
		}
	})

	t.Run("nothing of gRPC shows in the headers of an answer", func(t *testing.T) {
		t.Parallel()
		for name := range call(t, w.url, "GET", "/v1/tenants/acme", "", "TE: trailers").Header {
			require.NotContains(t, strings.ToLower(name), "grpc")
			require.NotContains(t, strings.ToLower(name), "trailer")
		}
	})

	t.Run("fields have the contract's names, and empty ones are there", func(t *testing.T) {
		t.Parallel()
		doc := call(t, w.url, "GET", "/v1/tenants/acme/runs/"+w.run, "").json(t)
		require.Contains(t, doc, "plan_fingerprint")
		require.Empty(t, doc["cancel_reason"])
		require.Contains(t, doc, "cancel_reason")
	})

	t.Run("an answer without a state has none", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t) // its task is claimed here
		claimed := call(t, w.url, "POST", "/v1/workers:claim", `{"worker_id":"w","claim_id":"`+uuid.NewString()+`","pools":["default"],"max":1,"wait":"30s","start":true}`).json(t)
		require.Len(t, claimed["leases"], 1)
		lease := fmt.Sprint(claimed["leases"].([]any)[0].(map[string]any)["lease"])
		res := call(t, w.url, "POST", "/v1/workers:report", fmt.Sprintf(`{"worker_id":"w","items":[
			{"lease":%[1]q,"log":{"seq":1,"text":"x"}}, {"lease":%[1]q,"progress":{"fraction":0.5}}, {"lease":"x","start":{}}, {"lease":%[1]q,"complete":{}}]}`, lease))
		require.Equal(t, http.StatusOK, res.StatusCode, "%s", res.body)
		var answered struct {
			Answers []struct {
				State *string        `json:"state"`
				Error map[string]any `json:"error"`
			} `json:"answers"`
		}
		require.NoError(t, json.Unmarshal(res.body, &answered))
		require.Len(t, answered.Answers, 4)
		for i, refused := range []bool{false, false, true} {
			require.Nil(t, answered.Answers[i].State, "%s", res.body)
			require.Equal(t, refused, answered.Answers[i].Error != nil, "%s", res.body)
		}
		require.Equal(t, "SUCCEEDED", *answered.Answers[3].State)
	})

	t.Run("the description of the API is a line of JSON too", func(t *testing.T) {
		t.Parallel()
		requireLine(t, call(t, w.url, "GET", "/openapi.json", ""))
	})

	t.Run("a key makes a repeated trigger the same run", func(t *testing.T) {
		t.Parallel()
		first := call(t, w.url, "POST", "/v1/tenants/acme/runs", `{"pipeline":"daily"}`, "Idempotency-Key: once").json(t)
		second := call(t, w.url, "POST", "/v1/tenants/acme/runs", `{"pipeline":"daily"}`, "Idempotency-Key: once").json(t)
		require.Equal(t, false, first["repeated_request"])
		require.Equal(t, true, second["repeated_request"])
		require.Equal(t, first["run"].(map[string]any)["id"], second["run"].(map[string]any)["id"])
	})

	t.Run("many callers at once get each their own answer", func(t *testing.T) {
		t.Parallel()
		cases := edgeCases()
		var group sync.WaitGroup
		for worker := range 8 {
			group.Go(func() {
				for i := range cases {
					c := cases[(i+worker*7)%len(cases)]
					if len(c.body) > 1<<20 || c.status == http.StatusOK {
						continue
					}
					req := httptest.NewRequestWithContext(t.Context(), c.method, w.url, strings.NewReader(c.body))
					req.RequestURI = ""
					target, err := url.Parse(w.url + strings.ReplaceAll(c.path, "{run}", w.run))
					if err != nil {
						t.Error(err)
						return
					}
					req.URL = target
					req.Header.Set("Content-Type", "application/json")
					res, err := http.DefaultTransport.RoundTrip(req)
					if err != nil {
						t.Error(err)
						return
					}
					if res.StatusCode >= http.StatusInternalServerError {
						t.Errorf("%s: %d", c.claim, res.StatusCode)
					}
					_ = res.Body.Close()
				}
			})
		}
		group.Wait()
	})
}

// requireLine requires JSON in one line, which is ended, and without a space too many.
func requireLine(t testing.TB, res answer) {
	t.Helper()
	var line bytes.Buffer
	require.NoError(t, json.Compact(&line, res.body), "%s", res.body)
	require.Equal(t, line.String()+"\n", string(res.body))
	require.Equal(t, strconv.Itoa(len(res.body)), res.Header.Get("Content-Length"))
}

// requireProblem requires a whole problem document.
func requireProblem(t testing.TB, res answer) {
	t.Helper()
	require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"), "%s", res.body)
	require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
	doc := res.json(t)
	for _, member := range []string{"type", "title", "detail", "code", "message"} {
		require.NotEmpty(t, doc[member], "%s: %s", member, res.body)
	}
	require.InEpsilon(t, res.StatusCode, doc["status"], 0)
	require.True(t, strings.HasPrefix(fmt.Sprint(doc["type"]), "/errors/"))
}
