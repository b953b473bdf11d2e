package rest_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// ofParsers is how parsers of Go speak.
const ofParsers = `strconv\.|time: |json: |yaml: |proto:|cannot unmarshal|invalid character|invalid syntax|parsing |parse "|unexpected token|syntax error|unexpected EOF|unexpected end of JSON|base64|UUID length|value out of range|google\.protobuf`

// TestErrorsOfParsersAreExplained sends what cannot be read, as body and as query.
func TestErrorsOfParsersAreExplained(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	refuse := func(method, path, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, s.URL+"/v1"+path, strings.NewReader(body))
		require.NoError(t, err)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		answer, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.GreaterOrEqual(t, answer.StatusCode, 400, "%s %s %s: %s", method, path, body, text)
		require.Less(t, answer.StatusCode, 500, "%s %s %s: %s", method, path, body, text)
		require.NotRegexp(t, ofParsers, string(text), "%s %s %s", method, path, body)
	}
	call := callerOf(t, s)
	call("POST", "/tenants", `{"name": "acme"}`, 200)
	call("POST", "/tenants/acme/deployments", `{"manifest": {"version": 1, "assets": [{"key": "a/b", "go": {}}], "pipelines": [{"name": "p"}]}}`, 200)
	call("POST", "/tenants/acme/configs", `{"name": "c", "spec": {"pipeline": "p", "trigger": {"manual": true}}}`, 200)
	for _, body := range []string{
		`{`, `{"a"`, `{"a":`, `{"a":1,}`, `[1 2]`, `tru`, `nul`, `"x`, `'x'`, `{a: 1}`, `{"a": 01}`, `{"a": 1e}`, `{"a": .5}`, `{"a": "\x"}`, `{"a": "` + "\n" + `"}`, `{} {}`, `{"a": 1}}`, "\xff", `{"\ud800": 1}`,
		`[]`, `1`, `null`, `"text"`, `{"name": 5}`, `{"spec": 5}`, `{"spec": []}`, `{"spec": {"priority": "x"}}`, `{"spec": {"priority": 1.5}}`, `{"spec": {"priority": 1e99}}`, `{"spec": {"priority": 99999999999999999999}}`,
		`{"spec": {"retry": {"multiplier": "x"}}}`, `{"spec": {"labels": []}}`, `{"spec": {"labels": {"a": 1}}}`, `{"spec": {"trigger": {"manual": "yes"}}}`, `{"spec": {"trigger": {"anchor": "yesterday"}}}`, `{"spec": {"trigger": {"anchor": 5}}}`,
		`{"spec": {"parameters": []}}`, `{"spec": {"jitter": "5 minutes"}}`, `{"spec": {"jitter": 5}}`, `{"spec": {"max_execution": "999999999999h"}}`, `{"spec": {"trigger": {"interval": "x"}}}`, `{"spec": {"trigger": {"cron": "x"}}}`,
		`{"spec": {"trigger": {"cron": "0 0 * * Fri-Sun"}}}`, `{"spec": {"trigger": {"cron": "@every x"}}}`, `{"spec": {"timezone": "x y"}}`, `{"enabled": "x"}`, `{"version": "x"}`, `{"version": -1}`, `{"update_mask": 5, "spec": {}}`, `{"update_mask": "a b", "spec": {}}`,
		`{"spec": {"retry": {"retry_on": "x"}}}`, `{"spec": {"retry": {"retry_on": [1]}}}`, `{"spec": {"parameters": {"n": 1e400}}}`, `{"spec": null}`, `{"spec": {"spec": {}}}`, `{"spec": {}, "spec": {}}`,
		strings.Repeat("[", 20000), strings.Repeat(`{"a":`, 20000),
	} {
		refuse("PATCH", "/tenants/acme/configs/c", body)
		refuse("POST", "/tenants/acme/configs", body)
		refuse("POST", "/tenants/acme/runs", body)
		refuse("POST", "/tenants/acme/deployments", body)
		refuse("POST", "/workers:claim", body)
	}
	for _, query := range []string{"page_size=x", "page_size=1.5", "page_size=99999999999999999999", "page_size=", "from=yesterday", "from=2026-13-01T00:00:00Z", "to=5", "state=x", "state=1.5", "page_token=%%%", "page_token=x", "%zz=1", "a=%ff"} {
		refuse("GET", "/tenants/acme/runs?"+query, "")
	}
	for _, path := range []string{"/tenants/acme/runs/x", "/tenants/acme/runs/" + url.PathEscape("0192f0c1-2b3c-7d4e-8f5a"), "/tenants/acme/configs/c:preview?after=x", "/tenants/acme/configs/c:preview?count=x", "/tenants/acme/metrics?from=x", "/tenants/acme/metrics?from=2026-99-99", "/tenants/acme/alerts/x", "/tenants/acme/configs/c/outcomes?from=x", "/tenants/acme/configs/c/outcomes?timezone=x"} {
		refuse("GET", path, "")
	}
}
