package requests

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"go.arco.dev/servo/internal/edge/intercept"
)

// route is one path of the contract, for one method.
type route struct {
	method, template, call string
	input                  protoreflect.MessageDescriptor
	hasBody                bool
	inPath                 []string
}

var variable = regexp.MustCompile(`\{([a-z_]+)(=[^}]*)?\}`)

// calls are all calls of the contract: what is added to it is sent to from then on.
func calls() (found []protoreflect.MethodDescriptor) {
	for _, file := range intercept.Contract() {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				found = append(found, methods.Get(j))
			}
		}
	}
	return found
}

// routes are all paths of the contract.
func routes() (found []route) {
	for _, call := range calls() {
		rule, _ := proto.GetExtension(call.Options(), annotations.E_Http).(*annotations.HttpRule)
		if rule == nil {
			continue
		}
		for _, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
			one := route{call: string(call.FullName()), input: call.Input(), hasBody: r.GetBody() != ""}
			for method, template := range map[string]string{http.MethodGet: r.GetGet(), http.MethodPost: r.GetPost(), http.MethodPut: r.GetPut(), http.MethodPatch: r.GetPatch(), http.MethodDelete: r.GetDelete()} {
				if template != "" {
					one.method, one.template = method, template
				}
			}
			for _, match := range variable.FindAllStringSubmatch(one.template, -1) {
				one.inPath = append(one.inPath, match[1])
			}
			found = append(found, one)
		}
	}
	return found
}

// generator makes one request.
type generator struct {
	*rand.Rand

	known map[string][]string // values that exist, by the name of the field
	bad   []string
	wild  float64 // how often a value is not what its field expects
	dense float64 // how often a field is there that few calls need
}

func (g *generator) of(texts ...string) string { return texts[g.IntN(len(texts))] }

func (g *generator) chance(p float64) bool { return g.Float64() < p }

// text is a value of a field of texts, as a text.
func (g *generator) text(name string) string {
	if g.chance(g.wild) {
		return g.bad[g.IntN(len(g.bad))]
	}
	if values := g.known[name]; len(values) > 0 && g.chance(0.9) {
		return values[g.IntN(len(values))]
	}
	switch g.IntN(4) {
	case 0:
		return uuid.UUID{6: 0x70, 8: 0x80, 15: byte(g.IntN(256))}.String()
	case 1:
		return fmt.Sprintf("%s-%d", g.of("made", "other", "x"), g.IntN(30))
	default:
		return g.of("daily", "acme", "default", "gold/revenue", "1h", "0 6 * * *", "Europe/Berlin", "viewer")
	}
}

// number is a value of a field of numbers.
func (g *generator) number(name string) string {
	if g.chance(g.wild) {
		return g.of("-1", "0", "2147483647", "-2147483648", "2147483648", "1e3", "1.5", "99999999999999999999", `"7"`, `""`, "1e999", "-0")
	}
	switch {
	case name == "page_size":
		return strconv.Itoa(1 + g.IntN(100))
	case name == "attempt" && g.chance(0.8):
		return "1"
	}
	return strconv.Itoa(g.IntN(10))
}

func quote(text string) string {
	data, _ := json.Marshal(text) // a text has JSON
	return string(data)
}

// special are messages that JSON writes in their own way.
func (g *generator) special(field protoreflect.FieldDescriptor) (string, bool) {
	switch field.Message().FullName() {
	case "google.protobuf.Duration":
		if field.Name() == "wait" {
			return quote(g.of("0s", "0.001s", "0.02s")), true // others wait for the answer
		}
		return quote(g.of("0s", "0.001s", "1s", "60s", "3600s", "86400s")), true
	case "google.protobuf.Timestamp":
		return quote(time.Now().Add(time.Duration(g.IntN(100)-50) * time.Hour).UTC().Format(time.RFC3339)), true
	case "google.protobuf.Struct":
		if field.Name() == "manifest" {
			return manifest, true
		}
		return g.of(`{}`, `{"day":"1"}`, `{"n":7}`, `{"day":null}`, `{"day":"1","other":[{}]}`), true
	case "google.protobuf.Value":
		return g.of(`null`, `1`, `"x"`, `{}`, `[1,{"a":null}]`), true
	}
	return "", false
}

// one is a value of a field, as JSON.
func (g *generator) one(field protoreflect.FieldDescriptor, depth int) string {
	if g.chance(g.wild / 2) {
		return tortureValues(g.Rand)
	}
	switch field.Kind() {
	case protoreflect.StringKind:
		return quote(g.text(string(field.Name())))
	case protoreflect.BytesKind:
		return quote(g.of("", "AAAA", "////", "not base64!"))
	case protoreflect.BoolKind:
		return g.of("true", "false")
	case protoreflect.EnumKind:
		values := field.Enum().Values()
		if g.chance(g.wild) {
			return g.of(`"NOTHING"`, "-1", "999", "2147483648")
		}
		return quote(string(values.Get(g.IntN(values.Len())).Name()))
	case protoreflect.MessageKind, protoreflect.GroupKind:
		if text, ok := g.special(field); ok {
			return text
		}
		return g.message(field.Message(), nil, depth+1)
	default:
		return g.number(string(field.Name()))
	}
}

// message is a message as JSON, without some of its fields.
func (g *generator) message(of protoreflect.MessageDescriptor, without []string, depth int) string {
	const deepest = 5
	var members []string
	seen := map[protoreflect.Name]bool{}
	for i := range of.Fields().Len() {
		field := of.Fields().Get(i)
		if oneof := field.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() {
			if seen[oneof.Name()] || !g.chance(1/float64(oneof.Fields().Len()-min(i, oneof.Fields().Len()-1))) && !g.chance(g.wild) {
				continue
			}
			seen[oneof.Name()] = !g.chance(g.wild)
		}
		if depth > deepest || contains(without, string(field.Name())) || !g.chance(g.fieldChance(field)) {
			continue
		}
		members = append(members, quote(string(field.Name()))+":"+g.value(field, depth))
	}
	if g.chance(g.wild / 4) {
		members = append(members, quote(g.text("unknown"))+":"+tortureValues(g.Rand))
	}
	g.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, ",") + "}"
}

// fieldChance is how often a field is there: what most calls need, mostly.
func (g *generator) fieldChance(field protoreflect.FieldDescriptor) float64 {
	switch field.Name() {
	case "page_token", "workspace", "deployment", "wait_for_lock":
		return 0.1
	case "tenant", "name", "lease", "worker_id", "claim_id", "pools", "manifest", "spec", "pipeline", "trigger", "max", "run", "url", "cron", "dedupe_key":
		return 0.95
	default:
		return g.dense
	}
}

func (g *generator) value(field protoreflect.FieldDescriptor, depth int) string {
	switch {
	case g.chance(g.wild / 4):
		return tortureValues(g.Rand)
	case field.IsMap():
		var entries []string
		for range g.IntN(3) {
			entries = append(entries, quote(g.text("label"))+":"+g.one(field.MapValue(), depth))
		}
		return "{" + strings.Join(entries, ",") + "}"
	case field.IsList():
		items := make([]string, 1+g.IntN(3))
		for i := range items {
			items[i] = g.one(field, depth)
		}
		return "[" + strings.Join(items, ",") + "]"
	default:
		return g.one(field, depth)
	}
}

func contains(list []string, one string) bool {
	for _, l := range list {
		if l == one {
			return true
		}
	}
	return false
}

// request is what is sent.
type request struct {
	route  route
	method string
	target *url.URL
	header http.Header
	body   string
}

func (r request) String() string {
	body := r.body
	if len(body) > 2000 {
		body = body[:2000] + "…"
	}
	return fmt.Sprintf("%s %s\n%v\n%q", r.method, r.target, r.header, body)
}

// request makes one for a route.
func (g *generator) request(to route, base *url.URL, keys map[string]string) request {
	g.wild, g.dense = []float64{0, 0, 0.02, 0.1, 0.5}[g.IntN(5)], []float64{0.05, 0.05, 0.2, 0.5}[g.IntN(4)]
	out := request{route: to, method: to.method, header: http.Header{}}
	if g.chance(0.02) {
		out.method = g.of("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW")
	}
	out.target = g.target(to, base)
	if to.hasBody || g.chance(0.02) {
		out.body = g.message(to.input, g.maybe(to.inPath), 0)
		if g.chance(0.15) {
			out.body = tortureBodies(g.Rand, out.body)
		}
		out.header.Set("Content-Type", "application/json")
	}
	g.headers(&out, keys)
	return out
}

// maybe leaves the fields of the path out of the body, mostly.
func (g *generator) maybe(fields []string) []string {
	if g.chance(0.05) {
		return nil
	}
	return fields
}

func (g *generator) target(to route, base *url.URL) *url.URL {
	target := *base
	path := variable.ReplaceAllStringFunc(to.template, func(v string) string {
		name := variable.FindStringSubmatch(v)[1]
		field := to.input.Fields().ByTextName(name)
		if field.Kind() != protoreflect.StringKind {
			return url.PathEscape(strings.Trim(g.number(name), `"`))
		}
		if strings.Contains(v, "=") && !g.chance(g.wild) {
			return g.of("bronze/orders", "gold/revenue", "gold/none")
		}
		text := g.text(name)
		if g.chance(0.05) {
			return text
		}
		return url.PathEscape(text)
	})
	if g.chance(0.02) {
		path += g.of("/", ":", ":nothing", "//", "/..", ":cancel:retry", "%2F", "/%c0%af", ";a=b", "#x")
	}
	if unescaped, err := url.PathUnescape(path); err == nil {
		target.Path, target.RawPath = unescaped, path
	} else {
		target.Path = path
	}
	if !to.hasBody || g.chance(0.03) {
		target.RawQuery = g.query(to)
	}
	return &target
}

func (g *generator) query(to route) string {
	var parts []string
	for i := range to.input.Fields().Len() {
		field := to.input.Fields().Get(i)
		if contains(to.inPath, string(field.Name())) || !g.chance(0.3) {
			continue
		}
		value := strings.Trim(g.one(field, 3), `"`)
		if field.Kind() == protoreflect.StringKind {
			value = g.text(string(field.Name()))
		}
		parts = append(parts, string(field.Name())+"="+url.QueryEscape(value))
	}
	if g.chance(g.wild) {
		parts = append(parts, g.of("unknown=1", "page_size=1&page_size=2", "tenant=other", "%zz=1", "a=%ff", "=", "&&", ";", "page_size", "page_size=", "from=%00", "spec.pipeline=x", "a[b]=c", "page_token="+strings.Repeat("A", 3000)))
	}
	return strings.Join(parts, "&")
}

// headers authenticate the caller, and now and then contain something odd.
func (g *generator) headers(out *request, keys map[string]string) {
	key := keys["platform"]
	switch n := g.IntN(100); {
	case n < 5:
		key = ""
	case n < 8:
		key = g.of("sk_", "Bearer", "sk_0123456789abcdef_"+strings.Repeat("A", 43), keys["platform"]+"x", "é", strings.Repeat("k", 3000))
	case n < 14:
		key = keys["worker"]
	case n < 40:
		key = keys["admin"]
	case n < 44:
		key = keys["viewer"]
	}
	if key != "" && g.chance(0.8) {
		out.header.Set("Authorization", "Bearer "+key)
	} else if key != "" {
		out.header.Set("X-Api-Key", key)
	}
	if g.chance(0.1) {
		out.header.Set("Idempotency-Key", g.of("once", "twice", strings.Repeat("k", 300), "é", " ", fmt.Sprint(g.IntN(1000)), fmt.Sprint(g.IntN(1000))))
	}
	if out.body != "" && g.chance(0.05) {
		out.header.Set("Content-Encoding", "gzip")
		if g.chance(0.8) {
			var zipped bytes.Buffer
			w := gzip.NewWriter(&zipped)
			_, _ = io.WriteString(w, out.body)
			_ = w.Close()
			out.body = zipped.String()
		}
	}
	if !g.chance(0.15) {
		return
	}
	for range 1 + g.IntN(3) {
		name := g.of("Accept", "Accept-Encoding", "Content-Type", "Content-Encoding", "X-Request-Id", "Traceparent", "Tracestate", "Grpc-Metadata-X-Api-Key", "Grpc-Timeout", "X-Http-Method-Override",
			"X-Forwarded-For", "Range", "If-None-Match", "If-Match", "Last-Event-Id", "Origin", "Cookie", "Authorization", "X-Api-Key", "Accept-Language", "Idempotency-Key", "Prefer", "Access-Control-Request-Method")
		out.header.Add(name, g.of(g.headerText(), g.headerText(), "application/json", "text/event-stream", "text/plain", "gzip", "br;q=1, gzip;q=0", "bytes=0-1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "https://evil.example", "1"))
	}
}

// headerText is a text that HTTP can carry.
func (g *generator) headerText() string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, g.bad[g.IntN(len(g.bad))])
}
