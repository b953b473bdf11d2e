package rest_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"pgregory.net/rapid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// tree is a JSON object.
type tree = map[string]any

// valueAt is the value of a path in a document; nil where there is none, or an empty one.
func valueAt(document tree, path string) any {
	first, rest, inside := strings.Cut(path, ".")
	value := document[first]
	if inside {
		inner, _ := value.(tree)
		return valueAt(inner, rest)
	}
	switch v := value.(type) {
	case string:
		if v == "" {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
	case tree:
		if len(v) == 0 {
			return nil
		}
	}
	return value
}

func put(document tree, path string, value any) {
	first, rest, inside := strings.Cut(path, ".")
	if !inside {
		document[first] = value
		return
	}
	inner, ok := document[first].(tree)
	if !ok {
		inner = tree{}
		document[first] = inner
	}
	put(inner, rest, value)
}

// parsed is a document as JSON gives it.
func parsed(t require.TestingT, text string) (out tree) {
	require.NoError(t, json.Unmarshal([]byte(text), &out), text)
	return out
}

// leaves are the fields of a spec that change one by one, from the contract.
func leaves() (paths []string) {
	fields := (&servov1.ConfigSpec{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if name := field.TextName(); name == "labels" || name == "parameters" || name == "trigger" || field.Message() == nil {
			paths = append(paths, name)
			continue
		}
		for j := range field.Message().Fields().Len() {
			paths = append(paths, field.TextName()+"."+field.Message().Fields().Get(j).TextName())
		}
	}
	return paths
}

// patched is what the tests know of each field of a spec: another value, and the one that it has
// when it is cleared. Fields that may not be cleared have "refused".
func patched(t *testing.T) map[string][2]any {
	t.Helper()
	return map[string][2]any{
		"pipeline": {"q", "refused"}, "labels": {parsed(t, `{"owner": "b"}`), nil}, "parameters": {parsed(t, `{"m": 2.0}`), nil}, "priority": {2.0, 5.0},
		"trigger": {parsed(t, `{"interval": "15m", "anchor": "2026-01-31T12:00:00Z", "cron": "", "template": "", "expression": "", "manual": false}`), "refused"}, "timezone": {"Asia/Tokyo", "UTC"},
		"depends_on.config": {"another", "refused"}, "depends_on.within": {"48h", "refused"}, "depends_on.wait": {"2h", nil},
		"overlap": {"allow", "refused"}, "max_overlap": {4.0, nil}, "catchup.policy": {"none", "latest"}, "catchup.max_slots": {9.0, 100.0}, "catchup.window": {"48h", nil},
		"partitions.max_partitions": {6.0, nil}, "partitions.values": {parsed(t, `{"region": "us"}`), nil},
		"alerts.failures": {3.0, nil}, "alerts.medium_failures": {6.0, nil},
		"jitter": {"1m", nil}, "max_execution": {"20m", "1h"}, "sla_start_delay": {"6m", "30m"}, "max_consecutive_failures": {9.0, 5.0},
		"retry.max_attempts": {6.0, nil}, "retry.initial_delay": {"20s", nil}, "retry.max_delay": {"2m", nil}, "retry.multiplier": {3.0, nil}, "retry.jitter": {0.25, nil},
		"retry.retry_on": {[]any{"TIMEOUT"}, nil}, "retry.no_retry_on": {[]any{"DISK_FULL"}, nil}, "retry.timeout_growth": {2.0, nil}, "retry.max_deaths": {5.0, nil},
	}
}

// rich is a spec with a value in each field.
const rich = `{"pipeline": "p", "labels": {"team": "a"}, "parameters": {"n": 1}, "priority": 9, "trigger": {"cron": "0 2 * * *"}, "timezone": "Europe/Berlin",
	"depends_on": {"config": "other", "within": "26h", "wait": "1h"}, "overlap": "allow", "max_overlap": 3, "catchup": {"policy": "all", "max_slots": 7, "window": "24h"},
	"partitions": {"max_partitions": 5, "values": {"region": "eu"}}, "alerts": {"failures": 2, "medium_failures": 4}, "jitter": "30s", "max_execution": "10m", "sla_start_delay": "5m", "max_consecutive_failures": 8,
	"retry": {"max_attempts": 4, "initial_delay": "10s", "max_delay": "1m", "multiplier": 2, "jitter": 0.5, "retry_on": ["NETWORK_ERROR"], "no_retry_on": ["OUT_OF_MEMORY"], "timeout_growth": 1.5, "max_deaths": 2}}`

// patchWorld is a server with a config to change.
type patchWorld struct {
	call func(method, path, body string, want int) map[string]any
	grpc servov1.ConfigServiceClient
}

const patchedConfig = "/tenants/acme/configs/nightly"

func newPatchWorld(t *testing.T) *patchWorld {
	t.Helper()
	server := servertest.Start(t)
	w := &patchWorld{call: callerOf(t, server), grpc: servov1.NewConfigServiceClient(server.Dial(t))}
	w.call("POST", "/tenants", `{"name": "acme"}`, 200)
	w.call("POST", "/tenants/acme/deployments", `{"manifest": {"version": 1, "assets": [{"key": "a/b", "go": {}, "pool": "none", "partitions": [{"dimension": "region", "kind": "static", "values": ["eu", "us"]}]}], "pipelines": [
		{"name": "p", "parameters": [{"name": "n", "type": "number", "default": 0}, {"name": "m", "type": "number", "default": 0}]},
		{"name": "q", "parameters": [{"name": "n", "type": "number", "default": 0}, {"name": "m", "type": "number", "default": 0}]}]}}`, 200)
	for _, name := range []string{"other", "another"} {
		w.call("POST", "/tenants/acme/configs", `{"name": "`+name+`", "spec": {"pipeline": "p", "trigger": {"manual": true}}}`, 200)
	}
	w.call("POST", "/tenants/acme/configs", `{"name": "nightly", "spec": `+rich+`}`, 200)
	return w
}

// reset makes the config rich again, and gives its spec.
func (w *patchWorld) reset() tree {
	return w.call("PATCH", patchedConfig, `{"update_mask": "spec", "spec": `+rich+`}`, 200)["spec"].(tree)
}

// patch changes the config over REST or gRPC, and gives its spec; nil if that is refused.
func (w *patchWorld) patch(t *testing.T, overREST bool, spec tree, mask ...string) tree {
	t.Helper()
	body := tree{"spec": spec}
	if len(mask) > 0 {
		body["update_mask"] = strings.Join(mask, ",")
	}
	if overREST {
		want := 200
		if slices.Contains(mask, "refused") {
			body["update_mask"], want = strings.Join(slices.DeleteFunc(slices.Clone(mask), func(m string) bool { return m == "refused" }), ","), 400
		}
		saved, _ := w.call("PATCH", patchedConfig, mustText(t, body), want)["spec"].(tree)
		return saved
	}
	delete(body, "update_mask")
	req := &servov1.UpdateConfigRequest{}
	require.NoError(t, protojson.Unmarshal([]byte(mustText(t, body)), req))
	req.Tenant, req.Config = "acme", "nightly"
	if len(mask) > 0 {
		req.UpdateMask = &fieldmaskpb.FieldMask{Paths: mask}
	}
	saved, err := w.grpc.UpdateConfig(t.Context(), req)
	require.NoError(t, err)
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(saved)
	require.NoError(t, err)
	return parsed(t, string(text))["spec"].(tree)
}

// requireOnly checks that exactly some fields have changed, and to what.
func requireOnly(t require.TestingT, before, after tree, want map[string]any) {
	for _, path := range leaves() {
		expected := valueAt(before, path)
		if value, changes := want[path]; changes {
			expected = value
		}
		require.Equal(t, expected, valueAt(after, path), path)
	}
}

// TestPatchChangesOnlyWhatItNames tries each field of the spec: set in the body, named in the mask,
// and cleared by the mask.
func TestPatchChangesOnlyWhatItNames(t *testing.T) {
	t.Parallel()
	w := newPatchWorld(t)
	values := patched(t)
	require.ElementsMatch(t, leaves(), slices.Collect(maps.Keys(values)), "the test knows each field of the contract")
	for _, path := range leaves() {
		for _, overREST := range []bool{true, false} {
			before := w.reset()
			want := map[string]any{path: values[path][0]}
			if path == "catchup.policy" {
				want["catchup.max_slots"] = nil // it goes with the policy all
			}
			spec := tree{}
			put(spec, path, values[path][0])
			requireOnly(t, before, w.patch(t, overREST, spec), want)
			before = w.reset()
			noise := parsed(t, rich) // fields of the body that the mask does not name are ignored
			noise["priority"], noise["jitter"] = 1, "2m"
			put(noise, path, values[path][0])
			requireOnly(t, before, w.patch(t, overREST, noise, "spec."+path), want)
		}
		before := w.reset()
		if values[path][1] == "refused" {
			w.patch(t, true, tree{}, "spec."+path, "refused")
			requireOnly(t, before, w.call("GET", patchedConfig, "", 200)["spec"].(tree), nil)
			continue
		}
		want := map[string]any{path: values[path][1]}
		if path == "catchup.policy" {
			want["catchup.max_slots"] = nil
		}
		requireOnly(t, before, w.patch(t, true, tree{}, "spec."+path), want)
	}
}

// TestPatchesOfSeveralFields draws sets of fields, each set, named or cleared.
func TestPatchesOfSeveralFields(t *testing.T) {
	t.Parallel()
	w := newPatchWorld(t)
	values := patched(t)
	free := slices.DeleteFunc(leaves(), func(path string) bool { return path == "overlap" || path == "catchup.policy" })
	rapid.Check(t, func(r *rapid.T) {
		before := w.reset()
		spec, want, mask := tree{}, map[string]any{}, []string(nil)
		masked := rapid.Bool().Draw(r, "masked")
		for _, path := range rapid.SliceOfNDistinct(rapid.SampledFrom(free), 1, 8, rapid.ID[string]).Draw(r, "fields") {
			mask = append(mask, "spec."+path)
			if masked && values[path][1] != "refused" && rapid.Bool().Draw(r, "clear "+path) {
				want[path] = values[path][1]
				continue
			}
			put(spec, path, values[path][0])
			want[path] = values[path][0]
		}
		if !masked {
			mask = nil
		}
		requireOnly(r, before, w.patch(t, rapid.Bool().Draw(r, "REST"), spec, mask...), want)
	})
}

// TestPatchesAtOnce lets calls change different fields of one config at the same time.
func TestPatchesAtOnce(t *testing.T) {
	t.Parallel()
	w := newPatchWorld(t)
	values := patched(t)
	before := w.reset()
	want := map[string]any{}
	var group sync.WaitGroup
	for _, path := range []string{"labels", "parameters", "priority", "timezone", "jitter", "max_execution", "retry.max_attempts", "retry.max_delay", "catchup.window", "depends_on.wait"} {
		want[path] = values[path][0]
		spec := tree{}
		put(spec, path, values[path][0])
		group.Go(func() { w.patch(t, true, spec) })
	}
	group.Wait()
	requireOnly(t, before, w.call("GET", patchedConfig, "", 200)["spec"].(tree), want)
}

// TestMasks refuses masks that name no field, and reads them in both forms.
func TestMasks(t *testing.T) {
	t.Parallel()
	w := newPatchWorld(t)
	for mask, detail := range map[string]string{
		"priority":            "spec.priority",
		"spec.prioritty":      "did you mean spec.priority",
		"spec.retry.max":      "spec.retry or one of its fields",
		"spec.labels.team":    "replaced as a whole",
		"spec.trigger.cron":   "replaced as a whole",
		"enabled":             "true or false",
		"spec..priority":      "commas",
		"spec.priority, spec": "commas",
		"version":             "unknown field",
	} {
		refused := w.call("PATCH", patchedConfig, `{"update_mask": "`+mask+`", "spec": {"priority": 3}}`, 400)
		require.Contains(t, mustText(t, refused), detail, mask)
		require.Contains(t, refused["field"], "update_mask", mask)
	}
	require.Contains(t, mustText(t, w.call("PATCH", patchedConfig, `{"update_mask": ["spec"], "spec": {}}`, 400)), "must be text")
	require.Contains(t, mustText(t, w.call("PATCH", patchedConfig, `{"update_mask": "spec", "update_mask": "spec.priority", "spec": {}}`, 400)), "update_mask")
	require.Contains(t, mustText(t, w.call("PATCH", patchedConfig, `{}`, 400)), "no changes specified")
	require.Contains(t, mustText(t, w.call("PATCH", patchedConfig, `{"spec": {"labels": {}, "retry": {}}}`, 400)), "no changes specified")
	saved := w.call("PATCH", patchedConfig, `{"updateMask": "spec.maxExecution,spec.retry.maxDelay,enabled", "enabled": false, "spec": {"priority": 3}}`, 200)
	require.Equal(t, "DISABLED", saved["state"])
	require.Equal(t, []any{"1h", nil, 9.0}, []any{valueAt(saved, "spec.max_execution"), valueAt(saved, "spec.retry.max_delay"), valueAt(saved, "spec.priority")})
	require.Nil(t, valueAt(w.call("PATCH", patchedConfig, `{"update_mask": "spec.retry"}`, 200), "spec.retry"))
}
