package rest

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/edge/problem"
)

// route is one path of the contract, for one method.
type route struct {
	method    string
	template  string // as the contract writes it
	name      string // of the call: servo.v1.RunService.GetRun
	input     protoreflect.MessageDescriptor
	hasBody   bool
	needsBody bool     // a request without one is refused
	inPath    []string // fields of the message that the path gives
}

// variable is {name} or {name=pattern} in a template.
var variable = regexp.MustCompile(`\{([a-z_]+)(=[^}]*)?\}`)

// routes returns the routes of the contract, from which the gateway's code is generated.
func routes() (byPattern map[string]*route, methods []string) {
	byPattern = map[string]*route{}
	for _, call := range intercept.Calls() {
		for _, r := range routesOf(call) {
			byPattern[key(r.method, pattern(r.template))] = r
			methods = append(methods, r.method)
		}
	}
	slices.Sort(methods)
	return byPattern, slices.Compact(methods)
}

// routesOf returns the paths of a call: its main path and additional ones.
func routesOf(call protoreflect.MethodDescriptor) (found []*route) {
	rule, _ := proto.GetExtension(call.Options(), annotations.E_Http).(*annotations.HttpRule)
	if rule == nil {
		return nil
	}
	for _, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		if method, template := pathOf(r); template != "" {
			one := &route{name: string(call.FullName()), input: call.Input(), hasBody: r.GetBody() != "", needsBody: r.GetBody() != "", method: method, template: template}
			for _, match := range variable.FindAllStringSubmatch(template, -1) {
				one.inPath = append(one.inPath, match[1])
			}
			found = append(found, one)
		}
	}
	return found
}

func pathOf(rule *annotations.HttpRule) (method, template string) {
	switch {
	case rule.GetGet() != "":
		return http.MethodGet, rule.GetGet()
	case rule.GetPost() != "":
		return http.MethodPost, rule.GetPost()
	case rule.GetPut() != "":
		return http.MethodPut, rule.GetPut()
	case rule.GetPatch() != "":
		return http.MethodPatch, rule.GetPatch()
	case rule.GetDelete() != "":
		return http.MethodDelete, rule.GetDelete()
	}
	return "", ""
}

// pattern returns a template in the gateway's notation.
func pattern(template string) string {
	return variable.ReplaceAllStringFunc(template, func(v string) string {
		if strings.Contains(v, "=") {
			return v
		}
		return strings.TrimSuffix(v, "}") + "=*}"
	})
}

func key(method, pattern string) string { return method + " " + pattern }

// check runs between the gateway's routing and its handlers. It refuses invalid requests that they would
// accept, and serves run events as a stream on request.
func (e *Edge) check(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		s := stateOf(r)
		r.Header = s.original.Header
		found, _ := runtime.HTTPPattern(r.Context())
		route := e.routes[key(r.Method, found.String())]
		// No name in a path has a colon: such a path has the verb of another method, or of none. The
		// gateway would treat it as part of the name.
		if route == nil || slices.ContainsFunc(route.inPath, func(name string) bool { return strings.Contains(params[name], ":") }) {
			e.notRouted(r.Context(), nil, nil, w, r, http.StatusNotFound)
			return
		}
		s.original.Pattern = route.template // as http.ServeMux does, for metrics
		if s.probing {
			s.found = true
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if err := checkParams(route, params); err != nil {
			problem.Write(w, r, err)
			return
		}
		if route.name == eventsCall {
			w.Header().Add("Vary", "Accept")
			if wantsStream(r.Header) {
				e.events(w, r, params)
				return
			}
		}
		if err := checkQuery(route, r.URL.RawQuery); err != nil {
			problem.Write(w, r, err)
			return
		}
		b, err := readBody(w, r, route, params)
		if err != nil {
			problem.Write(w, r, err)
			return
		}
		r.Body = b
		r.Header = http.Header{} // the allowed ones are in the metadata
		next(w, r, params)
	}
}

// checkPath refuses invalid paths, before a handler or proxy interprets them differently.
func checkPath(r *http.Request) error {
	switch path := r.URL.Path; {
	case !utf8.ValidString(path):
		return fault.New(fault.InvalidArgument, "the path is not valid UTF-8", fault.Remedy("escape the bytes of UTF-8 text"))
	case strings.ContainsFunc(path, unicode.IsControl):
		return fault.New(fault.InvalidArgument, "the path contains control characters", fault.Remedy("remove them"))
	case strings.Contains(strings.ToLower(r.URL.RawPath), "%2f"):
		// Proxies treat an escaped slash differently.
		return fault.New(fault.InvalidArgument, "the path contains an escaped slash", fault.Remedy("write the slash unescaped: assets/namespace/name"))
	}
	return nil
}

// checkParams refuses numbers in the path that are not decimal: the gateway would parse 010 as eight.
func checkParams(r *route, params map[string]string) error {
	for _, name := range r.inPath {
		field := r.input.Fields().ByTextName(name)
		if field.Kind() == protoreflect.StringKind {
			continue
		}
		if v := badScalar(field, params[name]); v != "" {
			return fault.New(fault.InvalidArgument, v, fault.Field(name), fault.Remedy("write a whole number, such as 1"))
		}
	}
	return nil
}

// allowed returns the methods of a path for the header Allow; empty if it has none. It probes the
// gateway, so that the two agree.
func (e *Edge) allowed(r *http.Request) string {
	var allow []string
	for _, method := range e.methods {
		s := &state{original: stateOf(r).original, probing: true}
		probe := r.WithContext(context.WithValue(r.Context(), stateKey{}, s))
		probe.Method, probe.Header = method, http.Header{} // which the gateway would complain of in the log
		e.mux.ServeHTTP(nil, probe)
		if s.found {
			allow = append(allow, method)
			if method == http.MethodGet {
				allow = append(allow, http.MethodHead)
			}
		}
	}
	if allow == nil {
		return ""
	}
	return strings.Join(append(allow, http.MethodOptions), ", ")
}
