package rest_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// numbered is a place where JSON without a schema is accepted: it sends {"n": NUMBER}, and reads it
// back.
type numbered struct {
	name, field string
	send        func(number string) answer
	read        func(answer) json.Number
}

// dig reads a number of an answer.
func dig(t testing.TB, a answer, path ...string) json.Number {
	t.Helper()
	var tree map[string]json.RawMessage
	data := json.RawMessage(a.body)
	for _, name := range path {
		require.NoError(t, json.Unmarshal(data, &tree), "%s", a.body)
		data, tree = tree[name], nil
	}
	return json.Number(data)
}

func numberedPlaces(t testing.TB, url string) []numbered {
	t.Helper()
	tenant := func(path string) string { return "/v1/tenants/acme" + path }
	post := func(path, body string) answer { return call(t, url, "POST", path, body) }
	ok := func(a answer) answer {
		require.Equal(t, http.StatusOK, a.StatusCode, "%s", a.body)
		return a
	}
	ok(post("/v1/tenants", `{"name":"acme"}`))
	ok(post(tenant("/deployments"), `{"manifest": {"version": 1, "assets": [{"key": "a/b", "go": {}}],
		"pipelines": [{"name": "p", "overlap": "allow", "parameters": [{"name": "n", "type": "number"}, {"name": "o", "type": "object"}]}]}}`))
	ok(post(tenant("/configs"), `{"name": "listening", "spec": {"pipeline": "p", "trigger": {"event": {"name": "prices"}}}}`))
	ok(post(tenant("/configs"), `{"name": "c", "spec": {"pipeline": "p", "trigger": {"manual": true}}}`))
	return []numbered{
		{
			name: "a trigger's parameters", field: "parameters.o.n",
			send: func(n string) answer {
				return post(tenant("/runs:plan"), fmt.Sprintf(`{"pipeline": "p", "parameters": {"o": {"n": %s}}}`, n))
			},
			read: func(a answer) json.Number { return dig(t, a, "parameters", "o", "n") },
		},
		{
			name: "a config's parameters", field: "spec.parameters.n",
			send: func(n string) answer {
				return call(t, url, "PATCH", tenant("/configs/c"), fmt.Sprintf(`{"spec": {"pipeline": "p", "trigger": {"manual": true}, "parameters": {"n": %s}}}`, n))
			},
			read: func(answer) json.Number {
				return dig(t, ok(call(t, url, "GET", tenant("/configs/c"), "")), "spec", "parameters", "n")
			},
		},
		{
			name: "an event's parameters", field: "parameters.n",
			send: func(n string) answer {
				return post(tenant("/events"), fmt.Sprintf(`{"name": "prices", "dedupe_key": %q, "parameters": {"n": %s}}`, uuid.NewString(), n))
			},
			read: func(a answer) json.Number { return dig(t, a, "event", "parameters", "n") },
		},
		{
			name: "a manifest", field: "manifest.pipelines[0].parameters[0].default",
			send: func(n string) answer {
				return post(tenant("/deployments"), fmt.Sprintf(`{"dry_run": true, "manifest": {"version": 1, "assets": [{"key": "a/b", "go": {}}],
					"pipelines": [{"name": "p", "parameters": [{"name": "n", "type": "number", "default": %s}]}]}}`, n))
			},
		},
		{
			name: "a task's result", field: "result[0].n",
			send: func(n string) answer {
				ok(post(tenant("/runs"), `{"pipeline": "p"}`))
				claimed := ok(post("/v1/workers:claim", fmt.Sprintf(`{"worker_id": "w", "claim_id": %q, "pools": ["default"], "max": 1, "wait": "20s", "start": true}`, uuid.NewString())))
				var leases struct {
					Leases []struct{ Lease, Run, Task string }
				}
				require.NoError(t, json.Unmarshal(claimed.body, &leases))
				require.Len(t, leases.Leases, 1, "%s", claimed.body)
				lease := leases.Leases[0]
				res := post("/v1/tasks/"+lease.Task+"/attempts/1:complete", fmt.Sprintf(`{"lease": %q, "result": [{"n": %s}]}`, lease.Lease, n))
				if res.StatusCode != http.StatusOK {
					ok(post("/v1/tasks/"+lease.Task+"/attempts/1:complete", fmt.Sprintf(`{"lease": %q}`, lease.Lease)))
					return res
				}
				return ok(call(t, url, "GET", tenant("/runs/"+lease.Run+"/tasks/"+lease.Task), ""))
			},
			read: func(a answer) json.Number {
				var task struct{ Result []struct{ N json.Number } }
				require.NoError(t, json.Unmarshal(a.body, &task), "%s", a.body)
				return task.Result[0].N
			},
		},
	}
}

// TestNumbers: wherever JSON is accepted a number comes back as the same decimal number, or is
// refused with its path.
func TestNumbers(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	places := numberedPlaces(t, s.URL)
	kept := func(t require.TestingT, p numbered, number string) bool {
		res := p.send(number)
		if res.StatusCode == http.StatusBadRequest {
			var doc struct{ Code, Field, Remedy string }
			require.NoError(t, json.Unmarshal(res.body, &doc))
			require.Equal(t, []string{"INVALID_ARGUMENT", p.field}, []string{doc.Code, doc.Field}, "%s: %s", p.name, res.body)
			require.Contains(t, doc.Remedy, "string")
			return false
		}
		require.Equal(t, http.StatusOK, res.StatusCode, "%s: %s", p.name, res.body)
		if p.read == nil {
			return true
		}
		want, ok := new(big.Rat).SetString(number)
		require.True(t, ok)
		back := p.read(res)
		got, ok := new(big.Rat).SetString(back.String())
		require.True(t, ok, "%s: %q", p.name, back)
		require.Zero(t, want.Cmp(got), "%s: %s came back as %s", p.name, number, back)
		return true
	}
	for _, p := range places { //nolint:paralleltest // the places of one server are used one after the other
		t.Run(p.name, func(t *testing.T) {
			for number, keeps := range map[string]bool{
				"0": true, "-0": true, "1.50": true, "0.1": true, "1e23": true, "-1e-7": true, "9007199254740991": true, "9007199254740992": true,
				"9007199254740993": false, "-9223372036854775808": false, "18446744073709551615": false, "0.1234567890123456789": false, "1e-400": false,
			} {
				require.Equal(t, keeps, kept(t, p, number), number)
			}
			over := p.send("1e400")
			require.Equal(t, http.StatusBadRequest, over.StatusCode)
			require.Equal(t, p.field, over.json(t)["field"])
		})
	}

	t.Run("an integer of the contract is kept as it is", func(t *testing.T) { //nolint:paralleltest // likewise
		res := call(t, s.URL, "POST", "/v1/workers:heartbeat", `{"worker_id": "w", "leases": [{"lease": "x", "progress": {"bytes": 9007199254740993}}]}`)
		require.NotContains(t, string(res.body), "kept exactly")
	})

	t.Run("any number is kept or refused", func(t *testing.T) { //nolint:paralleltest // likewise
		rapid.Check(t, func(t *rapid.T) {
			whole := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})`).Draw(t, "whole")
			fraction := rapid.StringMatching(`(\.[0-9]{1,20})?`).Draw(t, "fraction")
			exponent := rapid.StringMatching(`([eE][+-]?[0-9]{1,2})?`).Draw(t, "exponent")
			number := whole + fraction + exponent
			var all []bool
			for _, p := range places[:3] {
				all = append(all, kept(t, p, number))
			}
			require.Equal(t, []bool{all[0], all[0], all[0]}, all, "%s: the same rule everywhere", number)
		})
	})
}
