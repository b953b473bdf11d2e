package requests

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/grpclog"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
	"go.arco.dev/servo/internal/engine"
)

const manifest = `{"version":1,"assets":[
	{"key":"bronze/orders","go":{"handler":"orders"}},
	{"key":"gold/revenue","upstream":["bronze/orders"],"go":{"handler":"revenue"},"tags":["daily"]}],
	"pipelines":[{"name":"daily","overlap":"allow","select":["gold/revenue","+gold/revenue"],"parameters":[{"name":"day","type":"string","default":"1"},{"name":"n","type":"integer"}]},
		{"name":"locked","select":["bronze/orders"]}]}`

// world is a server that asks for keys, with something of everything in it.
type world struct {
	*servertest.Server

	keys  map[string]string   // by role
	known map[string][]string // what exists, by the name of the field that refers to it
	log   *listener
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db := servotest.DB(t)
	e := engine.New(db.Store, engine.Config{}, slog.New(slog.DiscardHandler))
	_, secret, err := e.Bootstrap(t.Context(), "ops", false, event.Meta{})
	require.NoError(t, err)
	e.Stop()
	log := &listener{}
	grpclog.SetLoggerV2(log.ownLog()) // before anything of gRPC's is used
	w := &world{log: log, keys: map[string]string{"platform": secret.Text()}}
	w.Server = servertest.StartKeyed(t, daemon.Config{DatabaseURL: db.URL, Logger: slog.New(w.log)})
	w.known = map[string][]string{
		"tenant": {"acme", "acme", "acme", "acme", "brick"}, "workspace": {"default"}, "pipeline": {"daily", "daily", "locked"}, "config": {"nightly", "hourly", "weekly", "made-1"},
		"name": {"nightly", "hourly", "weekly", "daily", "fetch", "made-1", "early"}, "pool": {"default", "fetch", "push"}, "pools": {"default", "fetch"}, "worker_id": {"w1", "w2"},
		"asset": {"bronze/orders", "gold/revenue"}, "select": {"gold/revenue", "+gold/revenue", "tag:daily"}, "claim_id": {uuid.NewString(), uuid.NewString()},
		"url": {"https://example.invalid/hook", "http://127.0.0.1:9/", "https://hooks.example.invalid"}, "cron": {"0 6 * * *", "*/5 * * * *", "0 0 1 * *"}, "timezone": {"Europe/Berlin", "UTC", "America/New_York"},
		"event": {"prices"}, "template": {"early", "hourly"}, "dedupe_key": {"a", "b", "c"}, "role": {"viewer", "operator", "worker", "platform", "admin"}, "types": {"run.*", "task.succeeded"},
		"from": {"now", "beginning"}, "interval": {"15m", "1h"}, "max_execution": {"2h"}, "cursor": {"1", "2"}, "expected": {"", "1"}, "reason": {"because"}, "version": {"1"}, "partition": {"2026-01-01"},
		"key": {}, "label": {"team", "x"},
	}
	w.fill(t)
	return w
}

// fill makes something of everything, and remembers what it is called.
func (w *world) fill(t *testing.T) {
	t.Helper()
	know := func(name string, values ...any) {
		for _, v := range values {
			text, _ := v.(string)
			require.NotEmpty(t, text, name)
			w.known[name] = append(w.known[name], text)
		}
	}
	inner := func(doc map[string]any, name string) map[string]any { m, _ := doc[name].(map[string]any); return m }
	call := func(method, path, body string) map[string]any { return w.call(t, method, "/v1"+path, body) }
	call("POST", "/tenants", `{"name":"acme"}`)
	call("POST", "/tenants", `{"name":"brick"}`)
	know("deployment", inner(call("POST", "/tenants/acme/deployments", `{"manifest":`+manifest+`}`), "deployment")["id"])
	for range 4 {
		know("run", inner(call("POST", "/tenants/acme/runs", `{"pipeline":"daily"}`), "run")["id"])
	}
	for _, run := range w.known["run"] {
		tasks, _ := call("GET", "/tenants/acme/runs/"+run+"/tasks", "")["tasks"].([]any)
		for _, task := range tasks {
			one, _ := task.(map[string]any)
			know("task", one["id"])
		}
	}
	for range 2 {
		leases, _ := call("POST", "/workers:claim", `{"worker_id":"w1","claim_id":"`+uuid.NewString()+`","pools":["default"],"max":1,"wait":"20s","start":true}`)["leases"].([]any)
		for _, lease := range leases {
			one, _ := lease.(map[string]any)
			know("lease", one["lease"])
		}
	}
	call("POST", "/tenants/acme/configs", `{"name":"nightly","spec":{"pipeline":"daily","trigger":{"cron":"0 3 * * *"}}}`)
	call("POST", "/tenants/acme/configs", `{"name":"hourly","spec":{"pipeline":"daily","trigger":{"event":{"name":"prices"}}}}`)
	call("PUT", "/tenants/acme/templates/early", `{"cron":"0 5 * * *"}`)
	know("event", inner(call("POST", "/tenants/acme/events", `{"name":"prices","dedupe_key":"z"}`), "event")["id"])
	subscribed := inner(call("POST", "/tenants/acme/subscriptions", `{"name":"s","url":"https://example.invalid/hook"}`), "subscription")
	know("subscription", subscribed["name"], subscribed["id"])
	know("channel", inner(call("POST", "/tenants/acme/alert-channels", `{"name":"c","url":"https://example.invalid/hook"}`), "channel")["name"])
	call("POST", "/pools", `{"name":"push","kind":"PUSH","url":"https://example.invalid/push"}`)
	for role, path := range map[string]string{"admin": "/tenants/acme/keys", "viewer": "/tenants/acme/keys", "worker": "/keys"} {
		settings := `{"name":"` + role + `","role":"` + role + `"`
		if role == "worker" {
			settings += `,"pools":["default"]`
		}
		w.keys[role], _ = call("POST", path, settings+"}")["secret"].(string)
		require.NotEmpty(t, w.keys[role])
		know("key", inner(call("POST", path, strings.Replace(settings, role, "spare-"+role, 1)+"}"), "key")["id"])
	}
}

// call is a request that must succeed.
func (w *world) call(t *testing.T, method, path, body string) map[string]any {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+w.keys["platform"])
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode, "%s %s: %s", method, path, data)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(data, &doc))
	return doc
}

// listener receives what the server logs, and keeps errors and panics.
type listener struct {
	mu    sync.Mutex
	lines []string
}

func (l *listener) Enabled(context.Context, slog.Level) bool { return true }
func (l *listener) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *listener) WithGroup(string) slog.Handler            { return l }

func (l *listener) Handle(_ context.Context, record slog.Record) error {
	if record.Level < slog.LevelError && !strings.Contains(record.Message, "panic") {
		return nil
	}
	text := record.Message
	record.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, text)
	return nil
}

// ownLog is what the libraries of gRPC log, past the server's log: any text may be in it.
func (l *listener) ownLog() grpclog.LoggerV2 {
	return grpclog.NewLoggerV2(io.Discard, io.Discard, l)
}

// Write takes an error of theirs.
func (l *listener) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

// errors returns the lines so far.
func (l *listener) errors() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines
}

// types are the types of problems that docs/errors.md has, each with its statuses.
func types(t *testing.T) map[string][]int {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/errors.md")
	require.NoError(t, err)
	found := map[string][]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| `[A-Z_]+` \\| `(/errors/[a-z-]+)` \\| ([0-9 or]+) \\|").FindAllStringSubmatch(string(page), -1) {
		for one := range strings.SplitSeq(row[2], " or ") {
			status, err := strconv.Atoi(strings.TrimSpace(one))
			require.NoError(t, err)
			found[row[1]] = append(found[row[1]], status)
		}
	}
	require.Greater(t, len(found), 10)
	return found
}
